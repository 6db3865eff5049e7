"""extract(): the job. Texts in, features out in the input's order, nothing lost without a word."""

import contextlib
import functools
import hashlib
import importlib.metadata
import logging
import platform
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np

from bert_features.batches.bucketing import FILLER_ID
from bert_features.batches.input_fn import Pending
from bert_features.checkpoints.find import read_weights
from bert_features.config.extract_config import ExtractConfig
from bert_features.config.outputs import needs_pooler, outputs_on_device
from bert_features.config.shards import AUTO, Shard
from bert_features.encoder.step import ModelFn, Precision
from bert_features.errors import ConfigError, OutputError
from bert_features.extraction.assembly import Assembler, ExampleCounts
from bert_features.extraction.ledger import Ledger
from bert_features.extraction.preparation import Preparation, resolve_shard
from bert_features.files import check_target, real_target
from bert_features.formats import (
    DTYPES,
    IdType,
    check_output,
    open_writer,
    output_format,
)
from bert_features.formats.columns import RESERVED_NAMES
from bert_features.formats.records import FeatureBatch, FeatureRecord
from bert_features.machine.selection import make_runtime
from bert_features.machine.tpu_installation import tensorflow_version
from bert_features.official.estimator import Estimator
from bert_features.readers.examples import (
    InputExample,
    count_examples,
    examples_of_texts,
    read_examples,
)
from bert_features.runtime.base import Runtime
from bert_features.text.vocabulary import CLS, SEP

logger = logging.getLogger("bert_features")

# Products of bfloat16 that take so many times as long as those of float32 are worth a warning.
_SLOWDOWN_TOLD = 1.1


@dataclass
class Counts:
    """What a run has done so far.

    Attributes:
      examples: examples computed, or of several windows the first.
      tokens: their real tokens, [CLS] and [SEP] included; those of every window, if there are any.
      computed_tokens: tokens computed for them, padding and filler rows included.
      truncated_examples: examples that lost pieces.
      tokens_lost: the pieces they lost.
      rows: rows computed for them: more than examples where long texts are windowed.
      words: their words, if an output is of words.
      words_vanished: words of which cleaning left nothing; their vectors are zero.
      words_lost: words that truncation cut off whole; their vectors are zero.
    """

    examples: int = 0
    tokens: int = 0
    computed_tokens: int = 0
    truncated_examples: int = 0
    tokens_lost: int = 0
    rows: int = 0
    words: int = 0
    words_vanished: int = 0
    words_lost: int = 0

    @property
    def pad_waste(self) -> float:
        """The share of computed tokens that were padding or filler."""
        return 1.0 - self.tokens / self.computed_tokens if self.computed_tokens else 0.0


@dataclass(frozen=True)
class ExtractSummary:
    """The outcome of `extract`.

    Attributes:
      counts: what was done.
      seconds: from the first example read to the file closed.
      bytes_written: the size of the output on disk.
      output: where it is.
    """

    counts: Counts
    seconds: float
    bytes_written: int
    output: Path

    @property
    def tokens_per_second(self) -> float:
        """Real tokens by the whole run's time."""
        return self.counts.tokens / self.seconds if self.seconds else 0.0


class FeatureExtractor(Preparation):
    """A checkpoint made ready to turn texts into features.

    Args:
      config: the settings; those of the output file do not count here.
      runtime: what runs the steps, if it exists already; by default what the settings say.

    Attributes:
      precision: of the arithmetic, `float32` or `bfloat16`.

    Raises:
      CheckpointError: the checkpoint, its vocabulary or its casing is not usable.
      ConfigError: a setting does not fit the checkpoint, or the wanted device is not here.
    """

    def __init__(self, config: ExtractConfig, *, runtime: Runtime | None = None) -> None:
        super().__init__(config, runtime=runtime)
        self.precision = _resolve_precision(config.precision, self.devices.kind)
        if self.precision == "bfloat16" and self.devices.kind == "cpu":
            _warn_if_slow(self.runtime)
        self._estimator = self._make_estimator()
        self._pieces = np.array(self.tokenizer.tokens, object)

    @classmethod
    def from_checkpoint(cls, checkpoint: str | Path = "minilm", **settings: Any) -> Self:
        """Makes an extractor ready.

        Args:
          checkpoint: `minilm` (the embedded all-MiniLM-L6-v2, not Google's BERT), a directory, a
            TF1 checkpoint prefix or a .safetensors file.
          **settings: any other setting of `ExtractConfig`: layers, combine, max_seq_length, …

        Raises:
          CheckpointError: the checkpoint is not usable.
          ConfigError: an unknown setting, or a value that is not allowed.
        """
        return cls(ExtractConfig.of({"checkpoint": str(checkpoint), **settings}))

    def __call__(
        self, texts: Iterable[str | list[str] | tuple[str, str] | InputExample]
    ) -> list[FeatureRecord]:
        """The features of texts held in memory.

        Args:
          texts: each is one example, as it is: a text, a tuple of two for a pair, a list of words,
            or an `InputExample`. What truncation takes from them is logged as a warning.

        Returns:
          For each text, in order, its features by name, [tokens, D], [words, D] or [D]; its tokens
          ([CLS] and [SEP] included) and their ids if a feature is of tokens; its words and their
          places if a feature is of words.

        Raises:
          ConfigError: a shard is set, which is a share of a file.
          InputError: `texts` is a single string, or holds something else than strings.
        """
        if self.config.shard is not None:
            raise ConfigError(
                f"shard is {self.config.shard!r}, a share of the file that extract() reads; of "
                "texts in memory pass those that are to be computed"
            )
        examples = list(examples_of_texts(texts))
        counts = Counts()

        def note(latest: Counts) -> None:
            nonlocal counts
            counts = latest

        records = [
            record
            for batch in self.batches(lambda: examples, progress=note)
            for record in batch.records(self.features())
        ]
        if counts.truncated_examples:
            logger.warning(
                "%d of %d texts did not fit max_seq_length %d and lost %d tokens%s",
                counts.truncated_examples,
                counts.examples,
                self.config.max_seq_length,
                counts.tokens_lost,
                " of their shorter texts, which may take half of a window"
                if self.long_text.policy == "window"
                else "; long_text='window' would keep them",
            )
        return records

    def batches(
        self,
        examples: Callable[[], Iterable[InputExample]],
        *,
        progress: Callable[[Counts], None] | None = None,
        ledger: Callable[[ExampleCounts], None] | None = None,
    ) -> Iterator[FeatureBatch]:
        """Streams features in the order of the examples.

        Args:
          examples: gives an iterator over the examples.
          progress: called after every step of the device with what was done so far. Examples are
            computed by length and may wait for their turn, so this runs ahead of what is yielded.
          ledger: called for each example, in their order, with what became of it.

        Raises:
          InputError: the examples cannot be read, or are not what the long text policy allows.
        """
        counts = Counts()
        pending: dict[int, Pending] = {}
        input_fn = self.input_fn(examples, pending)
        assembler = Assembler(
            self.outputs,
            in_windows=self.long_text.policy == "window",
            pieces=self._pieces,
            pending=pending,
        )
        for batch, outputs in self._estimator.predict_batches(input_fn):
            assembler.add(batch, outputs)
            _count_rows(batch, counts)
            for example in assembler.take_ready():
                _count_words(example, counts)
                if ledger:
                    ledger(example)
            if progress:
                progress(counts)
            yield from assembler.take_batches()
        yield from assembler.take_batches(all_of_them=True)

    def metadata(self) -> dict[str, Any]:
        """What a reader of the output must know to make it again."""
        checkpoint, vocab = self.checkpoint, self.checkpoint.vocab_file
        packages = ["bert_features", "tensorflow-text", "keras", "numpy"]
        packages += ["jax"] if self.runtime.name == "jax" else []
        return {
            "config": self.config.model_dump(mode="json"),
            "checkpoint": {
                "name": checkpoint.name,
                "family": checkpoint.family,
                "sha256": checkpoint.sha256,
                "bert_config": checkpoint.config.model_dump(mode="json"),
            },
            "vocabulary": {
                "sha256": hashlib.sha256(vocab.read_bytes()).hexdigest() if vocab else None
            },
            "do_lower_case": self.tokenizer.do_lower_case,
            "precision": self.precision,
            "runtime": self.runtime.name,
            "versions": {name: importlib.metadata.version(name) for name in packages}
            | {"tensorflow": tensorflow_version(), "python": platform.python_version()},
        }

    def _make_estimator(self) -> Estimator:
        config = self.config
        model_fn = ModelFn(
            self.checkpoint.config,
            read_weights(self.checkpoint, pooler=needs_pooler(self.outputs)),
            outputs_on_device(self.outputs, in_windows=self.long_text.policy == "window"),
            special_ids=self.tokenizer.convert_tokens_to_ids([CLS, SEP]),
            precision=self.precision,
            use_one_hot_embeddings=config.use_one_hot_embeddings,
            fuse_qkv=self.devices.kind != "tpu",
        )
        return Estimator(
            model_fn, runtime=self.runtime, predict_batch_size=None, params=self.batch_params()
        )


def _resolve_precision(
    precision: Literal["auto", "float32", "bfloat16"], device_kind: str
) -> Precision:
    if precision != "auto":
        return precision
    return "bfloat16" if device_kind == "tpu" else "float32"


def _warn_if_slow(runtime: Runtime) -> None:
    slowdown = runtime.bfloat16_slowdown()
    if slowdown > _SLOWDOWN_TOLD:
        logger.warning(
            "precision is bfloat16, in which a matrix product takes %.1f times as long as in "
            "float32 on this CPU; float32 would be faster, and more exact",
            slowdown,
        )


def _count_rows(batch: dict[str, np.ndarray], counts: Counts) -> None:
    real = batch["unique_ids"] != FILLER_ID
    counts.rows += int(np.count_nonzero(real))
    first = real & (batch["window"] == 0) if "window" in batch else real
    counts.examples += int(np.count_nonzero(first))
    counts.tokens += int(batch["input_mask"].sum())
    counts.computed_tokens += batch["input_mask"].size
    counts.tokens_lost += int(batch["tokens_lost"].sum())
    counts.truncated_examples += int(np.count_nonzero(batch["tokens_lost"]))


def _count_words(example: ExampleCounts, counts: Counts) -> None:
    counts.words += example.words
    counts.words_vanished += example.words_vanished
    counts.words_lost += example.words_lost


def extract(
    config: ExtractConfig,
    input_path: str | Path,
    output_path: str | Path,
    *,
    ledger_path: str | Path | None = None,
    overwrite: bool = False,
    progress: Callable[[Counts, int | None], None] | None = None,
) -> ExtractSummary:
    """Extracts features of a file of examples into a file.

    The output appears under its name only when it is whole; on any failure nothing is left.

    Args:
      config: the settings.
      input_path: the file to read, in `config.input_format`; or `-` for standard input.
      output_path: the file to write; with `config.shard` its name gets the share's number.
      ledger_path: where to write what became of each example, one JSON line each, with the fields
        of `ExampleCounts`.
      overwrite: whether existing files may be replaced.
      progress: called after every step of the device with what was done so far and the number of
        examples of the input (None if it cannot be known).

    Raises:
      BertFeaturesError: what was wrong, in one sentence.
    """
    # What is cheap to refuse comes before what is dear to load.
    file_format = output_format(output_path, config.format)
    _check_outputs(config, file_format)
    runtime = make_runtime(config.runtime, config.device) if config.shard == AUTO else None
    shard = resolve_shard(config.shard, runtime)
    if config.shard == AUTO:  # else hosts that do not know of each other would do the same work
        alone = ", the whole input: this process knows of no others" if shard.count == 1 else ""
        logger.info("shard auto is %d/%d%s", shard.index, shard.count, alone)
    output_path = shard.path(output_path)
    if ledger_path is not None:
        ledger_path = shard.path(ledger_path)
    check_output(output_path, format=file_format, overwrite=overwrite)
    if ledger_path is not None:
        if Path(ledger_path).resolve() == Path(output_path).resolve():
            raise OutputError(f"{output_path} is to be both output and ledger; name two files")
        check_target(real_target(ledger_path), overwrite=overwrite)
    total = count_examples(input_path, config.input_settings())
    if total is not None:
        total = shard.size(total)
    extractor = FeatureExtractor(config, runtime=runtime)
    started = time.monotonic()
    counts = Counts()

    def note(latest: Counts) -> None:
        nonlocal counts
        counts = latest
        if progress:
            progress(latest, total)

    with contextlib.ExitStack() as stack:
        ledger = None
        if ledger_path is not None:
            ledger = stack.enter_context(Ledger(ledger_path, overwrite=overwrite))
        examples, id_type = _peeked(
            read_examples(
                input_path, config.input_settings(), encoding_errors=config.encoding_errors
            ),
            shard,
        )
        writer = stack.enter_context(
            open_writer(
                output_path,
                format=file_format,
                features=extractor.features(),
                metadata=extractor.metadata(),
                id_type=id_type,
                overwrite=overwrite,
            )
        )
        for batch in extractor.batches(lambda: examples, progress=note, ledger=ledger):
            writer.write(batch)
        if ledger:
            ledger.finish()
    seconds = time.monotonic() - started
    return ExtractSummary(counts, seconds, writer.bytes_written, Path(output_path))


def _check_outputs(config: ExtractConfig, file_format: str) -> None:
    """Refuses what the file cannot hold before anything is loaded."""
    held = DTYPES[file_format]
    for output in config.output_configs():
        if output.name in RESERVED_NAMES:
            raise ConfigError(
                f"an output is named '{output.name}', as a column of the file is; reserved are "
                f"{', '.join(sorted(RESERVED_NAMES - {''}))}"
            )
        dtype = output.dtype or config.dtype
        if dtype not in held:
            others = ", ".join(name for name, dtypes in DTYPES.items() if dtype in dtypes)
            raise ConfigError(
                f"dtype is '{dtype}'; format '{file_format}' holds {', '.join(held)}; take one "
                f"of these, or a format that holds {dtype}: {others}"
            )


def _peeked(
    examples: Iterator[InputExample], shard: Shard
) -> tuple[Iterator[InputExample], IdType]:
    """The share of the examples, and of which type the ids of all are."""
    first = next(examples, None)
    if first is None:
        return iter(()), "int"
    id_type: IdType = "str" if isinstance(first.unique_id, str) else "int"
    return shard.take(chain([first], examples)), id_type


def get_features(
    texts: Iterable[str],
    dim: int = 768,
    *,
    checkpoint: str | Path = "minilm",
    layers: tuple[int | str, ...] = (-1, -2, -3, -4),
    combine: str = "sum",
    max_seq_length: int = 128,
    batch_size: int = 32,
    **settings: Any,
) -> list[list[tuple[str, np.ndarray]]]:
    """Token vectors of texts, by the call that the tutorials use; or with `level="word"`, words'.

    The tutorial's function of this name returned a dict from token to vector, in which a repeated
    token kept only one of its vectors. Here every token keeps its own.

    Args:
      texts: each is one example.
      dim: how many values of each vector to keep, from the first; vectors that are narrower stay
        whole (those of the default checkpoint, all-MiniLM-L6-v2, have 384).
      checkpoint: whatever `find_checkpoint` takes. The last one used stays loaded.
      layers: LAYERS.
      combine: how they become one vector: `sum`, `mean` or `concat`.
      max_seq_length: tokens of the longest row.
      batch_size: rows of a batch.
      **settings: any other setting of `ExtractConfig`, but `outputs`.

    Returns:
      For each text its (token, vector) pairs in order, [CLS] and [SEP] included, or its (word,
      vector) pairs; a vector is float32 [min(dim, D)].

    Raises:
      ConfigError: a setting is not allowed; `combine` is `none`, which has no single vector, or
        `level` is `sequence`, which has no pairs.
      CheckpointError: the checkpoint is not usable.
    """
    if combine == "none":
        raise ConfigError(
            "combine is 'none'; get_features gives one vector: sum, mean, concat or weighted"
        )
    if settings.get("level") == "sequence" or settings.get("outputs"):
        raise ConfigError(
            "get_features gives pairs of tokens, or words, and vectors; for other outputs call "
            "FeatureExtractor.from_checkpoint(…)(texts)"
        )
    if dim < 1:
        raise ConfigError(f"dim is {dim}; allowed: an integer of at least 1")
    config = ExtractConfig.of(
        {
            "checkpoint": str(checkpoint),
            "layers": tuple(layers),
            "combine": combine,
            "max_seq_length": max_seq_length,
            "batch_size": batch_size,
            **settings,
        }
    )
    return [
        list(zip(_named(record), record.features["features"][:, :dim], strict=True))
        for record in _extractor(config)(texts)
    ]


def _named(record: FeatureRecord) -> tuple[str, ...]:
    return (record.tokens if record.words is None else record.words) or ()


@functools.lru_cache(maxsize=1)
def _extractor(config: ExtractConfig) -> FeatureExtractor:
    return FeatureExtractor(config)
