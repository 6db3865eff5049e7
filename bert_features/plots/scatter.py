"""Labelled texts in the plane: PCA, t-SNE or UMAP of their vectors, by layer and pooling.

Dimensions: `N` texts, `D` width of a vector.
"""

import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import altair as alt
import numpy as np

from bert_features.config.extract_config import ExtractConfig
from bert_features.errors import InputError, MissingExtraError
from bert_features.plots.charts import Chart
from bert_features.plots.figures import finish, look, slider
from bert_features.plots.labelled import Labelled
from bert_features.plots.labels import clip
from bert_features.plots.model import Layer, Model, Report, check_names, layer_name
from bert_features.plots.pooled import check_memory, combinations, without_noise

logger = logging.getLogger("bert_features")

POOLINGS = ("mean", "cls")
MAX_TEXTS, MIN_TEXTS = 2000, 5
MAX_CLASSES = 20
_SEED = 0
_PCA_FIRST = 50  # dimensions that t-SNE starts from
_PERPLEXITY = 30
# The name of a method, its function from vectors [N, D] to places [N, 2], a layer and a pooling.
_Panel = tuple[str, Callable[[np.ndarray], np.ndarray], tuple[Layer, str]]


@dataclass(frozen=True)
class Scatter(Chart):
    """Places of texts in the plane.

    Attributes:
      labelled: N texts and their labels.
      columns: the pairs (pooling, method), as `("mean", "PCA")`.
      places: by layer, pooling and method, float [N, 2]; absent where all vectors are equal, and
        for the pooler below the last layer.
    """

    model: str
    labelled: Labelled
    layers: tuple[Layer, ...]
    columns: tuple[tuple[str, str], ...]
    places: Mapping[tuple[Layer, str, str], np.ndarray]

    @property
    def classes(self) -> list[str]:
        """The labels, each once; a single empty one if there are none."""
        return list(self.labelled.counts()) or [""]

    def describe(self) -> tuple[str, str]:
        """What was drawn, in one line; and the title of a page and of the drawing."""
        texts = f"{len(self.labelled.examples)} texts"
        classes = f" of {len(self.classes)} classes" if self.labelled.labels else ""
        return texts + classes, f"{texts} by layer, pooling and projection"

    def data(self) -> dict[str, list[dict[str, Any]]]:
        """The points of all panels; a panel without points has a row that says why."""
        rows: list[dict[str, Any]] = []
        names = [clip(label, 200) for label in self.labelled.labels or [""]]
        for layer, entry in enumerate(self.layers):
            for column, (pooling, method) in enumerate(self.columns):
                panel = {"layer": layer, "column": column}
                places = self.places.get((entry, pooling, method))
                if places is None:
                    late = pooling == "pooler"
                    reason = "last layer only" if late else "all vectors are equal"
                    rows.append({**panel, "absent": reason})
                    continue
                rows += [
                    {**panel, "x": x, "y": y, "number": i, "label": names[i % len(names)]}
                    for i, (x, y) in enumerate(places.astype(float).round(4).tolist())
                ]
        return {"points": rows}

    def draw(self, *, interactive: bool) -> alt.TopLevelMixin:
        """A panel for each layer (rows), pooling and method (columns); a page shows one layer."""
        size = 340 if interactive else 220
        panel = self._panel(size)
        names = [layer_name(layer) for layer in self.layers]
        columns = [f"{pooling}, {method}" for pooling, method in self.columns]
        texts = [example.text_a for example in self.labelled.examples] if interactive else []
        parameters = slider("layer", names, len(names) - 1)
        parameters += [
            alt.param(name=n, value=v) for n, v in (("columns", columns), ("texts", texts))
        ]
        head: dict[str, Any] = {"title": None, "labelFontSize": 13}
        across = alt.Column("column:O", header=alt.Header(labelExpr="columns[datum.value]", **head))
        if interactive:
            panels = panel.transform_filter("datum.layer == layer").facet(column=across)
            title: Any = alt.expr(f"'{self.title}: ' + layers[layer]")
        else:
            down = alt.Row("layer:O", header=alt.Header(labelExpr="layers[datum.value]", **head))
            title = self.title
            panels = panel.facet(row=down, column=across)
        panels = panels.properties(spacing=10).resolve_scale(x="independent", y="independent")
        return finish(panels, title, self.model, *parameters)

    def _panel(self, size: int) -> Any:
        """The points of a panel, or in its middle why there are none."""
        data = alt.Chart()
        legend = (
            alt.Legend(orient="bottom", title=None, columns=4) if self.classes != [""] else None
        )
        colors, shapes = look([clip(name, 200) for name in self.classes])
        scale = alt.Scale(zero=False, nice=False, padding=12)
        hint = [alt.Tooltip("label:N"), alt.Tooltip("text:N")][not self.labelled.labels :]
        points = (
            data.transform_filter("isValid(datum.x)")
            .transform_calculate(text="texts[datum.number]")
            .mark_point(
                filled=True, opacity=0.75, size=50 if len(self.labelled.examples) <= 200 else 15
            )
            .encode(
                alt.X("x:Q", axis=None, scale=scale),
                alt.Y("y:Q", axis=None, scale=scale),
                alt.Color("label:N", scale=colors, legend=legend),
                alt.Shape("label:N", scale=shapes, legend=legend),
                tooltip=hint,
            )
        )
        absence = (
            data.transform_filter("isValid(datum.absent)")
            .mark_text()
            .encode(x=alt.value(size / 2), y=alt.value(size / 2), text="absent:N")
        )
        return alt.layer(points, absence, data=alt.NamedData("points")).properties(
            width=size, height=size * 0.85, view=alt.ViewConfig(stroke="#cccccc")
        )


def scatter_texts(
    settings: ExtractConfig,
    labelled: Labelled,
    *,
    layers: Sequence[Layer] | None = None,
    poolings: Sequence[str] = POOLINGS,
    methods: Sequence[str] = ("pca",),
    report: Report = lambda unit, done, total: None,
) -> Scatter:
    """Computes the places of texts in the plane; the methods are keys of `METHODS`.

    Empty texts are left out, and a log line counts them.

    Raises:
      ConfigError: a layer, a pooling or a method is not allowed.
      InputError: there are too few texts, too many texts or too many classes.
      MissingExtraError: UMAP is wanted, but umap-learn is not installed.
    """
    labelled = _without_empty(labelled)
    _check(labelled, methods)
    model = Model.find(settings)
    entries = model.layers(layers)
    pairs, width = combinations(model, entries, poolings), model.checkpoint.config.hidden_size
    check_memory(labelled.name, len(labelled.examples), pairs, width)
    rows = [each for _, each in model.vectors(labelled.examples, "sequence", pairs, report)]
    vectors = {pair: without_noise(np.stack([each[pair] for each in rows])) for pair in pairs}
    panels = [(*METHODS[method], pair) for pair in vectors for method in methods]
    if "tsne" in methods:
        _tsne_class()  # the limit of threads holds for libraries that are loaded before it
    places = {
        (*pair, name): project(vectors[pair])
        for name, project, pair in _on_one_thread(panels, report)
        if (vectors[pair] != vectors[pair][0]).any()
    }
    columns = tuple((pooling, METHODS[method][0]) for pooling in poolings for method in methods)
    return Scatter(model.title, labelled, entries, columns, places)


def _on_one_thread(panels: Sequence[_Panel], report: Report) -> Iterator[_Panel]:
    """The panels, reported one by one; until the last is done, libraries compute on one thread.

    A library that is loaded meanwhile is not limited.

    For matrices of this size several threads wait for each other more than they compute: t-SNE of
    240 texts takes 0.6 s with one, and 4 s with two where other programs use the cores.
    """
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        for done, panel in enumerate(panels):
            report("panels", done, len(panels))
            yield panel


def _without_empty(labelled: Labelled) -> Labelled:
    """The texts that are not empty: the others are one point, far from these."""
    examples, labels = labelled.examples, labelled.labels
    full = [i for i, e in enumerate(examples) if e.text_a.strip() or (e.text_b or "").strip()]
    if empty := len(examples) - len(full):
        message = "%d of %d texts of %s are empty and left out: all of them have the same vector"
        logger.warning(message, empty, len(examples), labelled.name)
    kept = None if labels is None else [labels[i] for i in full]
    return replace(labelled, examples=[examples[i] for i in full], labels=kept)


def _check(labelled: Labelled, methods: Sequence[str]) -> None:
    check_names("method", methods, METHODS)
    if "umap" in methods:
        _umap_class()
    count, classes = len(labelled.examples), len(labelled.counts())
    if not MIN_TEXTS <= count <= MAX_TEXTS:
        raise InputError(
            f"{labelled.name} has {count:,} texts; a scatter plot shows {MIN_TEXTS} to "
            f"{MAX_TEXTS:,}, pass {'more' if count < MIN_TEXTS else 'fewer'}"
        )
    if classes > MAX_CLASSES:
        raise InputError(
            f"{labelled.name} has {classes} different labels; a scatter plot shows at most "
            f"{MAX_CLASSES}, pass another label_field"
        )


def _pca(vectors: np.ndarray, dimensions: int = 2) -> np.ndarray:
    """The first principal components, float [N, dimensions]; their largest weights are positive.

    Not by scikit-learn, whose import takes longer than the PCA of all panels.
    """
    centred = vectors - vectors.mean(axis=0)
    axes = np.linalg.svd(centred, full_matrices=False)[2][:dimensions]
    largest = np.take_along_axis(axes, np.abs(axes).argmax(axis=1)[:, None], axis=1)
    return np.asarray(centred @ (axes * np.sign(largest)).T)


def _tsne(vectors: np.ndarray) -> np.ndarray:
    perplexity = min(_PERPLEXITY, (len(vectors) - 1) / 3)
    tsne = _tsne_class()(2, perplexity=perplexity, init="pca", random_state=_SEED)
    return tsne.fit_transform(_pca(vectors, _PCA_FIRST))  # type: ignore[no-any-return]


def _tsne_class() -> Any:
    from sklearn.manifold import TSNE

    return TSNE


def _umap(vectors: np.ndarray) -> np.ndarray:
    neighbors = min(15, len(vectors) - 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that a seed makes it use one thread
        umap = _umap_class()(n_neighbors=neighbors, random_state=_SEED)
        return umap.fit_transform(vectors)  # type: ignore[no-any-return]


def _umap_class() -> Any:
    try:
        from umap import UMAP
    except ImportError as error:
        raise MissingExtraError("umap-learn", install="umap-learn") from error
    return UMAP


# Name -> its name in titles, and the function from vectors [N, D] to places [N, 2].
METHODS: dict[str, tuple[str, Callable[[np.ndarray], np.ndarray]]] = {
    "pca": ("PCA", _pca),
    "tsne": ("t-SNE", _tsne),
    "umap": ("UMAP", _umap),
}
