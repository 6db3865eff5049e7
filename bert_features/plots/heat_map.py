"""Heat maps: matrices, such as cosines, one for each layer, as coloured cells with labels."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import numpy as np

from bert_features.plots.figures import slider
from bert_features.plots.model import Layer, layer_name

# More rows would not be legible at the size of a page.
MAX_ROWS = 80
# Cells that have room for their value.
_MAX_ANNOTATED = 14
_CELL, _LEAST_CELL, _SIDE = 40, 16, 860


@dataclass(frozen=True)
class HeatMap:
    """Cosines, or other values, of R rows and C columns at K layers, with labels.

    Attributes:
      row_hints: R texts under the pointer.
      column_hints: C texts under the pointer.
      cosines: by layer, K matrices, float32 [R, C].
      layer: the layer that is shown first.
      borders: positions at which a line divides rows and columns.
      titles: titles of the axes of rows and columns, of one or several lines.
      value: the name of the values.
      scale: the colours of the values; by default from the lowest cosine to 1.
      shown: an expression for the number of the matrix that is shown.
    """

    rows: Sequence[str]
    columns: Sequence[str]
    row_hints: Sequence[str]
    column_hints: Sequence[str]
    cosines: Mapping[Layer, np.ndarray]
    layer: Layer
    borders: Sequence[int] = ()
    titles: tuple[str, str] = ("", "")
    value: str = "cosine"
    scale: alt.Scale | None = None
    shown: str = "layer"

    def data(self) -> list[dict[str, Any]]:
        """The cells: the numbers of row and column, and the cosine at each layer."""
        cosines = np.stack(list(self.cosines.values()), axis=-1).astype(float).round(4)
        return [
            {"row": i, "column": j, "cosines": cosines[i, j].tolist()}
            for i in range(len(self.rows))
            for j in range(len(self.columns))
        ]

    def parameters(self) -> list[alt.Parameter]:
        """The layer, the labels and the hints, as parameters of the whole chart."""
        names = [layer_name(layer) for layer in self.cosines]
        start = list(self.cosines).index(self.layer)
        return [*slider("layer", names, start), *self.label_parameters()]

    def label_parameters(self) -> list[alt.Parameter]:
        """The labels and the hints, as parameters of the whole chart."""
        values = {
            "rows": self.rows,
            "columns": self.columns,
            "rowHints": self.row_hints,
            "columnHints": self.column_hints,
        }
        return [alt.param(name=n, value=list(texts)) for n, texts in values.items()]

    @property
    def _cell(self) -> int:
        return max(_LEAST_CELL, min(_CELL, _SIDE // max(len(self.rows), len(self.columns))))

    def size(self) -> tuple[int, int]:
        """Width and height of all cells."""
        return self._cell * len(self.columns), self._cell * len(self.rows)

    def draw(self, **properties: Any) -> Any:
        """The cells of the data set `cells` at the layer of the parameter `layer`."""
        cell = self._cell
        size = 12 if cell > 20 else 10
        axis: dict[str, Any] = {"domain": False, "ticks": False, "titleLimit": _SIDE}
        axis |= {"labelFontSize": size, "labelLimit": 400, "labelOverlap": False}
        row_title, column_title = (title.split("\n") if title else None for title in self.titles)
        angle = 0 if max(map(len, self.columns)) <= 2 else -90
        across = alt.Axis(
            labelExpr="columns[datum.value]", labelAngle=angle, title=column_title, **axis
        )
        down = alt.Axis(labelExpr="rows[datum.value]", title=row_title, **axis)
        hint = [alt.Tooltip("a:N", title="row"), alt.Tooltip("b:N", title="column")]
        hint += [alt.Tooltip("cosine:Q", title=self.value, format=".3f")]
        cells = (
            alt.Chart(alt.NamedData("cells"))
            .transform_calculate(
                cosine=f"datum.cosines[{self.shown}]",
                a="rowHints[datum.row]",
                b="columnHints[datum.column]",
            )
            .encode(alt.X("column:O", axis=across), alt.Y("row:O", axis=down), tooltip=hint)
        )
        # The range of the colours, the same for all layers.
        lowest = min(float(matrix.min()) for matrix in self.cosines.values())
        low, high = min(0.9, math.floor(lowest * 10) / 10), 1.0
        width, height = self.size()
        color = alt.Color(
            "cosine:Q",
            scale=self.scale or alt.Scale(scheme="viridis", domain=[low, high]),
            legend=alt.Legend(title=self.value, gradientLength=max(height, 120)),
        )
        layers: list[Any] = [cells.mark_rect().encode(color)]
        if max(len(self.rows), len(self.columns)) <= _MAX_ANNOTATED:
            # Dark cells of the colours are cells of low values.
            ink = alt.when(f"datum.cosine > {(low + high) / 2}").then(alt.value("black"))
            layers.append(
                cells.mark_text(fontSize=10).encode(
                    text=alt.Text("cosine:Q", format=".2f"), color=ink.otherwise(alt.value("white"))
                )
            )
        for border in self.borders:
            line = alt.Chart(alt.InlineData([{}])).mark_rule(color="white", strokeWidth=3)
            layers += [line.encode(**{axis: alt.value(border * cell)}) for axis in "xy"]
        return alt.layer(*layers).properties(width=width, height=height, **properties)
