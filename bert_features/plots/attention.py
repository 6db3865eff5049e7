"""Attention from each token, or word, of a text to each other: small maps of heads, or a large one.

Dimensions: `D` heads, `S` tokens or words.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import altair as alt
import numpy as np

from bert_features.config.extract_config import ExtractConfig
from bert_features.config.layers import EMBEDDINGS
from bert_features.config.outputs import OutputConfig
from bert_features.errors import ConfigError, InputError
from bert_features.plots.charts import Chart
from bert_features.plots.figures import PANEL_TITLE, finish, slider
from bert_features.plots.heat_map import MAX_ROWS, HeatMap
from bert_features.plots.labels import clip
from bert_features.plots.model import Layer, Model, layer_name
from bert_features.readers.input_example import InputExample

# The size of each small map, and the smallest cells that have room for labels.
_SIDE, _LABELLED, _MAX_CELL = 150, 9, 24
_COLUMNS = (6, 5, 4, 3, 2)
# By the square root: most values are small.
_SCALE = alt.Scale(type="pow", exponent=0.5, domain=[0, 1], scheme="viridis")


@dataclass(frozen=True)
class Attention(Chart):
    """The attention of heads, from the tokens of the rows to the tokens of the columns.

    Attributes:
      labels: S tokens or words.
      heads: D names, as `head 3` or `mean of the heads`.
      weights: by layer, float32 [D, S, S], from 0 to 1.
      layers: the layers that a picture shows; a report begins with the first of these.
      level: `token` or `word`.
    """

    model: str
    text: str
    labels: tuple[str, ...]
    heads: tuple[str, ...]
    weights: Mapping[Layer, np.ndarray]
    layers: tuple[Layer, ...]
    level: str

    def describe(self) -> tuple[str, str]:
        """What was drawn, in one line; and the title of a page."""
        layers, count = ", ".join(map(layer_name, self.layers)), len(self.labels)
        heads = self.heads[0] if len(self.heads) == 1 else f"{len(self.heads)} heads"
        caption = f"{count} x {count} {self.level}s, {heads}, {layers}"
        return caption, f"Attention between {self.level}s: {self.model}"

    @property
    def _heat_map(self) -> HeatMap:
        labels = [clip(label) for label in self.labels]
        names = (f"{layer_name(layer)}, {head}" for layer in self.weights for head in self.heads)
        matrices = (matrix for heads in self.weights.values() for matrix in heads)
        return HeatMap(
            *(labels, labels, self.labels, self.labels),
            dict(zip(names, matrices, strict=True)),
            layer="",
            titles=("from", "to"),
            value="attention",
            scale=_SCALE,
            shown=f"layer * {len(self.heads)} + head",
        )

    def data(self) -> dict[str, list[dict[str, Any]]]:
        """The cells; each has the values of all heads, layer by layer."""
        return {"cells": self._heat_map.data()}

    def draw(self, *, interactive: bool) -> alt.TopLevelMixin:
        """One head large, or small maps of many; a page has both, and a slider for each."""
        heat_map, count = self._heat_map, len(self.heads)
        places = [list(self.weights).index(layer) for layer in self.layers]
        layers = [layer_name(layer) for layer in self.weights]
        parameters = [
            *slider("layer", layers, places[0]),
            *slider("head", self.heads, 0),
            *heat_map.label_parameters(),
            alt.param(name="panels", value=list(heat_map.cosines)),
        ]
        title = f"Attention from each {self.level} (row) to each other (column)"
        subtitle = [self.model, f"“{clip(self.text, 90)}”"]
        heading = alt.Title(alt.expr("layers[layer] + ', ' + heads[head]"), **PANEL_TITLE)
        large = alt.hconcat(heat_map.draw(title=heading))
        if count == 1 and (interactive or len(places) == 1):
            return finish(large, title, subtitle, *parameters)
        if not interactive:
            numbers = [place * count + head for place in places for head in range(count)]
            # Else the seams of small cells would be white; a page would draw this above them.
            grid = self._grid(str(numbers), behind="#440154")
            return finish(grid, title, subtitle, *parameters)
        grid = self._grid(f"sequence(layer * {count}, layer * {count} + {count})")
        drawn = alt.vconcat(large, grid, spacing=40).resolve_scale(color="independent")
        return finish(drawn, title, subtitle, *parameters)

    def _grid(self, numbers: str, *, behind: str | None = None) -> Any:
        """Small maps of the panels of these numbers, an expression; with labels if they fit."""
        cell = max(1, min(_MAX_CELL, _SIDE // len(self.labels)))
        axis: dict[str, Any] = {"domain": False, "ticks": False, "labelOverlap": False}
        axis |= {"labelFontSize": 9, "labels": cell >= _LABELLED}
        fields = {"row": ("y", "rows", "from", 0), "column": ("x", "columns", "to", -90)}
        places = {
            channel: {
                "field": field,
                "type": "ordinal",
                "title": title,
                "axis": {"labelExpr": f"{labels}[datum.value]", "labelAngle": angle, **axis},
            }
            for field, (channel, labels, title, angle) in fields.items()
        }
        hint = [alt.Tooltip("a:N", title="from"), alt.Tooltip("b:N", title="to")]
        panel = (
            alt.Chart(alt.NamedData("cells"))
            .transform_calculate(
                panel=numbers, a="rowHints[datum.row]", b="columnHints[datum.column]"
            )
            .transform_flatten(["panel"])
            .transform_calculate(attention="datum.cosines[datum.panel]")
            .mark_rect()
            .encode(
                alt.X.from_dict(places["x"]),
                alt.Y.from_dict(places["y"]),
                alt.Color("attention:Q", scale=_SCALE),
                tooltip=[*hint, alt.Tooltip("attention:Q", format=".3f")],
            )
        )
        size, view = cell * len(self.labels), alt.ViewBackground(fill=behind)
        # The name is one that Altair would not find by itself.
        panel = panel.properties(width=size, height=size, view=view, name="panel")
        head = alt.Header(labelExpr="panels[datum.value]", labelFontSize=12, title=None)
        columns = next((n for n in _COLUMNS if len(self.heads) % n == 0), _COLUMNS[0])
        return panel.facet(alt.Facet("panel:O", header=head), columns=columns, spacing=16)


def show_attention(
    settings: ExtractConfig,
    text: str | tuple[str, str],
    *,
    layers: Sequence[Layer] | None = None,
    heads: str | Sequence[int] = "all",
    level: Literal["token", "word"] = "token",
) -> Attention:
    """Computes the attention of a text, or of a pair of texts.

    Args:
      settings: the model and where it runs.
      text: the text, or the two of a pair.
      layers: by default the last in a picture, and all in a report, which begins with the last.
      heads: numbers of heads from 0; `all`; or `mean` or `max` of all.
      level: from each token to each other, or from each word.

    Raises:
      ConfigError: a layer or a head is out of range.
      InputError: the text has too many tokens for a heat map, or none.
    """
    model = Model.find(settings)
    shown = model.layers(layers or (-1,))
    if EMBEDDINGS in shown:
        raise ConfigError("layers has 'embeddings', which have no attention; leave it out")
    entries = shown if layers else model.layers()[1:]
    output = OutputConfig.of(
        {"kind": "attention", "layers": entries, "heads": heads, "level": level}
    )
    example = InputExample(0, *([text] if isinstance(text, str) else text))
    (record,) = model.extract([example], [output])
    labels = record.unit_names(level)
    if not 0 < len(labels) <= MAX_ROWS:
        raise InputError(
            f"the text has {len(labels)} {level}s; a figure of attention shows 1 to {MAX_ROWS}"
        )
    matrices = (np.asarray(values, np.float32) for values in record.features.values())
    weights = dict(zip(entries, matrices, strict=True))
    chosen = output.heads or ("all",)
    if chosen[0] == "all":
        chosen = tuple(range(len(weights[entries[0]])))
    names = tuple(f"{h} of the heads" if isinstance(h, str) else f"head {h}" for h in chosen)
    joined = text if isinstance(text, str) else " ||| ".join(text)
    return Attention(model.title, joined, labels, names, weights, shown, level)
