"""FeatureExtractor: a checkpoint ready to turn texts into features, in the order of the input."""

import copy
import functools
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np

from bert_features.batches.input_fn import Batch, TextInputFn, Window
from bert_features.checkpoints.checkpoint import Checkpoint
from bert_features.checkpoints.read import read_weights
from bert_features.config.extract_config import ExtractConfig
from bert_features.config.output_specs import (
    OutputSpec,
    needs_pooler,
    outputs_on_device,
)
from bert_features.config.settings import shown
from bert_features.encoder.step import DeviceStep, Precision
from bert_features.errors import ConfigError, as_keyword
from bert_features.extraction import losses
from bert_features.extraction.assembly import Assembler
from bert_features.extraction.counts import Counts, ExampleCounts, counts_by_example
from bert_features.extraction.encoding import choose_output, collect, progress_bar
from bert_features.extraction.entries import Codec
from bert_features.extraction.feature_store import FeatureStore
from bert_features.extraction.preparation import Preparation
from bert_features.extraction.reuse import Reuse
from bert_features.extraction.similarity import SIMILARITY_FUNCTIONS, compute_similarity
from bert_features.extraction.versions import describe_vocabulary, find_versions
from bert_features.formats.records import Feature, FeatureBatch, FeatureRecord
from bert_features.monitor.stages import StageClock
from bert_features.readers.examples import Table, Texts, examples_of_texts
from bert_features.readers.input_example import InputExample
from bert_features.runtime.base import CompiledStep, Runtime
from bert_features.runtime.loop import prefetched, run_in_turn, run_step
from bert_features.text.vocabulary import CLS, SEP, UNK

logger = logging.getLogger("bert_features")

# A bfloat16 product that takes longer than this many float32 ones is worth a warning.
_TOLERATED_SLOWDOWN = 1.1


class FeatureExtractor:
    """A checkpoint made ready to turn texts into features.

    Args:
      config: the settings; those of the output file are not used here.
      runtime: the runtime, if started already; by default the one of the settings.
      checkpoint: the checkpoint of the settings, if it has been found already.

    Attributes:
      preparation: the settings, resolved against their checkpoint.
      config: the settings; `max_seq_length` is resolved against the checkpoint.
      checkpoint: the checkpoint.
      outputs: the outputs, resolved against the checkpoint.
      tokenizer: the checkpoint's tokenizer.
      devices: the devices that compute.
      precision: precision of the arithmetic, `float32` or `bfloat16`.
      pieces: the vocabulary, an array of str.

    Raises:
      CheckpointError: the checkpoint, its vocabulary or its casing is not usable.
      ConfigError: a setting does not fit the checkpoint, or the wanted device is absent.
    """

    def __init__(
        self,
        config: ExtractConfig,
        *,
        runtime: Runtime | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        self.preparation = Preparation(config, runtime=runtime, checkpoint=checkpoint)
        self.config = self.preparation.config
        self.checkpoint = self.preparation.checkpoint
        self.outputs = self.preparation.outputs
        self.tokenizer = self.preparation.tokenizer
        self.devices = self.preparation.devices
        self.precision = _resolve_precision(config.precision, self.devices.kind)
        if self.precision == "bfloat16" and self.devices.kind == "cpu":
            _warn_if_slow(self.preparation.runtime)
        self._model = self._load_model()
        self._step = self._compile()
        self.pieces = np.array(self.tokenizer.tokens, object)
        (self._unknown_id,) = self.tokenizer.convert_tokens_to_ids([UNK])

    @classmethod
    def from_checkpoint(cls, checkpoint: str | Path = "minilm", **settings: Any) -> Self:
        """Makes an extractor for a checkpoint.

        Args:
          checkpoint: `minilm` (the embedded all-MiniLM-L6-v2, not Google's BERT), a directory, a
            TF1 checkpoint prefix or a .safetensors file.
          **settings: any other setting of `ExtractConfig`: layers, combine, max_seq_length, …

        Raises:
          CheckpointError: the checkpoint is not usable.
          ConfigError: an unknown setting, or a value that is not allowed.
        """
        return cls(ExtractConfig.of({"checkpoint": str(checkpoint), **settings}))

    def with_outputs(self, names: Sequence[str]) -> Self:
        """An extractor of some of the outputs alone, in the order of the settings.

        It shares the weights of this one. Layers that only other outputs need are not computed.

        Args:
          names: names of outputs, as in `outputs`.

        Raises:
          ConfigError: there is no name, or no output of a name.
        """
        other = copy.copy(self)
        other.preparation = self.preparation.with_outputs(names)
        other.outputs = other.preparation.outputs
        other._model = self._model.computing(other._outputs_on_device())
        other._step = other._compile()
        return other

    def __repr__(self) -> str:
        outputs = ", ".join(output.describe() for output in self.outputs)
        devices = f"{self.devices.count} {self.devices.kind}"
        return (
            f"<FeatureExtractor {self.checkpoint.name}: {outputs}; {self.precision} on {devices}>"
        )

    def __call__(
        self,
        texts: Texts | Table,
        *,
        text_field: str | None = None,
        text_b_field: str | None = None,
        tokens_field: str | None = None,
        id_field: str | None = None,
    ) -> list[FeatureRecord]:
        """The features of texts in memory.

        Warnings are logged if truncation cuts any, if many of the tokens are [UNK], and if features
        are not finite.

        Args:
          texts: one example each: a text, a tuple of two texts for a pair, a list of words, or an
            `InputExample`. Or a table (pandas, polars, Arrow, a Hugging Face Dataset) with the
            names of its columns; of a pandas Series the index holds the ids.
          text_field: column of the texts of a table; by default that of the settings.
          text_b_field: column of the second texts of pairs; by default `text_b` if there is one.
          tokens_field: column of lists of words, instead of `text_field`.
          id_field: column of the ids; by default `id` if there is one.

        Returns:
          For each text, in order, its features by name, [tokens, D], [words, D] or [D]; its tokens
          ([CLS] and [SEP] included) and their ids if a feature has level 'token'; its words and
          their places if a feature has level 'word'.

        Raises:
          ConfigError: a shard is set, which is a share of a file; or a column is named, and `texts`
            is no table.
          InputError: `texts` is a single string, contains something other than texts, or is a table
            whose columns are not named or do not fit.
        """
        found, _ = self._examples(
            texts,
            text_field=text_field,
            text_b_field=text_b_field,
            tokens_field=tokens_field,
            id_field=id_field,
        )
        examples = list(found)  # a wrong one is found before anything is computed
        batches = self._batches_in_memory(lambda: examples)
        return [record for batch in batches for record in batch.records(self.features())]

    def encode(
        self,
        texts: Texts | Table | str | InputExample,
        output: str | None = None,
        *,
        ragged: bool = False,
        text_field: str | None = None,
        text_b_field: str | None = None,
        tokens_field: str | None = None,
        prompt: str | None = None,
        prompt_name: str | None = None,
        show_progress: bool = False,
    ) -> Any:
        """The vectors of texts in memory as NumPy arrays; warnings are logged as in a call.

        Args:
          texts: as in a call; or a single text. Texts of an iterator are taken one by one, so that
            only their vectors are in memory.
          output: name of the output to return; not needed if there is only one.
          ragged: return the vectors of tokens or words without padding.
          text_field: column of the texts of a table, as in a call.
          text_b_field: column of the second texts of pairs.
          tokens_field: column of lists of words, instead of `text_field`.
          prompt: a text to put before each text; an empty one for none.
          prompt_name: the name of one of the checkpoint's prompts, instead of `prompt`. By default
            the default prompt of the checkpoint, if an output has pooling `auto`, else none.
          show_progress: show a progress bar on standard error.

        Returns:
          By the level of the output, in the order of the texts and in the dtype of the output:
          `sequence`: [N, D]. `token` ([CLS] and [SEP] included) and `word`: `Padded(values [N, S,
          D], mask [N, S])`, or with `ragged` `Ragged(values [T, D], row_splits [N + 1])`. Of a
          single text its own array, [D] or [S, D].

        Raises:
          ConfigError: there are several outputs and `output` is None, or there is none of that
            name; the prompt is unknown or does not fit the outputs; a shard is set.
          InputError: `texts` contains something other than texts.
        """
        wanted = choose_output(self.outputs, output)
        prompt = self.preparation.prompts.find(prompt, prompt_name)
        single = isinstance(texts, str | InputExample)
        examples, count = self._examples(
            [texts] if isinstance(texts, str | InputExample) else texts,
            text_field=text_field,
            text_b_field=text_b_field,
            tokens_field=tokens_field,
        )
        with progress_bar(count, shown=show_progress) as progress:
            batches = self._batches_in_memory(lambda: examples, prompt, progress)
            return collect(batches, wanted, count, single=single, ragged=ragged)

    def similarity(self, a: Any, b: Any = None, *, function: str | None = None) -> np.ndarray:
        """The similarity of each vector of `a` with each of `b`.

        Args:
          a: [N, D], or a single vector, [D].
          b: [M, D] or [D]; by default `a` itself.
          function: `cosine`, or `dot` for the plain product; by default what the checkpoint
            records, else `cosine`.

        Returns:
          float32 [N, M].

        Raises:
          ConfigError: the function, or the one that the checkpoint records, is neither of the two;
            the vectors have other shapes, or their widths differ.
        """
        settings = self.checkpoint.sentence_transformers
        recorded = None if settings is None else settings.similarity
        if function is None and recorded is not None and recorded not in SIMILARITY_FUNCTIONS:
            raise ConfigError(
                f"{self.checkpoint.name} records the similarity function {shown(recorded)}, which "
                "is not available; pass function='cosine' or function='dot'"
            )
        return compute_similarity(a, b, function=function or recorded or "cosine")

    def _examples(
        self, texts: Texts | Table, **fields: str | None
    ) -> tuple[Iterable[InputExample], int | None]:
        """The examples of texts, and their number; texts of an iterator are taken one by one."""
        examples = examples_of_texts(texts, self.config.input_settings(), **fields)
        if not isinstance(texts, Sized):
            return examples, None
        in_memory = list(examples)  # a wrong one is found before anything is computed
        return in_memory, len(in_memory)

    def _batches_in_memory(
        self,
        examples: Callable[[], Iterable[InputExample]],
        prompt: str | None = None,
        progress: Callable[[Counts], None] | None = None,
    ) -> Iterator[FeatureBatch]:
        """As `batches`; refuses a shard, and logs a warning if truncation cut any text."""
        if self.config.shard is not None:
            raise ConfigError(
                f"shard is {self.config.shard!r}, a share of the file that extract() reads; of "
                "texts in memory pass those that are to be computed"
            )
        counts = Counts()

        def note(latest: Counts) -> None:
            nonlocal counts
            counts = latest
            if progress:
                progress(latest)

        found = examples()
        few = isinstance(found, list) and self.preparation.fit_one_batch(found)
        yield from self.batches(examples, progress=note, prompt=prompt, threads=not few)
        if counts.truncated_examples:
            cures = self.preparation.truncation_cures()
            keywords = " or ".join(as_keyword(*cure) for cure in cures.items())
            logger.warning(
                "%d of %d texts did not fit max_seq_length %d and lost %d tokens%s%s",
                counts.truncated_examples,
                counts.examples,
                self.preparation.max_seq_length,
                counts.tokens_lost,
                " of their shorter texts, which may take half of a window"
                if self.preparation.in_windows
                else "",
                f"; to keep more, pass {keywords}" if keywords else "",
            )

    def batches(
        self,
        examples: Callable[[], Iterable[InputExample]],
        *,
        progress: Callable[[Counts], None] | None = None,
        ledger: Callable[[ExampleCounts], None] | None = None,
        prompt: str | None = None,
        threads: bool = True,
        warn: bool = True,
        stages: StageClock | None = None,
        store: FeatureStore | None = None,
    ) -> Iterator[FeatureBatch]:
        """Streams features in the order of the examples.

        Args:
          examples: gives an iterator over the examples.
          progress: called after every step of the device with the totals so far. Examples are
            computed by length and may wait for their turn, so this runs ahead of the output.
          ledger: called for each example, in order, with its counts.
          prompt: a text to put before each text; None for the default, see `encode`.
          threads: prepare and compute batches at the same time, in threads. A few examples in
            memory are done sooner without.
          warn: log a warning at the end if the features are worthless (`losses.warn`).
          stages: measures all stages but writing.
          store: features of texts that are known; each other text is computed once and added.

        Raises:
          ConfigError: the outputs cannot have a prompt.
          InputError: the examples cannot be read, or the long text policy refuses one.
        """
        counts, stages = Counts(), stages or StageClock()
        input_fn = self.preparation.input_fn(examples, prompt=prompt, stages=stages)
        assembler, windows = self._assembler(), input_fn.windows()
        if store is not None:
            compute = functools.partial(self._compute, counts=counts)
            reuse = Reuse(store, input_fn, Codec(self.outputs), compute, counts, stages)
            assembler, windows = self._assembler(reuse.expand), reuse.windows()
        for batch, outputs in self._run(input_fn, windows, stages, threads=threads):
            stages.lead("assemble")
            finished = assembler.add(batch, outputs)
            counts.add_batch(batch.columns)
            if finished is not None:
                counts.add_examples(finished.counts)
                if ledger:
                    for example in counts_by_example(finished):
                        ledger(example)
            if progress:
                progress(counts)
            yield from assembler.take_batches()
        stages.lead("assemble")
        yield from assembler.take_batches(flush=True)
        if warn:
            losses.warn(counts, self.checkpoint)

    def features(self) -> tuple[Feature, ...]:
        """The features of each example, as an output file describes them."""
        return self.preparation.features()

    def metadata(self) -> dict[str, Any]:
        """The facts that a reader of the output needs to make it again."""
        checkpoint = self.checkpoint
        versions = find_versions(self.preparation.runtime.name)
        versions.pop("jaxlib", None)  # files and caches never named it
        return {
            "config": self.config.model_dump(
                mode="json", exclude=set(ExtractConfig.names("reuse"))
            ),
            "checkpoint": {
                "name": checkpoint.name,
                "family": checkpoint.family,
                "sha256": checkpoint.sha256,
                "bert_config": checkpoint.config.model_dump(mode="json"),
            },
            "vocabulary": describe_vocabulary(checkpoint),
            "do_lower_case": self.tokenizer.do_lower_case,
            **self.preparation.prompts.metadata(),
            "precision": self.precision,
            "runtime": self.preparation.runtime.name,
            "versions": versions,
        }

    @property
    def device(self) -> str:
        """What the features depend on beside the settings: runtime, kind of device, precision."""
        return ", ".join((self.preparation.runtime.name, self.devices.kind, self.precision))

    @property
    def in_flight(self) -> int:
        """Number of batches that the device computes and prepares at the same time."""
        return self._step.in_flight

    @property
    def traces(self) -> int:
        """Number of times the device step was traced so far."""
        return self._step.traces

    def _assembler(
        self, expand: Callable[[Window, FeatureBatch | None], FeatureBatch] | None = None
    ) -> Assembler:
        return Assembler(
            self.outputs,
            in_windows=self.preparation.in_windows,
            pieces=self.pieces,
            unknown_id=self._unknown_id,
            expand=expand,
        )

    def compute(self, examples: Sequence[InputExample], counts: Counts) -> FeatureBatch:
        """The results of examples in memory, in their order, computed in the caller's thread.

        Several threads may call it at the same time.

        Args:
          examples: at least one.
          counts: to these the batches are added.

        Raises:
          ConfigError: the examples cannot have the checkpoint's default prompt.
          InputError: the long text policy refuses an example.
        """
        input_fn = self.preparation.input_fn(lambda: examples)
        return self._compute(input_fn, counts, few=True)

    def _compute(self, input_fn: TextInputFn, counts: Counts, *, few: bool = False) -> FeatureBatch:
        """The results of an input that fits into memory; adds its batches to the counts."""
        assembler, parts = self._assembler(), []
        clock = StageClock()  # the run goes on to put results together, while this computes
        windows = input_fn.windows()
        for batch, outputs in self._run(input_fn, windows, clock, threads=not few, few=few):
            counts.add_batch(batch.columns)
            if (results := assembler.assemble(batch, outputs)) is not None:
                parts.append(results)
        return FeatureBatch.join(parts)

    def _run(
        self,
        input_fn: TextInputFn,
        windows: Iterator[Window],
        stages: StageClock,
        *,
        threads: bool,
        few: bool = False,
    ) -> Iterator[tuple[Batch, dict[str, np.ndarray]]]:
        """The batches of an input with their outputs, [B, S, D] or [B, D]."""
        windows = stages.queued("windows_prepared", windows)
        if threads:
            # Two threads: one reads and tokenizes the next window, one cuts this one into batches.
            windows = prefetched(windows)
        run = run_step if threads else run_in_turn
        return run(
            self._step,
            input_fn.stream(self.preparation.batch_params(few=few), windows),
            lambda batch: {
                name: batch.columns[name] for name in self._model.inputs if batch.columns
            },
            stages,
        )

    def _compile(self) -> CompiledStep:
        return self.preparation.runtime.compile(self._model.step, self._model.weights)

    def _outputs_on_device(self) -> tuple[OutputSpec, ...]:
        return outputs_on_device(self.outputs, in_windows=self.preparation.in_windows)

    def _load_model(self) -> DeviceStep:
        return DeviceStep(
            self.checkpoint.config,
            read_weights(self.checkpoint, pooler=needs_pooler(self.outputs)),
            self._outputs_on_device(),
            special_ids=self.tokenizer.convert_tokens_to_ids([CLS, SEP]),
            precision=self.precision,
            use_one_hot_embeddings=self.config.use_one_hot_embeddings,
            fuse_qkv=self.devices.kind != "tpu",
        )


def _resolve_precision(
    precision: Literal["auto", "float32", "bfloat16"], device_kind: str
) -> Precision:
    if precision != "auto":
        return precision
    return "bfloat16" if device_kind == "tpu" else "float32"


def _warn_if_slow(runtime: Runtime) -> None:
    slowdown = runtime.bfloat16_slowdown()
    if slowdown > _TOLERATED_SLOWDOWN:
        logger.warning(
            "precision is bfloat16, in which a matrix product takes %.1f times as long as in "
            "float32 on this CPU; float32 would be faster, and more exact",
            slowdown,
        )
