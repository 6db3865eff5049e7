"""bert-features download: Google's published checkpoints, into the cache."""

import logging
import sys
import time
from typing import Annotated

import typer

from bert_features.cli.command import DebugOption, command
from bert_features.errors import ConfigError

_LOG_EVERY_SECONDS = 5.0


@command
def download(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help="A published name or an alias, e.g. bert-tiny; without one, all are listed.",
            show_default=False,
        ),
    ] = None,
    show_list: Annotated[
        bool, typer.Option("--list", help="List the published checkpoints and their aliases.")
    ] = False,
    verify: Annotated[
        bool,
        typer.Option("--verify", help="Hash the files in the cache; compare with what was seen."),
    ] = False,
    force: Annotated[
        bool,
        typer.Option("--force", help="Download it again, although it is there."),
    ] = False,
    forget: Annotated[
        bool,
        typer.Option(
            "--forget", help="Drop the recorded hash and trust what is downloaded now instead."
        ),
    ] = False,
    debug: DebugOption = False,
) -> None:
    """Downloads a checkpoint of google-research/bert and prints the folder it is in.

    The other commands take the same names, and download what is not there yet.

    The cache is $BERT_FEATURES_CACHE, or the platform's place for caches. $BERT_FEATURES_MIRROR
    takes the place of https://storage.googleapis.com/bert_models.
    """
    given = [
        f"--{o}" for o, on in {"verify": verify, "force": force, "forget": forget}.items() if on
    ]
    if show_list or name is None:
        if name is not None or given:
            raise ConfigError(
                f"--list goes alone; received {' '.join([*filter(None, [name]), *given])}"
                if show_list
                else f"{' and '.join(given)} needs the NAME of a checkpoint"
            )
        _print_table()
        return
    if verify and len(given) > 1:
        raise ConfigError(f"{' and '.join(given)} exclude each other; give one of them")
    print(_verify(name) if verify else _download(name, force=force, forget=forget))


def _verify(name: str) -> str:
    from bert_features.checkpoints.download import verify

    return f"{verify(name)}: every file is as recorded"


def _download(name: str, *, force: bool, forget: bool) -> str:
    from bert_features.checkpoints.download import download as ensure

    with _progress() as show:
        return str(ensure(name, progress=show, force=force, forget=forget))


def _print_table() -> None:
    from bert_features.checkpoints.published import PUBLISHED, aliases_of
    from bert_features.files import cache_dir

    cache = cache_dir()
    print(f"{'':2}{'NAME':<35}{'PARAMETERS':>13}  {'CASING':<9}ALIASES")
    for row in PUBLISHED.values():
        mark = "*" if (cache / row.name).is_dir() else ""
        aliases = ", ".join(aliases_of(row.name))
        line = f"{mark:2}{row.name:<35}{row.parameters:>13,}  {row.casing:<9}{aliases}"
        print(f"{line}{' ' if aliases else ''}{f'({row.note})' if row.note else ''}".rstrip())
    print(f"\nL: layers, H: hidden size, A: attention heads. *: in the cache {cache}")


class _LogLines:
    """Progress as a line every few seconds: for logs and pipes."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def __enter__(self) -> "_LogLines":
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def __call__(self, done: int, total: int | None) -> None:
        ends = done == total
        if not ends and time.monotonic() - self._last < _LOG_EVERY_SECONDS:
            return
        self._last = time.monotonic()
        of_total = f" of {total / 1e6:,.1f}" if total else ""
        logging.getLogger("bert_features").info("%s%s MB", f"{done / 1e6:,.1f}", of_total)


class _ProgressBar:
    """Progress as a bar with MB/s and the time left: for terminals."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            Progress,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )

        self._bar = Progress(
            DownloadColumn(),
            BarColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task("download", total=None)

    def __enter__(self) -> "_ProgressBar":
        self._bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bar.stop()

    def __call__(self, done: int, total: int | None) -> None:
        self._bar.update(self._task, completed=done, total=total)


def _progress() -> _LogLines | _ProgressBar:
    return _ProgressBar() if sys.stderr.isatty() else _LogLines()
