"""HeatMap: a matrix of cosines as coloured cells with labels."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

# More rows would not be legible at the size of a page.
MAX_ROWS = 80
# Cells that have room for their value.
_MAX_ANNOTATED = 14
_CELL = 0.42  # inches; smaller where there are many
_LEAST_CELL = 0.17
_CHARACTER = 0.085  # inches, at the font size of labels


def color_range(matrices: Iterable[np.ndarray]) -> tuple[float, float]:
    """The lowest and the highest value of the colours, the same for all layers."""
    lowest = min(float(matrix.min()) for matrix in matrices)
    return min(0.9, math.floor(lowest * 10) / 10), 1.0


@dataclass(frozen=True)
class HeatMap:
    """A matrix with labels.

    Attributes:
      rows: R labels.
      columns: C labels.
      values: float32 [R, C].
      borders: positions at which a line divides rows and columns.
    """

    rows: Sequence[str]
    columns: Sequence[str]
    values: np.ndarray
    borders: Sequence[int] = ()

    @property
    def _cell(self) -> float:
        return max(_LEAST_CELL, min(_CELL, 9 / max(len(self.rows), len(self.columns))))

    def size(self) -> tuple[float, float]:
        """Width and height in inches, labels and colour bar included."""
        below = max(map(len, self.columns)) * _CHARACTER
        beside = max(map(len, self.rows)) * _CHARACTER
        height, width = self.values.shape
        return width * self._cell + beside + 1.3, max(height * self._cell, 1.5) + below + 0.3

    def draw(self, axes: Any, colors: tuple[float, float]) -> None:
        """Draws the cells, their labels and a colour bar."""
        from bert_features.plots.figures import COLOR_MAP

        image = axes.imshow(self.values, cmap=COLOR_MAP, vmin=colors[0], vmax=colors[1])
        size = 9 if self._cell > 0.2 else 7
        upright = all(len(column) <= 2 for column in self.columns)
        axes.set_xticks(
            range(len(self.columns)), self.columns, rotation=0 if upright else 90, fontsize=size
        )
        axes.set_yticks(range(len(self.rows)), self.rows, fontsize=size)
        axes.tick_params(length=0)
        for border in self.borders:
            axes.axhline(border - 0.5, color="white", linewidth=2)
            axes.axvline(border - 0.5, color="white", linewidth=2)
        axes.spines[:].set_visible(False)
        if max(self.values.shape) <= _MAX_ANNOTATED:
            self._annotate(axes, colors)
        bar = axes.figure.colorbar(image, ax=axes, fraction=0.05, pad=0.03, aspect=25)
        bar.set_label("cosine")
        bar.outline.set_visible(False)

    def _annotate(self, axes: Any, colors: tuple[float, float]) -> None:
        middle = sum(colors) / 2
        for (row, column), value in np.ndenumerate(self.values):
            # Dark cells of the colour map are those of low values.
            color = "black" if value > middle else "white"
            text = f"{value:.2f}".replace("-0.00", "0.00")
            axes.text(column, row, text, ha="center", va="center", fontsize=7, color=color)
