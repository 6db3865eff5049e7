"""Targets: the file or the folder that a run writes, checked before anything is computed.

Importing this imports no framework.
"""

import io
import logging
import os
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeAlias

from bert_features.checkpoints.checkpoint import Checkpoint, named_files
from bert_features.checkpoints.find import find_checkpoint
from bert_features.config.extract_config import ExtractConfig
from bert_features.config.shards import AUTO, WHOLE, Shard
from bert_features.corpus.folder import check_folder
from bert_features.corpus.inputs import Inputs, find_inputs
from bert_features.errors import ConfigError, InputError, OutputError, printable
from bert_features.extraction.checks import check_input_and_checkpoint, check_outputs
from bert_features.extraction.feature_store import check_cache
from bert_features.files import (
    STDOUT,
    Location,
    Role,
    check_apart,
    check_target,
    is_inside,
    is_url,
    local_path,
    locate,
    real_target,
)
from bert_features.formats import check_output, output_format, output_targets
from bert_features.formats.manifest import has_manifest
from bert_features.machine.hardware import place_among_hosts
from bert_features.machine.quiet_tensorflow import import_tensorflow
from bert_features.readers.opening import is_stream, name_of

logger = logging.getLogger("bert_features")

# The only format that is written from its beginning to its end and needs no sidecar.
STREAM_FORMAT = "jsonl"
_FOLDER_FORMAT = "parquet"
# A path with a colon as the second of its letters is one of Windows.
_LIKE_AN_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+(.*)", re.DOTALL)


@dataclass(frozen=True)
class FileTarget:
    """A single features file, or standard output: a run of one shard.

    Attributes:
      named: the output as the user named it.
      ledger_named: the ledger as the user named it, if one is wanted.
      overwrite: whether existing files may be replaced.
      shard: the share of the input that is computed; None while only the runtime knows it.
    """

    named: str
    format: str
    ledger_named: str | Path | None
    overwrite: bool
    shard: Shard | None

    @property
    def output(self) -> Path | None:
        """The features file; None for standard output."""
        return None if self.named == STDOUT else self._path(self.named)

    @property
    def ledger(self) -> Path | None:
        """The ledger, if one is wanted."""
        return None if self.ledger_named is None else self._path(self.ledger_named)

    def __str__(self) -> str:
        return "standard output" if self.named == STDOUT else self.named

    def find_inputs(self, inputs: Inputs) -> tuple[str]:
        """The input; raises ConfigError if there are several, or it is a folder."""
        files = find_inputs(inputs, folders=False)
        if not is_url(files[0]) and os.path.isdir(local_path(files[0])):  # noqa: PTH112
            raise ConfigError(
                f"{files[0]} is a folder of files, and {self} is a single file; end output_path "
                "with a / to write a folder"
            )
        if len(files) > 1:
            raise ConfigError(
                f"{len(files):,} inputs cannot go to the single output {self}; end output_path "
                "with a / to write a folder"
            )
        return (files[0],)

    def check(self, read: Iterable[Role]) -> None:
        """Refuses files that exist, cannot be made, or are read; raises OutputError."""
        if self.shard is None:
            return
        self.check_apart(read)
        if self.output is not None:
            check_output(self.output, format=self.format, overwrite=self.overwrite)
        if self.ledger is not None:
            check_target(real_target(self.ledger), overwrite=self.overwrite)

    def check_apart(self, read: Iterable[Role]) -> None:
        """The part of `check` that depends on the files that are read."""
        if self.shard is None:
            return
        if self.output is None:
            roles = _stream_role("standard output", sys.stdout)
        else:
            *sidecars, output = output_targets(self.output, format=self.format)
            roles = [("the output", output)]
            roles += [("the sidecar of the output", sidecar) for sidecar in sidecars]
        if self.ledger is not None:
            roles.append(("the ledger", real_target(self.ledger)))
        check_apart(read, roles)

    def _path(self, named: str | Path) -> Path:
        return (self.shard or Shard()).path(local_path(named))


@dataclass(frozen=True)
class FolderTarget:
    """A folder of shards.

    Attributes:
      folder: its path, or its address.
      overwrite: whether a run that has begun there is thrown away.
      share: the share of the shards that this host computes; None while only the runtime knows it.
    """

    folder: Location
    format: str
    overwrite: bool
    share: Shard | None = WHOLE

    def find_inputs(self, inputs: Inputs) -> tuple[str, ...]:
        """The inputs; raises InputError if one can be read only once, or its name is not UTF-8."""
        files = find_inputs(inputs)
        for path in filter(is_stream, files):
            raise InputError(
                f"{name_of(path)} can be read only once, but a run that writes a folder may have "
                "to resume later; save it to a file first"
            )
        for path in files:
            if path.encode(errors="ignore").decode() != path:
                raise InputError(
                    f"the name of {printable(path)} is not UTF-8, as the manifest of a folder "
                    "records it; rename it"
                )
        return files

    def check(self, read: Iterable[Role]) -> None:
        """Refuses a folder as `check_folder`, and files in it that are read; raises OutputError."""
        check_folder(self.folder)
        self.check_apart(read)

    def check_apart(self, read: Iterable[Role]) -> None:
        """The part of `check` that depends on the files that are read."""
        for role, path in read:
            if not isinstance(path, int) and self._holds(path):
                raise OutputError(
                    f"{role}, {path}, is in the output folder {self.folder}; name another"
                )

    def _holds(self, path: str | Path) -> bool:
        if isinstance(self.folder, str) or is_url(path):
            return str(path).startswith(f"{self.folder}/")
        return is_inside(path, self.folder)


Target: TypeAlias = FileTarget | FolderTarget


def find_target(
    config: ExtractConfig,
    output: str | Path,
    ledger: str | Path | None = None,
    *,
    overwrite: bool = False,
) -> Target:
    """What a run writes: a folder if its name ends in `/` or it is one, else a file; `-` is stdout.

    Raises ConfigError if the settings do not fit, OutputError if it cannot be written or has no
    format.
    """
    named = str(output)
    match = _LIKE_AN_ADDRESS.match(named)
    if match and named != STDOUT and not is_url(named) and match[1] not in ("file", "local"):
        raise OutputError(
            f"{output} looks like an address, but is none; write {match[1].lower()}://{match[2]}, "
            f"or ./{output} for a path"
        )
    if not is_folder(output):
        return _file_target(config, named, ledger, overwrite)
    if ledger is not None:
        raise ConfigError(
            f"ledger_path needs a single output file, but {output} is a folder; leave it out"
        )
    share: Shard | None = WHOLE
    if config.shard is not None:
        share = None if config.shard == AUTO else Shard.parse(config.shard)
        if config.shard == AUTO and (place := place_among_hosts()) is not None:
            share = log_share(*place)
        if overwrite:
            raise ConfigError(
                "shard and overwrite are both set, and each host would remove what the others "
                "have; remove the folder first, and leave overwrite out"
            )
    return FolderTarget(locate(output), config.format or _FOLDER_FORMAT, overwrite, share)


def log_share(index: int, count: int) -> Shard:
    """The share that `auto` stands for, which the log names."""
    # Hosts that do not know of each other would all do the same work.
    alone = ", the whole input: this process knows of no others" if count == 1 else ""
    logger.info("shard auto is %d/%d%s", index, count, alone)
    return Shard(index, count)


def _file_target(
    config: ExtractConfig, output: str, ledger: str | Path | None, overwrite: bool
) -> FileTarget:
    for path in (output, ledger):
        if path is not None and is_url(path):
            raise OutputError(
                f"{path} is an address, where only folders of shards are written; pass a path, or "
                "end the output with /"
            )
    if ledger is not None and str(ledger) == STDOUT:
        raise OutputError("the ledger cannot go to standard output; pass a path for the ledger")
    if "shard_examples" in config.model_fields_set:
        logger.warning("shard_examples is for folders of shards; a single file has none")
    shard = None if config.shard == AUTO else Shard.parse(config.shard) if config.shard else Shard()
    return FileTarget(output, decide_format(output, config.format), ledger, overwrite, shard)


def is_folder(output: str | Path) -> bool:
    """Whether an output is a folder of shards: its name ends in `/`, or it is a folder already.

    An address is one if a run has begun there; raises BertFeaturesError if it cannot be asked.
    """
    if str(output) == STDOUT:
        return False
    if str(output).endswith(("/", os.sep)):
        return True
    if is_url(output):
        return has_manifest(locate(output))
    return os.path.isdir(local_path(output))  # noqa: PTH112


def decide_format(output: str | Path, format: str | None) -> str:
    """The format of the features: `format`, or what the suffix says; on standard output JSON lines.

    Raises OutputError if the suffix says none or another, or standard output cannot take it.
    """
    if str(output) != STDOUT:
        return output_format(output, format)
    if format in (None, STREAM_FORMAT):
        return STREAM_FORMAT
    raise OutputError(
        f"the format is {format}, which cannot be written to standard output; pass a file, or "
        f"format {STREAM_FORMAT}"
    )


def check_run(config: ExtractConfig, inputs: Iterable[str], target: Target) -> Checkpoint:
    """Refuses what is wrong with a run, if possible without TensorFlow; raises BertFeaturesError.

    Returns the checkpoint. If only TensorFlow can read it, TensorFlow is imported.
    """
    inputs = list(inputs)
    check_outputs(config, target.format)
    target.check(files_read(config, *inputs))
    check_cache(config)  # last, as it makes a folder
    checkpoint = check_input_and_checkpoint(config, *inputs)
    if checkpoint is None:
        import_tensorflow(config.runtime, config.device)
        checkpoint = find_checkpoint(config.checkpoint, **config.checkpoint_options())
    target.check_apart(checkpoint.files())
    return checkpoint


def files_read(config: ExtractConfig, *input_paths: str | Path) -> list[Role]:
    """The inputs and the files that the settings name, files of the checkpoint included."""
    roles: list[Role] = []
    for path in input_paths:
        is_stdin = str(path) == "-"
        roles += _stream_role("standard input", sys.stdin) if is_stdin else [("the input", path)]
    roles += named_files(config.checkpoint, config.config_file, config.vocab_file)
    if config.cache is not None and not is_url(config.cache):
        roles.append(("a file of the cache", Path(config.cache) / "*"))
    if config.source_file is not None:
        roles.append(("the settings file", config.source_file))
    return [*roles, *(role for output in config.outputs for role in output.files())]


def _stream_role(role: str, stream: IO[Any] | None) -> list[Role]:
    try:
        return [] if stream is None else [(role, stream.fileno())]
    except (io.UnsupportedOperation, ValueError):  # in memory, or closed
        return []
