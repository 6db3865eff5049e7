"""The values of one token's vector, as a histogram for each layer.

Dimensions: `K` layers, `H` hidden.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import numpy as np

from bert_features.config.extract_config import ExtractConfig
from bert_features.errors import InputError
from bert_features.plots.charts import Chart
from bert_features.plots.figures import COLORS, PANEL_TITLE, finish, slider
from bert_features.plots.labels import clip
from bert_features.plots.model import Layer, Model, choose_layer, layer_name, token_vectors

_BINS = 40
_COLUMNS = 4
_MAX_TOKENS_NAMED = 12


@dataclass(frozen=True)
class Histogram(Chart):
    """The values of a token.

    Attributes:
      position: its position in the row; 0 is [CLS].
      values: float32 [K, H].
      layer: the layer that a picture shows, None for all; a report begins with it, or the last.
    """

    model: str
    text: str
    token: str
    position: int
    layers: tuple[Layer, ...]
    values: np.ndarray
    layer: Layer | None = None

    def describe(self) -> tuple[str, str]:
        """What was drawn, in one line; and the title of a page."""
        shown = "all layers" if self.layer is None else layer_name(self.layer)
        caption = f"{self.values.shape[1]} values of the token {self.token!r}, {shown}"
        return caption, f"Values of the token “{self.token}”: {self.model}"

    def data(self) -> dict[str, list[dict[str, Any]]]:
        """The bars: the number of a layer, the bounds of a bin and how many values it has."""
        # The same bins for all layers.
        edges = np.histogram_bin_edges(self.values, _BINS)
        bars = [
            {"layer": layer, "start": float(start), "end": float(end), "count": int(count)}
            for layer, values in enumerate(self.values)
            for start, end, count in zip(
                edges, edges[1:], np.histogram(values, edges)[0], strict=False
            )
        ]
        return {"bars": bars}

    def draw(self, *, interactive: bool) -> alt.TopLevelMixin:
        """A histogram for each layer, with the same axes; or for the one layer that is shown."""
        everything = self.layer is None and not interactive
        width, height = (230, 150) if everything else (620, 280)
        most = max(bar["count"] for bar in self.data()["bars"])
        panel = _panel(most).properties(width=width, height=height)
        names = [
            self._describe(layer, values, in_full=not everything)
            for layer, values in zip(self.layers, self.values, strict=True)
        ]
        shown = self.layers[-1] if self.layer is None else self.layer
        parameters = slider("layer", names, self.layers.index(shown))
        title = f"Values of the token “{clip(self.token)}”"
        text = f"position {self.position} of “{clip(self.text, 90)}”"
        subtitle = [self.model, text]
        if everything:
            head = alt.Header(labelExpr="layers[datum.value]", labelAnchor="start", title=None)
            panels = panel.facet(alt.Facet("layer:O", header=head), columns=_COLUMNS, spacing=24)
            panels = panels.resolve_axis(x="independent")
            return finish(panels, title, subtitle, *parameters)
        single = panel.transform_filter("datum.layer == layer")
        heading = alt.Title(alt.expr("layers[layer]"), **PANEL_TITLE)
        return finish(alt.hconcat(single.properties(title=heading)), title, subtitle, *parameters)

    @staticmethod
    def _describe(layer: Layer, values: np.ndarray, *, in_full: bool) -> str:
        mean = f"{values.mean():.2f}".replace("-0.00", "0.00").replace("-", "−")
        text = f"{layer_name(layer)}: mean {mean}, sd {values.std():.2f}"
        if not in_full:
            return text
        largest = int(np.abs(values).argmax())
        return f"{text}; largest: {values[largest]:.2f} in dimension {largest}"


def _panel(most: int) -> Any:
    """The bars of the data set `bars`, none of more than `most` values, and a line at zero."""
    hint = [
        alt.Tooltip("start:Q", title="from", format=".2f"),
        alt.Tooltip("end:Q", title="to", format=".2f"),
        alt.Tooltip("count:Q", title="dimensions"),
    ]
    bars = (
        alt.Chart()
        .mark_bar(color=COLORS[0], binSpacing=0)
        .encode(
            alt.X("start:Q", bin="binned", title="value", axis=alt.Axis(grid=False, tickCount=5)),
            alt.X2("end:Q"),
            alt.Y("count:Q", title="dimensions", scale=alt.Scale(domain=[0, most])),
            tooltip=hint,
        )
    )
    zero = alt.Chart().mark_rule().encode(x=alt.datum(0))
    return alt.layer(bars, zero, data=alt.NamedData("bars"))


def token_histogram(
    settings: ExtractConfig,
    text: str,
    token: str,
    *,
    occurrence: int = 1,
    layer: Layer | None = None,
) -> Histogram:
    """Computes the vectors of one token of a text.

    Args:
      settings: the model and where it runs.
      text: the text.
      token: a piece of the text as the tokenizer makes it, as `bank`, `##ing` or `[CLS]`.
      occurrence: which of several equal pieces, from 1.
      layer: the layer of a picture, and the first of a report; by default a picture has all.

    Raises:
      ConfigError: a layer is out of range.
      InputError: the text does not have the token.
    """
    model = Model.find(settings)
    shown = None if layer is None else choose_layer(model, layer)
    ((tokens, vectors),) = token_vectors(model, [text])
    position = _find(tokens, token, occurrence, is_uncased=model.is_uncased)
    values = np.stack([each[position] for each in vectors.values()])
    return Histogram(model.title, text, tokens[position], position, tuple(vectors), values, shown)


def _find(tokens: Sequence[str], token: str, occurrence: int, *, is_uncased: bool) -> int:
    lowered = token.casefold() if is_uncased else token
    positions = [i for i, piece in enumerate(tokens) if piece in (token, lowered)]
    if not positions:
        named = " ".join(tokens[:_MAX_TOKENS_NAMED])
        more = " …" if len(tokens) > _MAX_TOKENS_NAMED else ""
        raise InputError(f"the token {token!r} is not in the text; its tokens are {named}{more}")
    if not 1 <= occurrence <= len(positions):
        raise InputError(
            f"occurrence is {occurrence}; allowed: 1 to {len(positions)}, as often as the text has "
            f"{token!r}"
        )
    return positions[occurrence - 1]
