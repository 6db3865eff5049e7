"""A probe: what a linear classifier reads from each layer, and how much of it the layer knows."""

import importlib.metadata
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np

from bert_features.plots.charts import Chart
from bert_features.plots.figures import finish, layer_axis, look
from bert_features.plots.model import Layer, Report, layer_place
from bert_features.probe.advice import Advice, advise
from bert_features.probe.classifier import SEED
from bert_features.probe.examples import Origin, gather
from bert_features.probe.scores import METRICS, Folds, Scores, score_all, standard_error
from bert_features.probe.settings import FOLDS, MAX_EXAMPLES

_SENTENCE_WIDTH = 88  # characters on a line below the picture
_WIDTH = 640
_MIX = "mix"
_NUMBERS = ".3f"
_PACKAGES = ("scikit-learn", "scipy")


@dataclass(frozen=True)
class Probe(Chart):
    """Scores by layer and pooling, with their controls and baselines.

    Attributes:
      subject: the file, the field of its labels and the model, for a reader.
      facts: where the examples come from, as JSON holds it.
      classes: the number of examples by label.
      about: how many examples there are, and of how many.
      results: the scores.
      folds: number of folds.
    """

    subject: str
    facts: Mapping[str, Any]
    classes: Mapping[str, int]
    about: str
    results: Scores
    folds: int
    advice: Advice

    def describe(self) -> tuple[str, str]:
        """What was drawn, in one line; and the title of a page and of the drawing."""
        about = f"{self.about}, {len(self.classes)} labels, {self.folds} folds"
        return (
            f"{len(self.results.scores)} scores of {about}",
            f"A linear classifier on each layer: {about}",
        )

    def table(self) -> list[list[str]]:
        """A row for each layer and pooling, the mix and each baseline, after a head."""
        head = ["layer", "pooling"]
        head += [each for name in self._shown for each in (METRICS[name], "std. error")]
        rows = [[*head, "control", "selectivity", "compression"]]
        for s in self.results.scores:
            more = [s.control[self._metric].mean(), s.selectivity.mean(), s.code.compression]
            rows.append([str(s.layer), s.pooling, *self._cells(s.probe), *map(_written, more)])
        if (mix := self.results.mix) is not None:
            rows.append([_MIX, mix.pooling, *self._cells(mix.probe), "", "", ""])
        for baseline, folds in self.results.baselines.items():
            rows.append([baseline, "", *self._cells(folds), "", "", ""])
        return rows

    def _cells(self, folds: Folds) -> list[str]:
        chosen = [folds[name] for name in self._shown]
        return [_written(f(each)) for each in chosen for f in (np.mean, standard_error)]

    @property
    def _shown(self) -> tuple[str, str]:
        """The metric, and another beside it."""
        return self._metric, "accuracy" if self._metric == "macro_f1" else "macro_f1"

    def data(self) -> dict[str, list[dict[str, Any]]]:
        """The scores with their standard errors, the compressions and the weights of the mix."""
        return {
            "scores": list(self._points()),
            "baselines": [
                {"name": name, "score": folds[self._metric].mean()}
                for name, folds in self.results.baselines.items()
            ],
            "codes": [
                {**self._where(s.layer, s.pooling), "compression": s.code.compression}
                for s in self.results.scores
            ],
            "frequencies": [
                {
                    "name": "label frequencies",
                    "compression": self.results.scores[0].code.compression_by_frequencies,
                }
            ],
            "weights": [] if self.results.mix is None else list(self._weights()),
        }

    def _points(self) -> Iterator[dict[str, Any]]:
        choice = self.advice.choice
        for s in self.results.scores:
            for what, folds in (("labels", s.probe), ("control", s.control)):
                where = self._where(s.layer, s.pooling)
                mark = "recommended" if s is choice and what == "labels" else ""
                yield {**where, "what": what, **self._score(folds), "mark": mark}
        if (mix := self.results.mix) is not None:
            where = self._where(_MIX, mix.pooling)
            yield {**where, "what": "labels", **self._score(mix.probe), "mark": ""}

    def _score(self, folds: Folds) -> dict[str, float]:
        scores = folds[self._metric]
        return {"score": scores.mean(), "error": standard_error(scores)}

    def _where(self, layer: Layer, pooling: str) -> dict[str, Any]:
        """The place of a layer; those of poolings differ, lest error bars cover each other."""
        poolings = self._poolings
        shift = (poolings.index(pooling) - (len(poolings) - 1) / 2) * 0.1
        place = max(self._places) + 1 if layer == _MIX else layer_place(layer)
        return {"place": place + shift, "layer": str(layer), "pooling": pooling}

    def _weights(self) -> Iterator[dict[str, Any]]:
        mix = self.results.mix
        assert mix is not None
        for layer, weights in zip(mix.layers, mix.weights.T, strict=True):
            error = standard_error(weights) if len(weights) > 1 else 0.0  # of one classifier none
            where = {"place": layer_place(layer), "layer": str(layer)}
            yield {**where, "weight": weights.mean(), "error": error}

    @property
    def _metric(self) -> str:
        return self.results.scores[0].metric

    @property
    def _poolings(self) -> list[str]:
        return list(dict.fromkeys(score.pooling for score in self.results.scores))

    @property
    def _places(self) -> list[int]:
        return sorted({layer_place(score.layer) for score in self.results.scores})

    def draw(self, *, interactive: bool) -> alt.TopLevelMixin:
        """Scores above, compressions below them, and the weights of the mix at the bottom."""
        panels = [self._draw_scores(), self._draw_codes()]
        if self.results.mix is not None:
            panels.append(self._draw_weights())
        sentence = textwrap.wrap(self.advice.sentence, _SENTENCE_WIDTH)
        drawing = alt.vconcat(*panels, spacing=18).resolve_scale(color="shared", shape="shared")
        return finish(drawing, self.title, [self.subject, *sentence])

    def _x(self, title: str | None = None) -> alt.X:
        places = self._places
        mix = None if self.results.mix is None else places[-1] + 1
        axis = layer_axis(places if mix is None else [*places, mix], title=title, mix=mix)
        ends = [places[0] - 0.4, (mix or places[-1]) + 0.4]
        return alt.X("place:Q", axis=axis, scale=alt.Scale(domain=ends, nice=False))

    def _look(self) -> tuple[alt.Color, alt.Shape]:
        """The colour and the shape of each pooling."""
        colors, shapes = look(self._poolings)
        color = alt.Color("pooling:N", scale=colors, title=None)
        return color, alt.Shape("pooling:N", scale=shapes, title=None)

    def _draw_scores(self) -> Any:
        x, y = self._x(), alt.Y("score:Q", scale=alt.Scale(zero=False))
        name = METRICS[self._metric]
        color, shape = self._look()
        solid_and_dashed = alt.Scale(domain=["labels", "control"], range=[[1, 0], [5, 3]])
        dash = alt.StrokeDash("what:N", scale=solid_and_dashed, title=None)
        scores = alt.Chart(alt.NamedData("scores"))
        hint: list[Any] = ["what:N", "pooling:N", "layer:N"]
        hint += [alt.Tooltip(f"{field}:Q", format=_NUMBERS) for field in ("score", "error")]
        bars = scores.mark_errorbar(ticks=True).encode(
            x,
            alt.Y("score:Q", title=f"{name} ± standard error"),
            alt.YError("error:Q"),
            color,
            detail="what:N",
        )
        lines = (
            scores.transform_filter(f"datum.layer != '{_MIX}'")
            .mark_line(strokeWidth=2)
            .encode(x, y, color, dash)
        )
        points = [
            scores.transform_filter(f"datum.what == '{what}'")
            .mark_point(size=60, filled=what == "labels", fill=fill, opacity=1)
            .encode(x, y, color, shape, tooltip=hint)
            for what, fill in (("labels", alt.Undefined), ("control", "white"))
        ]
        ring = (
            scores.transform_filter("datum.mark")
            .mark_point(size=350, color="black", strokeWidth=1.5, shape="circle")
            .encode(x, y, opacity=alt.Opacity("mark:O", scale=alt.Scale(range=[1]), title=None))
        )
        drawn = [*_rules("baselines", y), bars, lines, *points]
        if self.advice.choice is not None:  # a legend of nothing would have no size
            drawn.append(ring)
        return alt.layer(*drawn).properties(width=_WIDTH, height=320)

    def _draw_codes(self) -> Any:
        x = self._x("layer" if self.results.mix is None else None)
        y = alt.Y("compression:Q", title="compression", scale=alt.Scale(zero=False))
        color, shape = self._look()
        codes = alt.Chart(alt.NamedData("codes"))
        hint = ["pooling:N", "layer:N", alt.Tooltip("compression:Q", format=_NUMBERS)]
        lines = codes.mark_line(strokeWidth=2).encode(x, y, color)
        points = codes.mark_point(size=60, filled=True, opacity=1).encode(
            x, y, color, shape, tooltip=hint
        )
        drawn = [*_rules("frequencies", y), lines, points]
        return alt.layer(*drawn).properties(width=_WIDTH, height=120)

    def _draw_weights(self) -> Any:
        mix = self.results.mix
        assert mix is not None
        x, y = self._x("layer"), alt.Y("weight:Q", title="weight in the mix")
        weights = alt.Chart(alt.NamedData("weights"))
        hint = ["layer:N", *(alt.Tooltip(f"{n}:Q", format=_NUMBERS) for n in ("weight", "error"))]
        # Not bars, for which the axis would be padded.
        bars = weights.mark_rule(strokeWidth=24, color="#9a9a9a").encode(
            x, y, y2=alt.datum(0), tooltip=hint
        )
        bar = weights.mark_errorbar(ticks=True, color="black")
        errors = bar.encode(x, y, alt.YError("error:Q"))
        return alt.layer(bars, errors).properties(width=_WIDTH, height=90)

    def report(self) -> dict[str, Any]:
        """Every number, with the settings, the seed and the versions, as JSON holds them."""
        mix, choice = self.results.mix, self.advice.choice
        layers = [
            {
                "layer": s.layer,
                "pooling": s.pooling,
                "scores": _folds(s.probe),
                "control": _folds(s.control),
                "selectivity": _summary(s.selectivity),
                "code": {
                    "examples": s.code.ends.tolist(),
                    "bits": s.code.bits.tolist(),
                    "bits_by_frequencies": s.code.frequencies.tolist(),
                    "compression": s.code.compression,
                    "compression_by_frequencies": s.code.compression_by_frequencies,
                },
            }
            for s in self.results.scores
        ]
        return {
            **self.facts,
            "examples": self.about,
            "labels": dict(self.classes),
            "folds": self.folds,
            "metric": self._metric,
            "seed": SEED,
            "classifier_versions": {name: importlib.metadata.version(name) for name in _PACKAGES},
            "layers": layers,
            "baselines": {name: _folds(folds) for name, folds in self.results.baselines.items()},
            "mix": mix
            and {
                "pooling": mix.pooling,
                "scores": _folds(mix.probe),
                "weights": {
                    str(layer): _summary(mix.weights[:, i]) for i, layer in enumerate(mix.layers)
                },
                "expected_layer": _summary(mix.expected_layers),
            },
            "advice": {
                "layer": choice and choice.layer,
                "pooling": choice and choice.pooling,
                "sentence": self.advice.sentence,
            },
        }


def _rules(data: str, y: alt.Y) -> list[Any]:
    """Dashed lines with their names at the left, such as baselines."""
    rules = alt.Chart(alt.NamedData(data))
    text = rules.mark_text(align="left", baseline="bottom", dx=4, fontSize=11)
    return [
        rules.mark_rule(color="black", strokeDash=[2, 3]).encode(y),
        text.encode(y, x=alt.value(0), text="name:N"),
    ]


def _written(value: Any) -> str:
    return f"{value:.3f}"


def _summary(folds: np.ndarray) -> dict[str, Any]:
    error = standard_error(folds) if len(folds) > 1 else None
    return {"mean": float(folds.mean()), "error": error, "folds": folds.tolist()}


def _folds(folds: Folds) -> dict[str, Any]:
    return {name: _summary(values) for name, values in folds.items()}


def probe(
    origin: Origin,
    test: Origin | None = None,
    *,
    folds: int = FOLDS,
    metric: str = "accuracy",
    max_examples: int = MAX_EXAMPLES,
    report: Report = lambda unit, done, total: None,
) -> Probe:
    """Scores a linear classifier on each layer and pooling of labelled texts, words or spans.

    The simplest pooling comes first: of scores that cannot be distinguished the first of the lowest
    layer is recommended.

    Args:
      origin: the examples; by default they are scored by cross-validation.
      test: other examples to score, of the same level, layers and poolings.
      folds: folds of the cross-validation, or parts of the test examples.
      metric: the score that is shown, one of `METRICS`.
      max_examples: the most examples of each of the two; whole texts are drawn.
      report: takes what is counted, how many are done, and of how many.

    Raises:
      InputError: see `examples.gather`.
    """
    examples = gather(origin, test, most=max_examples, folds=folds, report=report)
    results = score_all(examples, folds=folds, metric=metric, report=report)
    counts = np.bincount(examples.labels, minlength=len(examples.classes)).tolist()
    classes = dict(zip(examples.classes, counts, strict=True))
    labels = "" if origin.field is None else f", {origin.field}"
    facts = {
        "file": origin.name,
        "test": None if test is None else test.name,
        "model": origin.title,
        "max_examples": max_examples,
        **origin.facts,
    }
    subject = f"{Path(origin.name).name}{labels}: {origin.title}"
    return Probe(subject, facts, classes, examples.about, results, folds, advise(results))
