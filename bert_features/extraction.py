"""extract(): the job. Texts in, features out in the input's order, nothing lost without a word."""

import functools
import hashlib
import importlib.metadata
import logging
import platform
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np

from bert_features.checkpoints import (
    Checkpoint,
    check_casing,
    check_vocab,
    find_checkpoint,
    read_weights,
)
from bert_features.config import ExtractConfig
from bert_features.errors import CheckpointError, ConfigError
from bert_features.estimator import Estimator
from bert_features.examples import (
    InputExample,
    count_examples,
    examples_of_texts,
    read_examples,
)
from bert_features.input_pipeline import FILLER_ID, TextInputFn, resolve_buckets
from bert_features.model_fn import ModelFn, Precision
from bert_features.pooling import plan_outputs
from bert_features.records import Feature, FeatureBatch, FeatureRecord
from bert_features.runtime.tensorflow import TensorFlowRuntime
from bert_features.tokenization import FullTokenizer
from bert_features.vocabulary import read_vocab
from bert_features.writers import check_output, open_writer

logger = logging.getLogger("bert_features")

# Examples of one FeatureBatch: enough that a writer's cost per call does not count.
_ROWS_PER_BATCH = 512


@dataclass
class Counts:
    """What a run has done so far.

    Attributes:
      examples: examples finished.
      tokens: their real tokens, [CLS] and [SEP] included.
      computed_tokens: tokens computed for them, padding and filler rows included.
      truncated_examples: examples that lost pieces.
      tokens_lost: the pieces they lost.
    """

    examples: int = 0
    tokens: int = 0
    computed_tokens: int = 0
    truncated_examples: int = 0
    tokens_lost: int = 0

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


class FeatureExtractor:
    """A checkpoint made ready to turn texts into features.

    Args:
      config: the settings; those of the output file do not count here.

    Raises:
      CheckpointError: the checkpoint, its vocabulary or its casing is not usable.
      ConfigError: a setting does not fit the checkpoint.
    """

    def __init__(self, config: ExtractConfig) -> None:
        self.config = config
        self.checkpoint = _find(config)
        bert_config = self.checkpoint.config
        if config.max_seq_length > bert_config.max_position_embeddings:
            raise ConfigError(
                f"max_seq_length is {config.max_seq_length}; {self.checkpoint.name} has "
                f"{bert_config.max_position_embeddings} positions, take at most that"
            )
        self.outputs = plan_outputs(config.layers, config.combine, bert_config.num_hidden_layers)
        self.buckets = resolve_buckets(config.buckets, config.max_seq_length)
        self.tokenizer = make_tokenizer(self.checkpoint, config.do_lower_case)
        runtime = TensorFlowRuntime(config.device)
        self.precision = _resolve_precision(config.precision, runtime.devices.kind)
        self._estimator = self._make_estimator(runtime)
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

    def __call__(self, texts: Iterable[str]) -> list[FeatureRecord]:
        """The features of texts held in memory.

        Args:
          texts: each is one example, as it is.

        Returns:
          For each text, in order, its tokens ([CLS] and [SEP] included), token ids int32 [T] and
          features, name -> [T, D]: `layer_output_0`, … or, with `combine`, `features`.

        Raises:
          InputError: `texts` is a single string, or holds something else than strings.
        """
        examples = list(examples_of_texts(texts))
        return [record for batch in self.batches(lambda: examples) for record in batch.records()]

    def batches(
        self,
        examples: Callable[[], Iterable[InputExample]],
        *,
        progress: Callable[[Counts], None] | None = None,
    ) -> Iterator[FeatureBatch]:
        """Streams features in the order of the examples' ids, which must count from 0.

        Args:
          examples: gives an iterator over the examples.
          progress: called after every step of the device with what was done so far. Examples are
            computed by length and may wait for their turn, so this runs ahead of what is yielded.
        """
        counts = Counts()
        input_fn = TextInputFn(
            examples,
            self.tokenizer,
            buckets=self.buckets,
            window_tokens=self._window_tokens(),
        )
        waiting: dict[int, _Row] = {}
        ready: list[_Row] = []
        next_id = 0
        for batch, outputs in self._estimator.predict_batches(input_fn):
            waiting.update(_rows(batch, outputs))
            _count(batch, counts)
            if progress:
                progress(counts)
            while next_id in waiting:
                ready.append(waiting.pop(next_id))
                next_id += 1
                if len(ready) == _ROWS_PER_BATCH:
                    yield self._join(ready)
                    ready = []
        if ready:
            yield self._join(ready)

    def features(self) -> tuple[Feature, ...]:
        """The features that come out, as an output file describes them."""
        hidden_size = self.checkpoint.config.hidden_size
        return tuple(
            Feature(out.name, out.layers, out.combine, out.width(hidden_size), self.config.dtype)
            for out in self.outputs
        )

    def metadata(self) -> dict[str, Any]:
        """What a reader of the output must know to make it again."""
        checkpoint, vocab = self.checkpoint, self.checkpoint.vocab_file
        packages = ("bert_features", "tensorflow", "tensorflow-text", "keras", "numpy")
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
            "versions": {name: importlib.metadata.version(name) for name in packages}
            | {"python": platform.python_version()},
        }

    def _make_estimator(self, runtime: TensorFlowRuntime) -> Estimator:
        config = self.config
        model_fn = ModelFn(
            self.checkpoint.config,
            read_weights(self.checkpoint),
            self.outputs,
            precision=self.precision,
            dtype=config.dtype,
            use_one_hot_embeddings=config.use_one_hot_embeddings,
        )
        return Estimator(model_fn, runtime=runtime, predict_batch_size=config.batch_size)

    def _window_tokens(self) -> int:
        """How many tokens may be sorted together so that their features fit the buffer."""
        itemsize = np.dtype(self.config.dtype).itemsize
        bytes_per_token = sum(feature.width for feature in self.features()) * itemsize
        return max(1, self.config.buffer_mb * 2**20 // bytes_per_token)

    def _join(self, rows: list["_Row"]) -> FeatureBatch:
        lengths = [len(row.token_ids) for row in rows]
        token_ids = np.concatenate([row.token_ids for row in rows])
        return FeatureBatch(
            unique_ids=np.array([row.unique_id for row in rows], np.int64),
            row_splits=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
            token_ids=token_ids,
            tokens=self._pieces[token_ids].tolist(),
            features={
                name: np.concatenate([row.features[name] for row in rows])
                for name in rows[0].features
            },
        )


def _resolve_precision(
    precision: Literal["auto", "float32", "bfloat16"], device_kind: str
) -> Precision:
    if precision != "auto":
        return precision
    return "bfloat16" if device_kind == "tpu" else "float32"


@dataclass(frozen=True)
class _Row:
    """One example's results: views into its batch's arrays, padding cut off."""

    unique_id: int
    token_ids: np.ndarray
    features: dict[str, np.ndarray]


def _rows(
    batch: dict[str, np.ndarray], outputs: dict[str, np.ndarray]
) -> Iterator[tuple[int, _Row]]:
    lengths = batch["input_mask"].sum(axis=1)
    for row, unique_id in enumerate(batch["unique_ids"].tolist()):
        if unique_id != FILLER_ID:
            real = slice(int(lengths[row]))
            features = {name: values[row, real] for name, values in outputs.items()}
            yield unique_id, _Row(unique_id, batch["input_word_ids"][row, real], features)


def _count(batch: dict[str, np.ndarray], counts: Counts) -> None:
    counts.examples += int(np.count_nonzero(batch["unique_ids"] != FILLER_ID))
    counts.tokens += int(batch["input_mask"].sum())
    counts.computed_tokens += batch["input_mask"].size
    counts.tokens_lost += int(batch["tokens_lost"].sum())
    counts.truncated_examples += int(np.count_nonzero(batch["tokens_lost"]))


def extract(
    config: ExtractConfig,
    input_path: str | Path,
    output_path: str | Path,
    *,
    overwrite: bool = False,
    progress: Callable[[Counts, int | None], None] | None = None,
) -> ExtractSummary:
    """Extracts features of a text file into a file.

    The output appears under its name only when it is whole; on any failure nothing is left.

    Args:
      config: the settings.
      input_path: a text file, one example per line, or `-` for standard input.
      output_path: the file to write.
      overwrite: whether an existing file may be replaced.
      progress: called after every step of the device with what was done so far and the number of
        examples of the input (None if it cannot be known).

    Raises:
      BertFeaturesError: what was wrong, in one sentence.
    """
    # What is cheap to refuse comes before what is dear to load.
    check_output(output_path, format=config.format, overwrite=overwrite)
    total = count_examples(input_path)
    extractor = FeatureExtractor(config)
    started = time.monotonic()
    counts = Counts()

    def note(latest: Counts) -> None:
        nonlocal counts
        counts = latest
        if progress:
            progress(latest, total)

    examples = functools.partial(read_examples, input_path, encoding_errors=config.encoding_errors)
    output_path = Path(output_path)
    with open_writer(
        output_path,
        format=config.format,
        features=extractor.features(),
        metadata=extractor.metadata(),
        overwrite=overwrite,
    ) as writer:
        for batch in extractor.batches(examples, progress=note):
            writer.write(batch)
    return ExtractSummary(counts, time.monotonic() - started, writer.bytes_written, output_path)


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
    """Token vectors of texts, by the call that the tutorials use.

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
      **settings: any other setting of `ExtractConfig`.

    Returns:
      For each text its (token, vector) pairs in order, [CLS] and [SEP] included; a vector is
      float32 [min(dim, D)].

    Raises:
      ConfigError: a setting is not allowed; `combine` is `none`, which has no single vector.
      CheckpointError: the checkpoint is not usable.
    """
    if combine == "none":
        raise ConfigError("combine is 'none'; get_features gives one vector: sum, mean or concat")
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
        list(zip(record.tokens, record.features["features"][:, :dim], strict=True))
        for record in _extractor(config)(texts)
    ]


@functools.lru_cache(maxsize=1)
def _extractor(config: ExtractConfig) -> FeatureExtractor:
    return FeatureExtractor(config)


def _find(config: ExtractConfig) -> Checkpoint:
    return find_checkpoint(
        config.checkpoint,
        config_file=config.config_file,
        vocab_file=config.vocab_file,
        hidden_act=config.hidden_act,
    )


def make_tokenizer(checkpoint: Checkpoint, do_lower_case: bool | None = None) -> FullTokenizer:
    """The tokenizer of a checkpoint.

    Args:
      checkpoint: what `find_checkpoint` found.
      do_lower_case: the casing; by default what the checkpoint tells.

    Raises:
      CheckpointError: there is no vocabulary, it is not the checkpoint's, or the casing contradicts
        it.
      ConfigError: neither the checkpoint nor the setting tells the casing.
    """
    if checkpoint.vocab_file is None:
        raise CheckpointError(
            f"no vocab.txt lies beside {checkpoint.weights_path}; pass --vocab-file"
        )
    tokens = read_vocab(checkpoint.vocab_file)
    check_vocab(tokens, checkpoint.config, checkpoint.vocab_file)
    if do_lower_case is None:
        do_lower_case = checkpoint.do_lower_case
    if do_lower_case is None:
        raise ConfigError(f"{checkpoint.name} does not tell its casing; pass --uncased or --cased")
    check_casing(checkpoint, do_lower_case)
    return FullTokenizer(tokens, do_lower_case=do_lower_case)
