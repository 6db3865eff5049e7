"""Charts as files: a picture (.png, .svg) or an interactive report (.html), by the suffix."""

import importlib.util
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from bert_features.errors import MissingExtraError, OutputError
from bert_features.files import Role, check_apart, check_target, is_url, real_target, replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from bert_features.plots.labels import Labels

# Suffix -> the kind of file.
SUFFIXES = {".png": "png", ".svg": "svg", ".html": "html"}
# The packages of the extra `plot`: the name to import, the name to install.
_PACKAGES = {"matplotlib": "matplotlib", "sklearn": "scikit-learn"}


class Chart(Protocol):
    """Something to draw, computed already."""

    @property
    def caption(self) -> str:
        """What it shows, in one line."""

    def texts(self) -> Iterable[str]:
        """The texts of the user that it draws, which decide about fonts."""

    def draw(self, labels: "Labels") -> "Figure":
        """The picture."""

    def report(self) -> dict[str, Any]:
        """The content of the interactive report, for `report.render`."""


def check_chart(path: str | Path, *, overwrite: bool, read: Iterable[Role] = ()) -> str:
    """Refuses a file that cannot be written, before anything is computed.

    Args:
      path: the file to write.
      overwrite: whether an existing file may be replaced.
      read: the files that are read.

    Returns:
      The kind of file: `png`, `svg` or `html`.

    Raises:
      OutputError: the suffix is unknown, the file exists, or it is one that is read.
      MissingExtraError: a package of the extra `plot` is not installed.
    """
    if is_url(path):
        raise OutputError(f"{path} is an address; a figure is written to a path on this machine")
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise OutputError(
            f"{path}: the file type {suffix or 'without a suffix'} is unknown; allowed: "
            f"{', '.join(SUFFIXES)}"
        )
    for module, package in _PACKAGES.items():
        if importlib.util.find_spec(module) is None:
            raise MissingExtraError(package, "plot")
    check_apart(read, [("the figure", path)])
    check_target(real_target(path), overwrite=overwrite)
    return SUFFIXES[suffix]


def write_chart(chart: Chart, path: str | Path, *, overwrite: bool) -> None:
    """Writes a chart; the file appears whole or not at all.

    Raises:
      OutputError: it cannot be written.
    """
    kind = check_chart(path, overwrite=overwrite)
    with replacing(Path(path), overwrite=overwrite) as new:
        if kind == "html":
            from bert_features.plots.report import render

            new.write_text(render(chart.report()), encoding="utf-8")
        else:
            _write_picture(chart, new, kind)


def _write_picture(chart: Chart, path: Path, kind: str) -> None:
    from bert_features.plots.figures import save_figure, styled
    from bert_features.plots.labels import Labels

    labels = Labels.for_texts(chart.texts(), keeps_text=kind == "svg")
    with styled(labels):
        save_figure(chart.draw(labels), path, kind)
