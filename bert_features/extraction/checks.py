"""Checks of a run that need no framework: what they refuse fails at once.

Importing TensorFlow takes seconds. So everything about the settings, the files and the checkpoint
that can be checked without it is checked here first: local files before a checkpoint that needs
the network.
"""

import contextlib
import io
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from bert_features.batches.bucketing import resolve_buckets
from bert_features.batches.long_text import LongText
from bert_features.checkpoints.checkpoint import Checkpoint, named_files
from bert_features.checkpoints.find import find_without_tensorflow, resolve_vocabulary
from bert_features.checkpoints.pooling import auto_length, auto_pooling
from bert_features.config.extract_config import ExtractConfig
from bert_features.config.settings import shown
from bert_features.config.shards import AUTO, Shard
from bert_features.errors import ConfigError, InputError, OutputError
from bert_features.extraction.prompts import Prompts
from bert_features.files import (
    STDOUT,
    Role,
    check_apart,
    check_target,
    is_url,
    local_path,
    real_target,
)
from bert_features.formats import check_dtype, check_output, output_format, output_targets
from bert_features.formats.checks import check_name
from bert_features.readers.examples import read_examples
from bert_features.readers.opening import check_file, is_stream, name_of

# The only format that is written from its beginning to its end and needs no sidecar.
STREAM_FORMAT = "jsonl"


@dataclass(frozen=True)
class Targets:
    """The files to write.

    Attributes:
      output: the features; None for standard output.
      format: their format.
      ledger: the ledger, if one is wanted.
      overwrite: whether existing files may be replaced.
    """

    output: Path | None
    format: str
    ledger: Path | None
    overwrite: bool

    @classmethod
    def of(
        cls,
        config: ExtractConfig,
        output: str | Path,
        ledger: str | Path | None,
        shard: Shard,
        *,
        overwrite: bool,
    ) -> "Targets":
        """The files of one share of a run.

        Raises:
          OutputError: the suffix of `output` does not say a format, or says another than `config`.
        """
        return cls(
            None if str(output) == STDOUT else shard.path(local_path(output)),
            decide_format(output, config.format),
            None if ledger is None else shard.path(local_path(ledger)),
            overwrite,
        )

    def check(self, read: Iterable[Role]) -> None:
        """Refuses files that exist, cannot be made, or are among those that are read.

        Args:
          read: the files that the run reads.

        Raises:
          OutputError: there is such a file.
        """
        roles = self._roles()
        check_apart(read, roles)
        if self.output is not None:
            check_output(self.output, format=self.format, overwrite=self.overwrite)
        if self.ledger is not None:
            check_target(real_target(self.ledger), overwrite=self.overwrite)

    def _roles(self) -> list[Role]:
        """The files, each with its part in the run."""
        if self.output is None:
            roles = _stream_role("standard output", sys.stdout)
        else:
            *sidecars, output = output_targets(self.output, format=self.format)
            roles = [("the output", output)]
            roles += [("the sidecar of the output", sidecar) for sidecar in sidecars]
        if self.ledger is not None:
            roles.append(("the ledger", real_target(self.ledger)))
        return roles


def check_extraction(
    config: ExtractConfig,
    input_path: str | Path,
    output: str | Path,
    ledger: str | Path | None = None,
    *,
    overwrite: bool = False,
) -> Checkpoint | None:
    """Refuses what is wrong with an extraction, without TensorFlow.

    Args:
      config: the settings.
      input_path: the file to read, or `-` for standard input.
      output: the file to write, or `-` for standard output.
      ledger: the ledger to write, if one is wanted.
      overwrite: whether existing files may be replaced.

    Returns:
      The checkpoint; None if only TensorFlow can read it.

    Raises:
      BertFeaturesError: says in one sentence what was wrong.
    """
    for target in (output, ledger):
        if target is not None:
            check_is_local(target)
    _check_outputs(config, decide_format(output, config.format))
    if ledger is not None and str(ledger) == STDOUT:
        raise OutputError("the ledger cannot go to standard output; pass a path for the ledger")
    targets = None
    if config.shard != AUTO:  # else only the runtime knows their names
        shard = Shard() if config.shard is None else Shard.parse(config.shard)
        targets = Targets.of(config, output, ledger, shard, overwrite=overwrite)
        targets.check(files_read(config, input_path))
    checkpoint = check_input_and_checkpoint(config, input_path)
    if targets is not None and checkpoint is not None:
        targets.check(checkpoint.files())
    return checkpoint


def check_is_local(target: str | Path) -> None:
    """Refuses an address as the name of a single file.

    Raises:
      OutputError: it is one.
    """
    if is_url(target):
        raise OutputError(
            f"{target} is an address, where only folders of shards are written; pass a path, or "
            "end the output with /"
        )


def check_folder_extraction(
    config: ExtractConfig, inputs: Sequence[str], file_format: str
) -> Checkpoint | None:
    """Refuses what is wrong with an extraction into a folder of shards, without TensorFlow.

    Args:
      config: the settings.
      inputs: the files to read.
      file_format: the format of the shards.

    Returns:
      The checkpoint; None if only TensorFlow can read it.

    Raises:
      BertFeaturesError: says in one sentence what was wrong.
    """
    if config.shard is not None:
        raise ConfigError.naming(
            "{shard} is {received}, which makes one file of a share of the input, but the output "
            "is a folder; leave it out",
            received=shown(config.shard),
        )
    for path in inputs:
        if is_stream(path):
            raise InputError(
                f"{name_of(path)} can be read only once, but a run that writes a folder may have "
                "to resume later; save it to a file first"
            )
    _check_outputs(config, file_format)
    return check_input_and_checkpoint(config, *inputs)


def check_input_and_checkpoint(
    config: ExtractConfig, *input_paths: str | Path
) -> Checkpoint | None:
    """Refuses inputs and a checkpoint that do not fit the settings, without TensorFlow.

    Returns:
      The checkpoint; None if only TensorFlow can read it.

    Raises:
      BertFeaturesError: says in one sentence what was wrong.
    """
    if config.max_seq_length is not None:
        check_lengths(config, config.max_seq_length)
    for input_path in input_paths:
        check_input(config, input_path)
    checkpoint = find_without_tensorflow(
        config.checkpoint,
        config_file=config.config_file,
        vocab_file=config.vocab_file,
        hidden_act=config.hidden_act,
    )
    if checkpoint is not None:
        check_lengths(config, row_length(config, checkpoint))
        config.plan_outputs(checkpoint.config, auto_pooling(checkpoint, config.output_configs()))
        _, lower_cases = resolve_vocabulary(checkpoint, config.do_lower_case)
        Prompts(config, checkpoint, lower_cases).check_default()
    return checkpoint


def decide_format(output: str | Path, wanted: str | None) -> str:
    """The format of the features: `wanted`, or that of the suffix; on standard output JSON lines.

    Raises:
      OutputError: the suffix does not say a format or says another; or standard output cannot
        take the format.
    """
    if str(output) != STDOUT:
        return output_format(output, wanted)
    if wanted in (None, STREAM_FORMAT):
        return STREAM_FORMAT
    raise OutputError(
        f"the format is {wanted}, which cannot be written to standard output; pass a file, or "
        f"format {STREAM_FORMAT}"
    )


def files_read(config: ExtractConfig, *input_paths: str | Path) -> list[Role]:
    """The files that the settings name, and the inputs; those of the checkpoint are in it."""
    roles: list[Role] = []
    for path in input_paths:
        is_stdin = str(path) == "-"
        roles += _stream_role("standard input", sys.stdin) if is_stdin else [("the input", path)]
    roles += named_files(config.checkpoint, config.config_file, config.vocab_file)
    if config.source_file is not None:
        roles.append(("the settings file", config.source_file))
    return roles


def _stream_role(role: str, stream: IO[Any] | None) -> list[Role]:
    try:
        return [] if stream is None else [(role, stream.fileno())]
    except (io.UnsupportedOperation, ValueError):  # in memory, or closed
        return []


def check_input(config: ExtractConfig, path: str | Path) -> None:
    """Refuses an input that cannot be read, or whose first example cannot.

    An address is left for the run, and so is what can be read only once.

    Raises:
      ConfigError: a setting has no meaning for this kind of file.
      InputError: the input cannot be read.
    """
    examples = read_examples(
        path, config.input_settings(), encoding_errors=config.encoding_errors
    )  # reads nothing yet
    if is_url(path):
        return
    check_file(path)
    if not is_stream(path):
        with contextlib.closing(examples):  # type: ignore[type-var]  # it is a generator
            next(examples, None)


def row_length(config: ExtractConfig, checkpoint: Checkpoint) -> int:
    """The maximum tokens of a row.

    It is `max_seq_length`; if the user set none, the length that sentence-transformers recorded for
    pooling `auto`, or else the number of positions.

    Raises:
      ConfigError: the checkpoint has fewer positions than `max_seq_length`.
    """
    recorded = auto_length(checkpoint, config.output_configs())
    if config.max_seq_length is None and recorded is not None:
        return recorded
    return config.row_length(checkpoint.config, checkpoint.name)


def check_lengths(config: ExtractConfig, length: int) -> LongText:
    """Refuses lengths that do not fit together; what happens to long texts.

    Args:
      config: the settings.
      length: the maximum tokens of a row.

    Raises:
      ConfigError: the stride or a bucket does not fit `length`.
    """
    resolve_buckets(config.buckets or (), length)
    return LongText(config.long_text, length, config.stride)


def _check_outputs(config: ExtractConfig, file_format: str) -> None:
    """Refuses outputs that the file cannot hold."""
    for output in config.output_configs():
        if output.name is not None:
            check_name(output.name, ConfigError)
        check_dtype(file_format, output.dtype or config.dtype, ConfigError)
