"""bert-features check: finds damage in features files."""

import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bert_features.cli.command import DebugOption, command, describe_size
from bert_features.cli.settings import as_option
from bert_features.config.extract_config import FileFormat
from bert_features.errors import BertFeaturesError, OutputError

if TYPE_CHECKING:
    from bert_features.formats import FeatureFile


@command
def check(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="Features files, or folders of them, to check."),
    ],
    format: Annotated[
        FileFormat | None,
        typer.Option(
            help="Format of the files; by default that of the suffix.", show_default=False
        ),
    ] = None,
    debug: DebugOption = False,
) -> None:
    """Reads features files whole and compares their checksums.

    Prints a line for each file, and one for each features folder. If a file is damaged, the line
    says where, and the exit status is 1. Files of earlier versions lack some checksums; the line
    names what was not checked.
    """
    damaged = [path for path in paths if not _is_whole(path, format, debug=debug)]
    if damaged:
        raise typer.Exit(1)


def _is_whole(path: Path, format: str | None, *, debug: bool) -> bool:
    """Prints the line of a file: to standard error if it is damaged."""
    try:
        print(_report(path, format))
    except BertFeaturesError as error:
        if debug:
            traceback.print_exc()
        print(f"bert-features: {error.spelled(as_option)}", file=sys.stderr)
        return False
    return True


def _report(path: Path, format: str | None) -> str:
    from bert_features.formats import output_targets, read_features

    if not path.exists():
        raise OutputError(f"cannot read {path}: No such file or directory")
    with read_features(path, format=format) as file:
        unchecked = file.verify()
        examples = len(file)
    parts, extent = _parts(file)
    targets = [target for part in parts for target in output_targets(part, format=file.format)]
    size = sum(target.stat().st_size for target in targets if target.exists())
    note = f"; not checked: {' and '.join(unchecked)}, which have no checksum" if unchecked else ""
    return f"{path}: ok, {examples:,} examples{extent}, {describe_size(size)}{note}"


def _parts(file: "FeatureFile") -> tuple[Sequence[Path], str]:
    """The features files of a file or a folder, and what the line says of their number."""
    from bert_features.formats import FeatureFolder

    if not isinstance(file, FeatureFolder):
        return [file.path], ""
    count = len(file.shards)
    return file.shards, f" in {count:,} file{'' if count == 1 else 's'}"
