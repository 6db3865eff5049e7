"""The values of one token's vector, as a histogram for each layer.

Dimensions: `K` layers, `H` hidden.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bert_features.config.extract_config import ExtractConfig
from bert_features.errors import InputError
from bert_features.plots.model import Layer, Model, choose_layer, layer_name, token_vectors

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.figure import Figure

    from bert_features.plots.labels import Labels

_BINS = 40
_COLUMNS = 4
_MAX_TOKENS_NAMED = 12


@dataclass(frozen=True)
class Histogram:
    """The values of a token.

    Attributes:
      model: the title of the model.
      text: the text.
      token: the token.
      position: its position in the row; 0 is [CLS].
      layers: K layers.
      values: float32 [K, H].
      layer: the layer that a picture shows, None for all; a report begins with it, or the last.
    """

    model: str
    text: str
    token: str
    position: int
    layers: tuple[Layer, ...]
    values: "np.ndarray"
    layer: Layer | None = None

    @property
    def caption(self) -> str:
        """What was drawn, in one line."""
        count = f"{len(self.layers)} layers" if self.layer is None else layer_name(self.layer)
        return f"{self.values.shape[1]} values of the token {self.token!r}, {count}"

    def texts(self) -> Iterable[str]:
        """The texts that are drawn."""
        return self.text, self.token

    def edges(self) -> "np.ndarray":
        """The bounds of the bins, the same for all layers: float [bins + 1]."""
        import numpy as np

        return np.histogram_bin_edges(self.values, _BINS)

    def draw(self, labels: "Labels") -> "Figure":
        """A histogram for each layer, with the same axes."""
        from bert_features.plots.figures import COLORS, new_figure, put_title

        drawn = self.layers if self.layer is None else (self.layer,)
        columns = min(_COLUMNS, len(drawn))
        rows = math.ceil(len(drawn) / columns)
        width, height = (2.9, 2.1) if columns > 1 else (6.5, 3.6)
        figure = new_figure(width * columns, height * rows + 0.7)
        axes = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel()
        for place, layer in enumerate(drawn):
            values = self.values[self.layers.index(layer)]
            axes[place].hist(values, self.edges(), color=COLORS[0])
            axes[place].set_title(self._describe(layer, values), loc="left", fontsize=9)
            axes[place].axvline(0, color="black", linewidth=0.6)
        for place in range(len(drawn), len(axes)):
            axes[place].set_visible(False)
            axes[place - columns].tick_params(labelbottom=True)  # now the lowest of its column
        figure.supxlabel("value", fontsize=10)
        figure.supylabel("dimensions", fontsize=10)
        token, text = labels.clip(self.token), labels.clip(self.text, 44)
        put_title(figure, f"Values of the token “{token}” in “{text}”", self.model)
        return figure

    def _describe(self, layer: Layer, values: "np.ndarray") -> str:
        mean = f"{values.mean():.2f}".replace("-0.00", "0.00").replace("-", "−")
        return f"{layer_name(layer)}: mean {mean}, sd {values.std():.2f}"

    def report(self) -> dict[str, Any]:
        """The histograms of all layers, for `report.render`."""
        import numpy as np

        from bert_features.plots.report import bar_chart

        edges = self.edges()
        counts = [np.histogram(values, edges)[0] for values in self.values]
        notes = [
            f"{self._describe(layer, values)}; largest: {values[at]:.2f} in dimension {at}"
            for layer, values in zip(self.layers, self.values, strict=True)
            for at in [int(np.abs(values).argmax())]
        ]
        return {
            "title": f"Values of the token “{self.token}”",
            "model": self.model,
            "notes": [f"text: {self.text}", f"position in the row: {self.position}"],
            "frames": [layer_name(layer) for layer in self.layers],
            "start": self.layers.index(self.layers[-1] if self.layer is None else self.layer),
            "charts": [bar_chart("", edges, counts, notes, "value", "dimensions")],
        }


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
    import numpy as np

    model = Model.find(settings)
    entries, shown = model.layers(), None if layer is None else choose_layer(model, layer)
    ((tokens, vectors),) = token_vectors(model, [text], entries)
    position = _find(tokens, token, occurrence, is_uncased=model.is_uncased)
    values = np.stack([vectors[layer][position] for layer in entries])
    return Histogram(model.title, text, tokens[position], position, entries, values, shown)


def _find(tokens: Sequence[str], token: str, occurrence: int, *, is_uncased: bool) -> int:
    lowered = token.casefold() if is_uncased else token
    positions = [i for i, piece in enumerate(tokens) if piece in (token, lowered)]
    if not positions:
        named = " ".join(tokens[:_MAX_TOKENS_NAMED])
        more = " …" if len(tokens) > _MAX_TOKENS_NAMED else ""
        raise InputError(f"the token {token!r} is not in the text; its tokens are {named}{more}")
    if not 1 <= occurrence <= len(positions):
        raise InputError.naming(
            "{occurrence} is {received}, but the token {token!r} is in the text {count} time(s)",
            received=occurrence,
            token=token,
            count=len(positions),
        )
    return positions[occurrence - 1]
