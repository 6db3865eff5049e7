"""A probe: how well a linear classifier reads labels from each layer and pooling."""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bert_features.config.extract_config import ExtractConfig
from bert_features.plots.labelled import Labelled, check_classes
from bert_features.plots.model import Layer, Model, layer_name
from bert_features.plots.pooled import POOLINGS, pooled_vectors
from bert_features.plots.scores import (
    METRICS,
    Recommendation,
    Score,
    chance_level,
    cross_validate,
    recommend,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from bert_features.plots.labels import Labels

FOLDS = 5
_SENTENCE_WIDTH = 88  # characters on a line below the picture


logger = logging.getLogger("bert_features")


@dataclass(frozen=True)
class Probe:
    """Scores by layer and pooling.

    Attributes:
      model: the title of the model.
      classes: the number of examples by label.
      scores: the scores, by layer from the lowest and by pooling in the order asked for.
      chance: the chance level.
      metric: the name of the score, one of `METRICS`.
      recommendation: the layer and pooling to use.
    """

    model: str
    classes: dict[str, int]
    scores: Sequence[Score]
    chance: float
    metric: str
    recommendation: Recommendation

    @property
    def caption(self) -> str:
        """What was drawn, in one line."""
        return f"{len(self.scores)} scores of {self._about}"

    @property
    def _about(self) -> str:
        folds = len(self.scores[0].folds)
        count = sum(self.classes.values())
        return f"{count:,} texts, {len(self.classes)} classes, {folds} folds"

    def texts(self) -> Iterable[str]:
        """The texts that are drawn: none of the user's."""
        return ("±",)

    def table(self) -> list[list[str]]:
        """Rows of layer, pooling, score and standard error, after a head."""
        head = ["layer", "pooling", METRICS[self.metric], "std. error"]
        rows = [[str(s.layer), s.pooling, f"{s.mean:.3f}", f"{s.error:.3f}"] for s in self.scores]
        return [head, *rows]

    def _by_pooling(self) -> dict[str, list[Score]]:
        poolings = dict.fromkeys(score.pooling for score in self.scores)
        return {name: [s for s in self.scores if s.pooling == name] for name in poolings}

    @property
    def _layers(self) -> list[Layer]:
        return list(dict.fromkeys(score.layer for score in self.scores))

    def draw(self, labels: "Labels") -> "Figure":
        """A line for each pooling over the layers, with standard errors and the chance level."""
        import textwrap

        from bert_features.plots.figures import COLORS, GRAY, MARKERS, new_figure, put_title

        layers = self._layers
        lines = textwrap.wrap(self.recommendation.sentence, _SENTENCE_WIDTH)
        figure = new_figure(7.5, 4.4 + 0.18 * len(lines))
        axes = figure.subplots()
        poolings = self._by_pooling()
        for i, (pooling, scores) in enumerate(poolings.items()):
            # Beside each other, so that error bars do not cover each other.
            shift = (i - (len(poolings) - 1) / 2) * 0.1
            axes.errorbar(
                [layers.index(score.layer) + shift for score in scores],
                [score.mean for score in scores],
                [score.error for score in scores],
                color=COLORS[i % len(COLORS)],
                marker=MARKERS[i],
                capsize=3,
                label=pooling,
            )
        axes.axhline(self.chance, color="black", linestyle="--", linewidth=1, label="chance")
        self._circle(axes, layers, list(poolings))
        axes.set_xticks(range(len(layers)), [str(layer) for layer in layers])
        axes.set_xlabel("layer")
        axes.set_ylabel(f"{METRICS[self.metric]} ± standard error")
        axes.grid(axis="y", color="#e6e6e6")
        figure.legend(loc="outside right center")  # above it is the title
        figure.supxlabel("\n".join(lines), fontsize=9, color=GRAY, x=0.02, ha="left")
        put_title(figure, f"A linear classifier on each layer: {self._about}", self.model)
        return figure

    def _circle(self, axes: Any, layers: Sequence[Layer], poolings: Sequence[str]) -> None:
        """Draws a ring around the recommended one, if there is one."""
        choice = self.recommendation.choice
        if choice is None:
            return
        shift = (poolings.index(choice.pooling) - (len(poolings) - 1) / 2) * 0.1
        place = layers.index(choice.layer) + shift
        ring = {"s": 170, "facecolors": "none", "edgecolors": "black", "zorder": 5}
        axes.scatter([place], [choice.mean], label="recommended", **ring)

    def report(self) -> dict[str, Any]:
        """The lines and the table, for `report.render`."""
        from bert_features.plots.report import line_chart

        layers = self._layers
        series = {
            pooling: tuple(
                [_at(scores, layer, offset) for layer in layers] for offset in (0, -1, 1)
            )
            for pooling, scores in self._by_pooling().items()
        }
        chart = line_chart(
            f"{METRICS[self.metric]}; bars are standard errors over the folds",
            [layer_name(layer) for layer in layers],
            series,
            y_title=METRICS[self.metric],
            reference=("chance", self.chance),
        )
        return {
            "title": "A linear classifier on each layer",
            "model": self.model,
            "notes": [self._about, self.recommendation.sentence],
            "charts": [chart],
            "table": self.table(),
        }


def _at(scores: Sequence[Score], layer: Layer, offset: int) -> float | None:
    """The score at a layer, plus so many standard errors; None if there is none."""
    return next((s.mean + offset * s.error for s in scores if s.layer == layer), None)


def probe(
    settings: ExtractConfig,
    labelled: Labelled,
    *,
    layers: Sequence[Layer] | None = None,
    poolings: Sequence[str] = POOLINGS,
    folds: int = FOLDS,
    metric: str = "accuracy",
) -> Probe:
    """Scores a linear classifier on each layer and pooling of labelled texts.

    Args:
      settings: the model and where it runs.
      labelled: the texts and their labels.
      layers: the layers; by default all.
      poolings: the poolings, the simplest first: of scores that cannot be distinguished the first
        of the lowest layer is recommended.
      folds: the number of folds.
      metric: `accuracy` or `balanced_accuracy`.

    Raises:
      ConfigError: a layer or a pooling is not allowed.
      InputError: there is one class only, a class has fewer examples than there are folds, or the
        vectors would take too much memory.
    """
    check_classes(labelled, folds=folds)
    if repeated := labelled.repeated():
        logger.warning(
            "%s: %d texts stand there more than once; where a copy is in the training folds the "
            "score is too high",
            labelled.name,
            repeated,
        )
    labels = labelled.labels or []
    model = Model.find(settings)
    vectors = pooled_vectors(model, labelled, model.layers(layers), poolings)
    scores = cross_validate(vectors, labels, folds=folds, metric=metric)
    chance = chance_level(labels, metric)
    choice = recommend(scores, chance, metric)
    return Probe(model.title, labelled.counts(), scores, chance, metric, choice)
