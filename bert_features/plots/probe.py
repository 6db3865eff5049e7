"""A probe: how well a linear classifier reads labels from each layer and pooling."""

import logging
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from bert_features.config.extract_config import ExtractConfig
from bert_features.plots.charts import Chart
from bert_features.plots.figures import finish, layer_axis, look
from bert_features.plots.labelled import Labelled, check_classes
from bert_features.plots.model import Layer, Model, Report, layer_name, layer_place
from bert_features.plots.pooled import POOLINGS, pooled_vectors
from bert_features.plots.scores import (
    METRICS,
    Recommendation,
    Score,
    chance_level,
    cross_validate,
    recommend,
)

FOLDS = 5
_SENTENCE_WIDTH = 88  # characters on a line below the picture

logger = logging.getLogger("bert_features")


@dataclass(frozen=True)
class Probe(Chart):
    """Scores by layer and pooling.

    Attributes:
      classes: the number of examples by label.
      scores: the scores, by layer from the lowest and by pooling in the order asked for.
      metric: the name of the score, one of `METRICS`.
    """

    model: str
    classes: dict[str, int]
    scores: Sequence[Score]
    chance: float
    metric: str
    recommendation: Recommendation

    def describe(self) -> tuple[str, str]:
        """What was drawn, in one line; and the title of a page and of the drawing."""
        texts, folds = sum(self.classes.values()), len(self.scores[0].folds)
        about = f"{texts:,} texts, {len(self.classes)} classes, {folds} folds"
        return (
            f"{len(self.scores)} scores of {about}",
            f"A linear classifier on each layer: {about}",
        )

    def table(self) -> list[list[str]]:
        """Rows of layer, pooling, score and standard error, after a head."""
        head = ["layer", "pooling", METRICS[self.metric], "std. error"]
        rows = [[str(s.layer), s.pooling, f"{s.mean:.3f}", f"{s.error:.3f}"] for s in self.scores]
        return [head, *rows]

    def data(self) -> dict[str, list[dict[str, Any]]]:
        """The scores with their standard errors."""
        poolings = self._poolings
        choice = self.recommendation.choice
        points = [
            {
                # Beside each other, so that error bars do not cover each other.
                "place": layer_place(score.layer)
                + (poolings.index(score.pooling) - (len(poolings) - 1) / 2) * 0.1,
                "layer": layer_name(score.layer),
                "pooling": score.pooling,
                "score": score.mean,
                "error": score.error,
                "mark": "recommended" if score is choice else "",
            }
            for score in self.scores
        ]
        return {"scores": points}

    @property
    def _poolings(self) -> list[str]:
        return list(dict.fromkeys(score.pooling for score in self.scores))

    def draw(self, *, interactive: bool) -> alt.TopLevelMixin:
        """A line for each pooling over the layers, with standard errors and the chance level."""
        axis = layer_axis(sorted({layer_place(score.layer) for score in self.scores}))
        x = alt.X("place:Q", axis=axis, scale=alt.Scale(padding=24, nice=False))
        y = alt.Y("score:Q", scale=alt.Scale(zero=False))
        name = METRICS[self.metric]
        colors, shapes = look(self._poolings)
        color = alt.Color("pooling:N", scale=colors, title=None)
        shape = alt.Shape("pooling:N", scale=shapes, title=None)
        scores = alt.Chart(alt.NamedData("scores"))
        hint: list[Any] = ["pooling:N", "layer:N"]
        hint += [alt.Tooltip(f"{field}:Q", format=".3f") for field in ("score", "error")]
        bars = scores.mark_errorbar(ticks=True).encode(
            x, alt.Y("score:Q", title=f"{name} ± standard error"), alt.YError("error:Q"), color
        )
        lines = scores.mark_line(strokeWidth=2).encode(x, y, color)
        points = scores.mark_point(size=70, filled=True, opacity=1).encode(
            x, y, color, shape, tooltip=hint
        )
        ring = (
            scores.transform_filter("datum.mark")
            .mark_point(size=350, color="black", strokeWidth=1.5, shape="circle")
            .encode(x, y, opacity=alt.Opacity("mark:O", scale=alt.Scale(range=[1]), title=None))
        )
        chance = (
            alt.Chart(alt.InlineData([{"name": "chance", "score": self.chance}]))
            .mark_rule(color="black")
            .encode(
                y, strokeDash=alt.StrokeDash("name:N", scale=alt.Scale(range=[[4, 3]]), title=None)
            )
        )
        drawing = alt.layer(chance, bars, lines, points, ring).properties(width=640, height=400)
        sentence = textwrap.wrap(self.recommendation.sentence, _SENTENCE_WIDTH)
        return finish(drawing, self.title, [self.model, *sentence])


def probe(
    settings: ExtractConfig,
    labelled: Labelled,
    *,
    layers: Sequence[Layer] | None = None,
    poolings: Sequence[str] = POOLINGS,
    folds: int = FOLDS,
    metric: str = "accuracy",
    report: Report = lambda unit, done, total: None,
) -> Probe:
    """Scores a linear classifier on each layer and pooling of labelled texts.

    The simplest pooling comes first: of scores that cannot be distinguished the first of the lowest
    layer is recommended.

    Raises:
      ConfigError: a layer or a pooling is not allowed.
      InputError: there is one class only, a class has fewer examples than there are folds, or the
        vectors would take too much memory.
    """
    check_classes(labelled, folds=folds)
    if repeated := labelled.repeated():
        logger.warning(
            "%s has %d texts more than once; a copy in the training folds makes the score too high",
            labelled.name,
            repeated,
        )
    labels = labelled.labels or []
    model = Model.find(settings)
    vectors = pooled_vectors(model, labelled, model.layers(layers), poolings, report)
    scores = cross_validate(vectors, labels, folds=folds, metric=metric, report=report)
    chance = chance_level(labels, metric)
    choice = recommend(scores, chance, metric)
    return Probe(model.title, labelled.counts(), scores, chance, metric, choice)
