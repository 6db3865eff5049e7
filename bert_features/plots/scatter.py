"""Labelled texts in the plane: PCA, t-SNE or UMAP of their vectors, by layer and pooling.

Dimensions: `N` texts, `D` width of a vector.
"""

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bert_features.config.extract_config import ExtractConfig
from bert_features.config.settings import shown
from bert_features.errors import ConfigError, InputError, MissingExtraError
from bert_features.plots.labelled import Labelled
from bert_features.plots.model import Layer, Model, layer_name
from bert_features.plots.pooled import pooled_vectors

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.figure import Figure

    from bert_features.plots.labels import Labels

POOLINGS = ("mean", "cls")
MAX_TEXTS, MIN_TEXTS = 2000, 5
MAX_CLASSES = 20
_SEED = 0
_PCA_FIRST = 50  # dimensions that t-SNE starts from
_PERPLEXITY = 30
_MOST_EXACT = 500
_PANEL = 2.5  # inches
_LEGEND_COLUMN = 2.3  # inches


@dataclass(frozen=True)
class Scatter:
    """Places of texts in the plane.

    Attributes:
      model: the title of the model.
      labelled: N texts and their labels.
      layers: the layers.
      columns: the pairs (pooling, method), as `("mean", "PCA")`.
      places: by layer, pooling and method, float [N, 2]; absent where all vectors are equal, and
        for the pooler below the last layer.
    """

    model: str
    labelled: Labelled
    layers: tuple[Layer, ...]
    columns: tuple[tuple[str, str], ...]
    places: "Mapping[tuple[Layer, str, str], np.ndarray]"

    @property
    def classes(self) -> list[str]:
        """The labels, each once; a single empty one if there are none."""
        return list(self.labelled.counts()) or [""]

    @property
    def caption(self) -> str:
        """What was drawn, in one line."""
        classes = f" of {len(self.classes)} classes" if self.labelled.labels else ""
        return f"{len(self.labelled.examples)} texts{classes}"

    def texts(self) -> Iterable[str]:
        """The texts that are drawn."""
        return self.classes

    def of_class(self) -> list[int]:
        """The number of the class of each text."""
        numbers = {label: i for i, label in enumerate(self.classes)}
        return [numbers[label] for label in self.labelled.labels or [""] * len(self._texts)]

    @property
    def _texts(self) -> list[str]:
        return [example.text_a for example in self.labelled.examples]

    def draw(self, labels: "Labels") -> "Figure":
        """A panel for each layer (rows), pooling and method (columns)."""
        from bert_features.plots.figures import new_figure, put_title

        rows, columns = len(self.layers), len(self.columns)
        width = max(_PANEL * columns + 0.4, 5.0)
        across = min(len(self.classes), max(1, int(width / _LEGEND_COLUMN)))
        legend = 0.22 * -(-len(self.classes) // across) + 0.2
        figure = new_figure(width, _PANEL * 0.85 * rows + legend + 0.9)
        axes = figure.subplots(rows, columns, squeeze=False)
        for row, layer in enumerate(self.layers):
            for column, (pooling, method) in enumerate(self.columns):
                self._draw_panel(axes[row][column], (layer, pooling, method))
            axes[row][0].set_ylabel(layer_name(layer))
        for column, (pooling, method) in enumerate(self.columns):
            axes[0][column].set_title(f"{pooling}, {method}")
        names = labels.clip_all(self.classes, 24)
        if any(names):
            handles = _legend_handles(len(names))
            figure.legend(handles, names, loc="outside lower center", ncols=across)
        title = f"{len(self._texts)} texts by layer, pooling and projection"
        put_title(figure, title, self.model)
        return figure

    def _draw_panel(self, axes: Any, key: tuple[Layer, str, str]) -> None:
        import numpy as np

        axes.set_xticks(())
        axes.set_yticks(())
        axes.spines[:].set_visible(True)
        axes.spines[:].set_color("#cccccc")
        if key not in self.places:
            axes.text(0.5, 0.5, _absence(key[1]), ha="center", va="center", fontsize=8)
            axes.set(xlim=(0, 1), ylim=(0, 1))
            return
        places, numbers = self.places[key], np.array(self.of_class())
        size = 22 if len(places) <= 200 else 8
        for i in range(len(self.classes)):
            chosen = places[numbers == i]
            axes.scatter(*chosen.T, s=size, alpha=0.75, linewidths=0, **_look(i))
        axes.margins(0.08)

    def report(self) -> dict[str, Any]:
        """The panels of all layers, for `report.render`."""
        from bert_features.plots.report import scatter_chart

        charts = [
            scatter_chart(
                f"{pooling}, {method}",
                [self.places.get((layer, pooling, method)) for layer in self.layers],
                self.of_class(),
                self.classes,
                self._texts,
                absent=_absence(pooling),
            )
            for pooling, method in self.columns
        ]
        return {
            "title": f"{len(self._texts)} texts by layer, pooling and projection",
            "model": self.model,
            "frames": [layer_name(layer) for layer in self.layers],
            "start": len(self.layers) - 1,
            "charts": charts,
        }


def _absence(pooling: str) -> str:
    """Why there are no places, in a few words."""
    return "last layer only" if pooling == "pooler" else "all vectors are equal"


def _look(number: int) -> dict[str, Any]:
    from bert_features.plots.figures import COLORS, MARKERS

    return {"color": COLORS[number % len(COLORS)], "marker": MARKERS[number % len(MARKERS)]}


def _legend_handles(count: int) -> list[Any]:
    from matplotlib.lines import Line2D

    return [Line2D([], [], linestyle="none", markersize=6, **_look(i)) for i in range(count)]


def scatter_texts(
    settings: ExtractConfig,
    labelled: Labelled,
    *,
    layers: Sequence[Layer] | None = None,
    poolings: Sequence[str] = POOLINGS,
    methods: Sequence[str] = ("pca", "tsne"),
) -> Scatter:
    """Computes the places of texts in the plane.

    Args:
      settings: the model and where it runs.
      labelled: the texts and their labels.
      layers: the layers; by default all.
      poolings: the poolings.
      methods: `pca`, `tsne`, `umap`.

    Raises:
      ConfigError: a layer, a pooling or a method is not allowed.
      InputError: there are too few texts, too many texts or too many classes.
      MissingExtraError: UMAP is wanted, but umap-learn is not installed.
    """
    _check(labelled, methods)
    model = Model.find(settings)
    entries = model.layers(layers)
    vectors = pooled_vectors(model, labelled, entries, poolings)
    places = {
        (layer, pooling, METHODS[method][0]): METHODS[method][1](values)
        for (layer, pooling), values in vectors.items()
        for method in methods
        if (values != values[0]).any()
    }
    columns = tuple((pooling, METHODS[method][0]) for pooling in poolings for method in methods)
    return Scatter(model.title, labelled, entries, columns, places)


def _check(labelled: Labelled, methods: Sequence[str]) -> None:
    for place, method in enumerate(methods):
        if method not in METHODS or method in methods[:place]:
            raise ConfigError.naming(
                "{method} is {received}; allowed: each of {allowed} once",
                received=shown(",".join(methods)),
                allowed=", ".join(METHODS),
            )
    if "umap" in methods:
        _umap_class()
    count, classes = len(labelled.examples), len(labelled.counts())
    if not MIN_TEXTS <= count <= MAX_TEXTS:
        raise InputError(
            f"{labelled.name} has {count:,} texts; a scatter plot shows {MIN_TEXTS} to "
            f"{MAX_TEXTS:,}, pass {'more' if count < MIN_TEXTS else 'fewer'}"
        )
    if classes > MAX_CLASSES:
        raise InputError.naming(
            "{name} has {classes} different labels; a scatter plot shows at most {most}, pass "
            "another {label_field}",
            name=labelled.name,
            classes=classes,
            most=MAX_CLASSES,
        )


def _pca(vectors: "np.ndarray") -> "np.ndarray":
    """The first two principal components: float [N, 2]."""
    from sklearn.decomposition import PCA

    return PCA(2, svd_solver="full").fit_transform(vectors)  # type: ignore[no-any-return]


def _tsne(vectors: "np.ndarray") -> "np.ndarray":
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE

    dimensions = min(_PCA_FIRST, *vectors.shape)
    reduced = PCA(dimensions, svd_solver="full").fit_transform(vectors)
    perplexity = min(_PERPLEXITY, (len(vectors) - 1) / 3)
    # The approximation pays for many texts only.
    method = "exact" if len(vectors) <= _MOST_EXACT else "barnes_hut"
    tsne = TSNE(2, perplexity=perplexity, init="pca", random_state=_SEED, method=method)
    return tsne.fit_transform(reduced)  # type: ignore[no-any-return]


def _umap(vectors: "np.ndarray") -> "np.ndarray":
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
METHODS: "dict[str, tuple[str, Callable[[np.ndarray], np.ndarray]]]" = {
    "pca": ("PCA", _pca),
    "tsne": ("t-SNE", _tsne),
    "umap": ("UMAP", _umap),
}
