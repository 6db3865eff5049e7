"""The look of pictures: sizes, colours, fonts; and how a figure becomes a file.

No state of pyplot is used, and no display is needed.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bert_features.plots.labels import Labels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DPI = 150
# Evenly lighter with the value, for all kinds of colour vision.
COLOR_MAP = "viridis"
# Okabe and Ito's colours, which people with any kind of colour vision can tell apart.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "^", "s", "D", "v", "P", "X", "<", ">", "p", "*")
GRAY = "#6b6b6b"
_STYLE: dict[str, Any] = {
    "font.size": 10,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.facecolor": "white",
    "legend.frameon": False,
    "savefig.dpi": DPI,
    "svg.fonttype": "none",  # texts stay texts
    "svg.hashsalt": "bert_features",  # the same figure has the same bytes
    "text.parse_math": False,  # a dollar in a text is a dollar
    "axes.unicode_minus": True,
}


@contextmanager
def styled(labels: Labels) -> Iterator[None]:
    """The style of all figures, while the block lasts."""
    import matplotlib

    style: Any = {**_STYLE, "font.family": list(labels.fonts)}  # any, to matplotlib's types
    with matplotlib.rc_context(style):
        yield


def new_figure(width: float, height: float) -> "Figure":
    """An empty figure; width and height are in inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def put_title(figure: "Figure", title: str, subtitle: str) -> None:
    """Writes what is shown, and below it the model, above the axes."""
    inches = 0.62  # of both lines
    height = float(figure.get_figheight())
    figure.set_layout_engine("constrained", rect=(0, 0, 1, 1 - inches / height))
    figure.text(0.02, 1 - 0.12 / height, title, fontsize=12, weight="bold", va="top")
    figure.text(0.02, 1 - 0.37 / height, subtitle, fontsize=9, color=GRAY, va="top")


def save_figure(figure: "Figure", path: Path, kind: str) -> None:
    """Writes a figure as `png` or `svg`; the same figure gives the same bytes."""
    with warnings.catch_warnings():
        # In an SVG texts stay texts: whatever shows it brings the fonts that are not here.
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        warnings.filterwarnings("ignore", "Matplotlib currently does not support .* natively")
        # By format, since the path may be a temporary one without the suffix.
        figure.savefig(path, format=kind, metadata={"Date": None} if kind == "svg" else {})
