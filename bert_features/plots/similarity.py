"""The cosine of each token of a text with each token of the same or of another text.

Dimensions: `T` tokens of the first text, `U` tokens of the second.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bert_features.config.extract_config import ExtractConfig
from bert_features.errors import InputError
from bert_features.plots.heat_map import MAX_ROWS, HeatMap, color_range
from bert_features.plots.model import Layer, Model, choose_layer, layer_name, token_vectors

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.figure import Figure

    from bert_features.plots.labels import Labels


@dataclass(frozen=True)
class TokenSimilarity:
    """A heat map of cosines for each layer.

    Attributes:
      model: the title of the model.
      rows: T tokens.
      columns: U tokens.
      cosines: by layer, float32 [T, U].
      layer: the layer that a picture shows; a report begins with it.
    """

    model: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cosines: "Mapping[Layer, np.ndarray]"
    layer: Layer

    @property
    def caption(self) -> str:
        """What was drawn, in one line."""
        return f"{len(self.rows)} x {len(self.columns)} tokens, {layer_name(self.layer)}"

    def texts(self) -> Iterable[str]:
        """The texts that are drawn."""
        return (*self.rows, *self.columns)

    def draw(self, labels: "Labels") -> "Figure":
        """The heat map of one layer."""
        from bert_features.plots.figures import new_figure, put_title

        heat_map = HeatMap(
            labels.clip_all(self.rows), labels.clip_all(self.columns), self.cosines[self.layer]
        )
        width, height = heat_map.size()
        figure = new_figure(max(width, 5.5), height + 0.9)
        heat_map.draw(figure.subplots(), color_range(self.cosines.values()))
        put_title(figure, f"Cosine of each pair of tokens, {layer_name(self.layer)}", self.model)
        return figure

    def report(self) -> dict[str, Any]:
        """The heat maps of all layers, for `report.render`."""
        from bert_features.plots.report import heat_map_chart

        layers = list(self.cosines)
        chart = heat_map_chart("", self.rows, self.columns, list(self.cosines.values()))
        return {
            "title": "Cosine of each pair of tokens",
            "model": self.model,
            "frames": [layer_name(layer) for layer in layers],
            "start": layers.index(self.layer),
            "charts": [chart],
        }


def compare_tokens(
    settings: ExtractConfig, texts: Sequence[str], layer: Layer | None = None
) -> TokenSimilarity:
    """Computes the cosines of the tokens of one text, or of two, at every layer.

    Args:
      settings: the model and where it runs.
      texts: one text, or two.
      layer: the layer that a picture shows; by default the last.

    Raises:
      ConfigError: the layer is out of range.
      InputError: a text has too many tokens for a heat map.
    """
    from bert_features.extraction.similarity import compute_similarity

    model = Model.find(settings)
    shown = choose_layer(model, layer)
    found = token_vectors(model, texts, model.layers())
    for position, (tokens, _) in enumerate(found, start=1):
        if len(tokens) > MAX_ROWS:
            raise InputError(
                f"text {position} has {len(tokens)} tokens; a heat map shows at most {MAX_ROWS}, "
                "pass a shorter text"
            )
    (rows, first), (columns, second) = found[0], found[-1]
    cosines = {layer: compute_similarity(first[layer], second[layer]) for layer in first}
    return TokenSimilarity(model.title, rows, columns, cosines, shown)
