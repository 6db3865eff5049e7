"""The look of charts: sizes, colours and titles; and sliders, such as the one for layers.

Lengths are pixels of CSS, 1/96 inch.
"""

from collections.abc import Sequence
from typing import Any

import altair as alt

# Okabe and Ito's colours, which people with any kind of colour vision can tell apart.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
SHAPES = (
    *("circle", "triangle-up", "square", "diamond", "triangle-down", "cross"),
    *("triangle-left", "triangle-right"),
)
GRAY = "#595959"
_STYLE: dict[str, Any] = {
    "aria": False,
    "axis": {
        "domainColor": "black",
        "gridColor": "#e6e6e6",
        "labelFontSize": 12,
        "tickColor": "black",
        "titleFontSize": 13,
        "titleFontWeight": "normal",
    },
    "background": "white",
    "font": "DejaVu Sans, Verdana, sans-serif",
    "header": {"labelFontSize": 13},
    "legend": {
        "labelFontSize": 12,
        "labelLimit": 220,
        "symbolOpacity": 1,
        "titleFontSize": 13,
        "titleFontWeight": "normal",
    },
    "title": {
        "anchor": "start",
        "fontSize": 16,
        "offset": 16,
        "subtitleColor": GRAY,
        "subtitleFontSize": 12,
        "subtitlePadding": 6,
    },
    "view": {"stroke": None},
}
# The title of a panel below the title of the chart.
PANEL_TITLE: dict[str, Any] = {"fontSize": 13, "fontWeight": "normal", "offset": 8}


def finish(
    chart: Any, title: str | alt.ExprRef, subtitle: str | Sequence[str], *parameters: Any
) -> alt.TopLevelMixin:
    """Gives a chart its title, below it the model, and the look of all charts."""
    heading = alt.Title(title, subtitle=subtitle)
    named: alt.TopLevelMixin = chart.properties(title=heading, padding=16)
    return named.add_params(*parameters).configure(**_STYLE)  # type: ignore[attr-defined, no-any-return]


def look(names: Sequence[str]) -> tuple[alt.Scale, alt.Scale]:
    """A colour and a shape for each name."""
    count = range(len(names))
    colors = [COLORS[i % len(COLORS)] for i in count]
    shapes = [SHAPES[i % len(SHAPES)] for i in count]
    return alt.Scale(domain=names, range=colors), alt.Scale(domain=names, range=shapes)


def layer_axis(
    places: Sequence[int],
    embeddings: str = "embeddings",
    title: str | None = "layer",
    mix: int | None = None,
) -> alt.Axis:
    """An axis of layers at their numbers; the embeddings are at -1, a mix where it is told."""
    name = f"datum.value < 0 ? '{embeddings}' : datum.value == {mix or -9} ? 'mix' : datum.value"
    return alt.Axis(values=list(places), labelExpr=name, grid=False, title=title)


def slider(name: str, texts: Sequence[str], start: int) -> list[alt.Parameter]:
    """The parameters `name`, a number that a page has a slider for, and `name` + `s`, all texts."""
    title = name.capitalize()
    steps = alt.binding_range(min=0, max=len(texts) - 1, step=1, name=title, element="#layer")
    bound = steps if len(texts) > 1 else alt.Undefined
    return [alt.param(name=name, value=start, bind=bound), alt.param(name=f"{name}s", value=texts)]
