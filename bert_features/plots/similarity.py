"""The cosine of each token of a text with each token of the same or of another text.

Dimensions: `T` tokens of the first text, `U` tokens of the second.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import numpy as np

from bert_features.config.extract_config import ExtractConfig
from bert_features.errors import InputError
from bert_features.plots.charts import Chart
from bert_features.plots.figures import finish
from bert_features.plots.heat_map import MAX_ROWS, HeatMap
from bert_features.plots.labels import clip
from bert_features.plots.model import Layer, Model, choose_layer, layer_name, token_vectors

_MAX_TITLE = 60  # characters of a text beside its axis


@dataclass(frozen=True)
class TokenSimilarity(Chart):
    """A heat map of cosines for each layer.

    Attributes:
      rows: T tokens.
      columns: U tokens.
      cosines: by layer, float32 [T, U].
      layer: the layer that a picture shows; a report begins with it.
      texts: the text of the rows, and the text of the columns.
    """

    model: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cosines: Mapping[Layer, np.ndarray]
    layer: Layer
    texts: tuple[str, str]

    def describe(self) -> tuple[str, str]:
        """What was drawn, in one line; and the title of a page."""
        caption = f"{len(self.rows)} x {len(self.columns)} tokens, {layer_name(self.layer)}"
        return caption, f"Cosine of each pair of tokens: {self.model}"

    @property
    def _heat_map(self) -> HeatMap:
        return HeatMap(
            [clip(token) for token in self.rows],
            [clip(token) for token in self.columns],
            self.rows,
            self.columns,
            self.cosines,
            self.layer,
            titles=(clip(self.texts[0], _MAX_TITLE), clip(self.texts[1], _MAX_TITLE)),
        )

    def data(self) -> dict[str, list[dict[str, Any]]]:
        """The cells."""
        return {"cells": self._heat_map.data()}

    def draw(self, *, interactive: bool) -> alt.TopLevelMixin:
        """The heat map of one layer."""
        title = alt.expr("'Cosine of each pair of tokens, ' + layers[layer]")
        heat_map = self._heat_map
        return finish(heat_map.draw(), title, self.model, *heat_map.parameters())


def compare_tokens(
    settings: ExtractConfig, texts: Sequence[str], layer: Layer | None = None
) -> TokenSimilarity:
    """Computes the cosines of the tokens of one text, or of two, at every layer.

    Raises:
      ConfigError: the layer is out of range.
      InputError: a text has too many tokens for a heat map.
    """
    from bert_features.extraction.similarity import compute_similarity

    model = Model.find(settings)
    shown = choose_layer(model, layer)
    encoded = token_vectors(model, texts)
    for position, (tokens, _) in enumerate(encoded, start=1):
        if len(tokens) > MAX_ROWS:
            raise InputError(
                f"text {position} has {len(tokens)} tokens; a heat map shows at most {MAX_ROWS}, "
                "pass a shorter text"
            )
    (rows, first), (columns, second) = encoded[0], encoded[-1]
    cosines = {layer: compute_similarity(first[layer], second[layer]) for layer in first}
    named = texts[0], texts[-1]
    return TokenSimilarity(model.title, rows, columns, cosines, shown, named)
