"""Interactive reports: one HTML file that needs no server and loads nothing.

The file holds the values as JSON and a script that draws them. Texts of users come into the page as
data alone: the script puts them into text nodes, never into HTML.
"""

import html
import importlib.resources
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bert_features.plots.heat_map import color_range

if TYPE_CHECKING:
    import numpy as np

_DIGITS = 4


def render(report: Mapping[str, Any]) -> str:
    """The page of a report.

    Args:
      report: `title`, `model` and `charts`; if need be `notes` (lines of text), `frames` (the names
        of what a slider goes through, usually layers), `start` (the number of the first frame) and
        `table` (rows of text, the first one the head).
    """
    template = importlib.resources.files(__package__).joinpath("report.html")
    data = json.dumps(report, ensure_ascii=False, allow_nan=False)
    # In a script element these could end it, or begin a comment. U+2028 ends a line in old ones.
    for character in "<>&\u2028\u2029":
        data = data.replace(character, f"\\u{ord(character):04x}")
    title = html.escape(f"{report['title']}: {report['model']}")
    page = template.read_text(encoding="utf-8")
    # The data first: a title may hold the other mark.
    return page.replace("{{data}}", _encodable(data), 1).replace("{{title}}", title, 1)


def _encodable(text: str) -> str:
    """The text with U+FFFD for halves of surrogate pairs, which UTF-8 cannot hold."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def heat_map_chart(
    title: str,
    rows: Sequence[str],
    columns: Sequence[str],
    matrices: "Sequence[np.ndarray]",
) -> dict[str, Any]:
    """A heat map with one matrix [rows, columns] for each frame."""
    low, high = color_range(matrices)
    return {
        "kind": "heatMap",
        "title": title,
        "rows": list(rows),
        "columns": list(columns),
        "frames": [_rounded(matrix) for matrix in matrices],
        "range": [low, high],
    }


def line_chart(
    title: str,
    x: Sequence[str],
    series: Mapping[str, Sequence[Any]],
    *,
    y_title: str,
    reference: tuple[str, float] | None = None,
) -> dict[str, Any]:
    """Lines with error bars over the same x values, all frames in one.

    Args:
      title: the title.
      x: the names on the x axis.
      series: name -> the values, the lower and the upper ends of the bars; each one per x value,
        None where there is none.
      y_title: the name of the y axis.
      reference: name and height of a dashed line.
    """
    lines = [
        {"name": name, **dict(zip(("y", "low", "high"), map(_rounded, values), strict=True))}
        for name, values in series.items()
    ]
    chart: dict[str, Any] = {
        "kind": "lines",
        "title": title,
        "x": list(x),
        "yTitle": y_title,
        "series": lines,
    }
    if reference is not None:
        chart["reference"] = {"name": reference[0], "y": round(reference[1], _DIGITS)}
    return chart


def bar_chart(
    title: str,
    edges: "np.ndarray",
    counts: "Sequence[np.ndarray]",
    notes: Sequence[str],
    x_title: str,
    y_title: str,
) -> dict[str, Any]:
    """A histogram with one row of counts and a note for each frame."""
    return {
        "kind": "bars",
        "title": title,
        "edges": _rounded(edges),
        "frames": [of_frame.tolist() for of_frame in counts],
        "notes": list(notes),
        "xTitle": x_title,
        "yTitle": y_title,
    }


def scatter_chart(
    title: str,
    frames: "Sequence[np.ndarray | None]",
    classes: Sequence[int],
    names: Sequence[str],
    texts: Sequence[str],
    *,
    absent: str,
) -> dict[str, Any]:
    """Points with their texts.

    Args:
      title: the title.
      frames: the places [N, 2] in each frame, None for a frame without.
      classes: the number of the class of each point.
      names: the classes.
      texts: the text of each point.
      absent: what stands in a frame without places.
    """
    return {
        "kind": "scatter",
        "title": title,
        "frames": [None if places is None else _rounded(places) for places in frames],
        "classes": list(classes),
        "names": list(names),
        "texts": list(texts),
        "absent": absent,
    }


def _rounded(values: Iterable[Any]) -> list[Any]:
    """Numbers with the digits that can be seen, as lists; None stays."""
    return [
        None
        if value is None
        else _rounded(value)
        if isinstance(value, Iterable)
        else round(float(value), _DIGITS)
        for value in values
    ]
