"""One word in several contexts: how alike its vectors are at each layer, within a sense or not.

Dimensions: `N` occurrences, `P` = N (N - 1) / 2 pairs of them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bert_features.config.extract_config import ExtractConfig
from bert_features.plots.heat_map import HeatMap, color_range
from bert_features.plots.labelled import Labelled
from bert_features.plots.model import Layer, Model, choose_layer, layer_name
from bert_features.plots.occurrences import Occurrence, find_occurrences

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.figure import Figure

    from bert_features.plots.labels import Labels

_CONTEXT = 32  # characters of a word and the words around it
_MAX_LABEL = 42
# Pairs of which each gets a line of its own.
_MAX_LINES = 300
SAME, OTHER, ALL = "same label", "other label", "all pairs"


@dataclass(frozen=True)
class WordSimilarity:
    """The cosine of each pair of occurrences of a word at each layer.

    Attributes:
      model: the title of the model.
      word: the word.
      occurrences: N occurrences; those of one label follow each other.
      cosines: by layer, float32 [N, N].
      layer: the layer of the heat map.
    """

    model: str
    word: str
    occurrences: Sequence[Occurrence]
    cosines: "Mapping[Layer, np.ndarray]"
    layer: Layer

    @property
    def caption(self) -> str:
        """What was drawn, in one line."""
        texts = len({occurrence.number for occurrence in self.occurrences})
        return f"{len(self.occurrences)} occurrences of {self.word!r} in {texts} texts"

    def texts(self) -> Iterable[str]:
        """The texts that are drawn."""
        return (self.word, *(f"{o.label} {o.text}" for o in self.occurrences))

    def groups(self) -> "dict[str, np.ndarray]":
        """The pairs of the same label and of different ones, or all pairs: each [K + 1 layers, P].

        Groups without a pair are left out.
        """
        import numpy as np

        labels = np.array([occurrence.label for occurrence in self.occurrences])
        first, second = np.triu_indices(len(labels), k=1)
        values = np.stack([cosines[first, second] for cosines in self.cosines.values()])
        if len(set(labels)) < 2:
            return {ALL: values}
        same = labels[first] == labels[second]
        groups = {SAME: values[:, same], OTHER: values[:, ~same]}
        return {name: group for name, group in groups.items() if group.size}

    def draw(self, labels: "Labels") -> "Figure":
        """Lines over the layers, and the heat map of one layer beside them."""
        from bert_features.plots.figures import new_figure, put_title

        rows = [labels.clip(row, _MAX_LABEL) for row in self._rows()]
        columns = [str(i + 1) for i in range(len(rows))]
        heat_map = HeatMap(rows, columns, self.cosines[self.layer], self._borders())
        width, height = heat_map.size()
        figure = new_figure(4.4 + width, max(height, 3.4) + 0.9)
        lines, matrix = figure.subplots(1, 2, width_ratios=(4.0, width))
        self._draw_lines(lines)
        heat_map.draw(matrix, color_range(self.cosines.values()))
        matrix.set_title(f"each pair, {layer_name(self.layer)}", loc="left")
        word = labels.clip(self.word, 30)
        put_title(figure, f"Cosine of the occurrences of “{word}” by layer", self.model)
        return figure

    def _draw_lines(self, axes: Any) -> None:
        from bert_features.plots.figures import COLORS, MARKERS

        places, groups = range(len(self.cosines)), self.groups()
        single = all(values.shape[1] <= _MAX_LINES for values in groups.values())
        for i, (name, values) in enumerate(groups.items()):
            if single:
                axes.plot(places, values, color=COLORS[i], alpha=0.15, linewidth=0.7)
            else:
                low, high = _spread(values)
                axes.fill_between(places, low, high, color=COLORS[i], alpha=0.15, linewidth=0)
            label = f"{name} (mean of {values.shape[1]:,})"
            axes.plot(places, values.mean(1), color=COLORS[i], marker=MARKERS[i], label=label)
        axes.set_xticks(places, [str(layer)[:3] for layer in self.cosines])
        axes.set_xlabel("layer (emb: embeddings)")
        axes.set_ylabel("cosine")
        around = "single pairs" if single else "80 % of the pairs"
        axes.set_title(f"mean and {around}, by layer", loc="left")
        axes.grid(axis="y", color="#e6e6e6")
        axes.legend(loc="best", fontsize=9)

    def _rows(self) -> list[str]:
        """The label of each occurrence: its number, its label and a few words of its text."""
        return [
            f"{i}  {f'{o.label}: ' if o.label else ''}{o.context(_CONTEXT)}"
            for i, o in enumerate(self.occurrences, start=1)
        ]

    def _borders(self) -> list[int]:
        """The positions at which another label begins."""
        labels = [occurrence.label for occurrence in self.occurrences]
        return [i for i in range(1, len(labels)) if labels[i] != labels[i - 1]]

    def report(self) -> dict[str, Any]:
        """The lines and the heat maps of all layers, for `report.render`."""
        from bert_features.plots.report import heat_map_chart, line_chart

        layers = list(self.cosines)
        numbers = [str(i + 1) for i in range(len(self.occurrences))]
        lines = line_chart(
            "Mean cosine by layer; bars hold 80 % of the pairs",
            [layer_name(layer) for layer in layers],
            {name: (v.mean(1), *_spread(v)) for name, v in self.groups().items()},
            y_title="cosine",
        )
        matrix = heat_map_chart("Each pair", self._rows(), numbers, list(self.cosines.values()))
        matrix["hints"] = [f"text {o.number}: {o.text}" for o in self.occurrences]
        return {
            "title": f"Cosine of the occurrences of “{self.word}”",
            "model": self.model,
            "frames": [layer_name(layer) for layer in layers],
            "start": layers.index(self.layer),
            "charts": [lines, matrix],
        }


def _spread(values: "np.ndarray") -> "np.ndarray":
    """The range that holds 80 % of the pairs at each layer: float [2, K]."""
    import numpy as np

    spread: np.ndarray = np.quantile(values, (0.1, 0.9), axis=1)
    return spread


def compare_word(
    settings: ExtractConfig, word: str, lines: Labelled, layer: Layer | None = None
) -> WordSimilarity:
    """Computes the cosines of a word's occurrences at every layer.

    Args:
      settings: the model and where it runs.
      word: the word, as `word_split` splits texts into words.
      lines: the texts, and their labels if they have any.
      layer: the layer of the heat map; by default the last.

    Raises:
      ConfigError: the layer is out of range.
      InputError: there are fewer than two occurrences, or too many for a heat map.
    """
    from bert_features.extraction.similarity import compute_similarity

    model = Model.find(settings)
    shown = choose_layer(model, layer)
    occurrences, vectors = find_occurrences(model, word, lines.examples, lines.labels, lines.name)
    cosines = {layer: compute_similarity(of_layer) for layer, of_layer in vectors.items()}
    return WordSimilarity(model.title, word, occurrences, cosines, shown)
