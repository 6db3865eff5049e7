"""bert-features check: finds damage in features files, and repairs folders of them."""

import sys
import traceback
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bert_features.cli.command import (
    AcceptOption,
    DebugOption,
    FileFormatOption,
    SeveralFeaturesArgument,
    command,
    device_option,
)
from bert_features.cli.logs import error_line
from bert_features.cli.progress import reporting
from bert_features.cli.settings import as_options
from bert_features.errors import BertFeaturesError, ConfigError, OutputError
from bert_features.files import Location, locate, name_of
from bert_features.files.reporting import describe_size

if TYPE_CHECKING:
    from bert_features.formats import FeatureFile


@command("check features.parquet", "check features/ --repair")
def check(
    paths: SeveralFeaturesArgument,
    format: FileFormatOption = None,
    repair: Annotated[
        bool,
        typer.Option(
            "--repair",
            help="Compute the missing and damaged shards of folders again, with the settings and "
            "inputs of their runs.",
        ),
    ] = False,
    processes: Annotated[
        int,
        device_option(
            metavar="N",
            min=1,
            help="Processes that compute for --repair, each with its share of the TPU chips, GPUs "
            "or CPU cores.",
        ),
    ] = 1,
    accept_new_numbers: AcceptOption = False,
    debug: DebugOption = False,
) -> None:
    """Reads features files whole and compares their checksums.

    Prints a line for each file, and one for each features folder. If a file is damaged, the line
    says where, and the exit status is 1. Files that other programs wrote again lack some checksums;
    the line names what was not checked.
    """
    if processes != 1 and not repair:
        raise ConfigError(
            f"--processes is {processes}, but only --repair computes; pass both, or leave it out"
        )
    if accept_new_numbers and not repair:
        raise ConfigError(
            "--accept-new-numbers is set, but only --repair computes; pass both, or leave it out"
        )
    how = {"processes": processes, "accept_new_numbers": accept_new_numbers} if repair else None
    damaged = [path for path in paths if not _is_whole(path, format, how, debug=debug)]
    if damaged:
        raise typer.Exit(1)


def _is_whole(path: str, format: str | None, how: dict[str, Any] | None, *, debug: bool) -> bool:
    """Prints the line of a file: to standard error if it is damaged.

    A folder is repaired first, unless `how` is None: arguments of `corpus.job.repair`.
    """
    try:
        if how is not None:
            _repair(path, how)
        print(_report(path, format))
    except BertFeaturesError as error:
        if debug:
            traceback.print_exc()
        print(error_line(as_options(str(error))), file=sys.stderr)
        return False
    return True


def _repair(path: str, how: dict[str, Any]) -> None:
    """Repairs a features folder, and prints which shards; files are left alone."""
    from bert_features.corpus.inputs import name_some
    from bert_features.corpus.job import repair
    from bert_features.formats import folder_of

    folder = folder_of(path)
    if folder is None:
        return
    with reporting() as report:
        computed = repair(folder, **how, progress=report)
    if computed:
        count = f"{len(computed):,} shard{'' if len(computed) == 1 else 's'}"
        print(f"{folder}: computed {count}: {name_some([name_of(part) for part in computed])}")


def _report(path: str, format: str | None) -> str:
    from bert_features.formats import read_features

    place = locate(path)
    try:
        with read_features(path, format=format) as file:
            unchecked = file.verify()
            examples = len(file)
            size, extent = _size(file)
    except OutputError as error:
        raise _with_all_shards(place, error) from error
    note = f"; not checked: {' and '.join(unchecked)}, which have no checksum" if unchecked else ""
    return f"{place}: ok, {examples:,} examples{extent}, {describe_size(size)}{note}"


def _with_all_shards(folder: Location, error: OutputError) -> OutputError:
    """The error; of a finished folder with several damaged shards one that names them."""
    from bert_features.corpus.inputs import name_some
    from bert_features.formats.manifest import Manifest
    from bert_features.formats.shard_files import find_damaged

    try:
        manifest = Manifest.read(folder)
    except OutputError:  # a single file, or a damaged manifest
        return error
    damaged = sorted(find_damaged(manifest, dict(enumerate(manifest.finished or ()))))
    if len(damaged) < 2:
        return error
    names = name_some([manifest.name(shard) for shard in damaged])
    return OutputError(
        f"{folder}: {len(damaged):,} of {len(manifest.shards):,} shards are missing or damaged: "
        f"{names}; compute them again with bert-features check {folder} --repair"
    )


def _size(file: "FeatureFile") -> tuple[int, str]:
    """The bytes of a file or a folder, and what the line says of the number of its files."""
    from bert_features.formats import FeatureFolder, output_targets

    if isinstance(file, FeatureFolder):
        count = len(file.shards)
        return file.bytes, f" in {count:,} file{'' if count == 1 else 's'}"
    targets = output_targets(file.path, format=file.format)
    return sum(target.stat().st_size for target in targets if target.exists()), ""
