"""Charts as files, from one Vega-Lite specification: a picture (.png, .svg) or a page (.html)."""

import html
import importlib.resources
import importlib.util
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bert_features.errors import MissingExtraError, OutputError
from bert_features.files import Role, check_apart, check_target, is_url, real_target, replacing
from bert_features.plots.labels import warn_of_boxes

if TYPE_CHECKING:
    import altair as alt

FIGURE_SUFFIXES = (".png", ".svg", ".html")
# The packages of the extra `plot`: the name to import, the name to install.
_PACKAGES = {"altair": "altair", "vl_convert": "vl-convert-python", "sklearn": "scikit-learn"}
_DPI = 150
_UNITS_PER_INCH = 96  # a unit of a specification is a pixel of CSS


class Chart(ABC):
    """Something to draw, computed already."""

    @abstractmethod
    def describe(self) -> tuple[str, str]:
        """What it shows, in one line; and the title of a page."""

    @property
    def caption(self) -> str:
        """What it shows, in one line."""
        return self.describe()[0]

    @property
    def title(self) -> str:
        """The title of a page."""
        return self.describe()[1]

    @abstractmethod
    def data(self) -> "dict[str, list[dict[str, Any]]]":
        """The rows of each data set that the drawing names."""

    @abstractmethod
    def draw(self, *, interactive: bool) -> "alt.TopLevelMixin":
        """The drawing for a picture, or for a page, where a slider goes through the layers."""

    def table(self) -> list[list[str]]:
        """Rows of a table below the drawing of a page, the head first; empty for none."""
        return []


def check_chart(path: str | Path, *, overwrite: bool, read: Iterable[Role] = ()) -> str:
    """The suffix, one of `FIGURE_SUFFIXES`; refuses a file that cannot be written before any work.

    Raises OutputError if the suffix is unknown, or the file exists or is read; MissingExtraError
    without a package of the extra `plot`.
    """
    if is_url(path):
        raise OutputError(f"{path} is an address; a figure is written to a path on this machine")
    suffix = Path(path).suffix.lower()
    if suffix not in FIGURE_SUFFIXES:
        raise OutputError(
            f"{path}: the file type {suffix or 'without a suffix'} is unknown; allowed: "
            f"{', '.join(FIGURE_SUFFIXES)}"
        )
    for module, package in _PACKAGES.items():
        if importlib.util.find_spec(module) is None:
            raise MissingExtraError(package, "plot")
    check_apart(read, [("the figure", path)])
    check_target(real_target(path), overwrite=overwrite)
    return suffix


def write_chart(chart: Chart, path: str | Path, *, overwrite: bool) -> None:
    """Writes a chart, whole or not at all; raises OutputError if it cannot be written."""
    suffix = check_chart(path, overwrite=overwrite)
    with replacing(Path(path), overwrite=overwrite) as new:
        if suffix == ".html":
            new.write_text(render_page(chart), encoding="utf-8")
        else:
            new.write_bytes(render_picture(chart, suffix))


def render_picture(chart: Chart, suffix: str) -> bytes:
    """The bytes of a picture, `.png` or `.svg`; the same chart gives the same bytes."""
    import vl_convert

    svg = vl_convert.vegalite_to_svg(_specification(chart, interactive=False))
    if suffix == ".svg":
        return svg.encode()
    warn_of_boxes(svg)
    # The library takes a unit for a point, 1/72 inch.
    return vl_convert.svg_to_png(svg, scale=72 / _UNITS_PER_INCH, ppi=_DPI)


def render_page(chart: Chart) -> str:
    """A page that needs no server and loads nothing.

    Texts of users come into the page as data alone, which the script never takes for HTML.
    """
    import vl_convert

    data = _specification(chart, interactive=True)
    # In a script element these could end it, or begin a comment.
    for character in "<>&":
        data = data.replace(character, f"\\u{ord(character):04x}")
    parts = {
        "title": html.escape(_encodable(chart.title)),
        "table": _table(chart.table()),
        "vega": vl_convert.javascript_bundle(),  # type: ignore[call-arg]  # its stub lacks a default
        "data": data,
    }
    page = importlib.resources.files(__package__).joinpath("report.html")
    pieces = page.read_text(encoding="utf-8").split("{{")
    rest = [piece.split("}}", 1) for piece in pieces[1:]]
    return pieces[0] + "".join(parts[name] + following for name, following in rest)


def _specification(chart: Chart, *, interactive: bool) -> str:
    """The specification of a drawing as JSON, with its data."""
    specification = chart.draw(interactive=interactive).to_dict()
    # Not by Altair, which would check each row.
    specification.setdefault("datasets", {}).update(chart.data())
    return _encodable(json.dumps(specification, ensure_ascii=False, allow_nan=False))


def _encodable(text: str) -> str:
    """The text with U+FFFD for halves of surrogate pairs, which UTF-8 cannot hold."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _table(rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    lines = [
        "".join(f"<{cell}>{html.escape(text)}</{cell}>" for text in row)
        for row, cell in zip(rows, ["th"] + ["td"] * (len(rows) - 1), strict=True)
    ]
    return "<table>" + "".join(f"<tr>{line}</tr>" for line in lines) + "</table>"
