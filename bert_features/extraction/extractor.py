"""FeatureExtractor: a checkpoint ready to turn texts into features, in the order of the input."""

import copy
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from bert_features.checkpoints.checkpoint import Checkpoint
from bert_features.checkpoints.modules.sentence_transformers import read_dense
from bert_features.checkpoints.read import view_weights
from bert_features.config.extract_config import ExtractConfig
from bert_features.config.features import OutputSpec
from bert_features.config.input_format import FIELD_NAMES, InputFormat
from bert_features.config.kinds import needs
from bert_features.config.output_specs import as_floats, dense_modules, has_words, needs_pooler
from bert_features.config.recipe import RECIPE, Canaries, Recipe
from bert_features.config.settings import shown
from bert_features.errors import ConfigError
from bert_features.extraction import losses
from bert_features.extraction.calibration import TakesRanges
from bert_features.extraction.canaries import compute_canaries
from bert_features.extraction.counts import Counts, ExampleCounts, counts_by_example
from bert_features.extraction.encoding import check_spans, choose_output, collect, progress_bar
from bert_features.extraction.feature_store import FeatureStore
from bert_features.extraction.pickled import PickledBySettings
from bert_features.extraction.prompts import QueryPrompt
from bert_features.extraction.recipe import make_recipe
from bert_features.extraction.similarity import EncodesForSearch
from bert_features.formats.records import FeatureBatch, FeatureRecord
from bert_features.formats.small_vectors import quantize
from bert_features.formats.sparse import to_csr
from bert_features.machine.quiet_tensorflow import import_tensorflow
from bert_features.monitor.interruption import heard, raise_if_interrupted
from bert_features.monitor.stages import StageClock
from bert_features.readers.examples import Table, Texts, examples_of_texts
from bert_features.readers.input_example import InputExample
from bert_features.readers.labels import check_labels
from bert_features.runtime.base import Runtime
from bert_features.runtime.loop import prefetched, run_step

# The rest imports Keras, whose backend the settings of an extractor choose.
if TYPE_CHECKING:
    from bert_features.batches.input_fn import Batch, Pool, TextInputFn


# Settings without a meaning for texts in memory, which may be a table with fields.
_FILE_SETTINGS = {"input_format", "encoding_errors", *InputFormat.model_fields} - {*FIELD_NAMES}
_FILE_SETTINGS.remove("format")  # of the output


class FeatureExtractor(PickledBySettings, EncodesForSearch, TakesRanges):
    """A checkpoint made ready to turn texts into features.

    Copies share its weights. Pickled, it is its settings, from which it is made again.

    Args:
      config: the settings; the settings of the output file are not used here.
      runtime: the runtime, if started already; by default the one of the settings.
      checkpoint: the checkpoint of the settings, if it has been found already.

    Attributes:
      preparation: the settings, resolved against their checkpoint.
      config: the settings; `max_seq_length` is resolved against the checkpoint.
      checkpoint: the checkpoint.
      outputs: the outputs, resolved against the checkpoint.
      tokenizer: the checkpoint's tokenizer.
      prompts: the checkpoint's prompts, by the names that `encode` takes.
      devices: the devices that compute.
      precision: precision of the arithmetic, `float32`, `bfloat16` or `int8`.
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
        if not isinstance(config, ExtractConfig):
            raise ConfigError(
                f"config is {shown(config)}; for a checkpoint call "
                f"{type(self).__name__}.from_checkpoint({shown(config)})"
            )
        import_tensorflow(config.runtime, config.device)
        from bert_features.encoder.step import DeviceStep
        from bert_features.extraction.int8 import calibration_batches
        from bert_features.extraction.preparation import Preparation

        self.preparation = Preparation(config, runtime=runtime, checkpoint=checkpoint)
        self.config = self.preparation.config
        self.checkpoint = self.preparation.checkpoint
        self.outputs = self.preparation.outputs
        self.tokenizer = self.preparation.tokenizer
        self.devices = self.preparation.devices
        self.precision = self.preparation.precision
        weights = view_weights(
            self.checkpoint, pooler=needs_pooler(self.outputs), head=needs(self.outputs, "head")
        )
        weights |= read_dense(self.checkpoint, dense_modules(self.outputs))
        in_int8 = self.precision == "int8"
        self._model = DeviceStep(
            self.checkpoint.config,
            weights,
            self.preparation.device_outputs,
            special_ids=self.tokenizer.frame.special_ids,
            pieces=len(self.tokenizer.tokens),
            precision=self.precision,
            use_one_hot_embeddings=self.config.use_one_hot_embeddings,
            fuse_qkv=self.devices.kind != "tpu",
            packed=self.preparation.packing,
            calibration=calibration_batches(self.preparation) if in_int8 else (),
        )
        self._step = self.preparation.runtime.compile(
            self._model.step, self._model.weights, longest=self.preparation.shapes.buckets[-1]
        )
        self.pieces = np.array(self.tokenizer.tokens, object)

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
        config = ExtractConfig.of({"checkpoint": str(checkpoint), **settings})
        for name in sorted(_FILE_SETTINGS & settings.keys()):
            if settings[name] is not None:
                raise ConfigError(
                    f"{name} is {shown(settings[name])}, which is for files that extract() reads; "
                    "leave it out"
                )
        return cls(config)

    from_pretrained = from_checkpoint  # the name in transformers

    def with_outputs(self, names: Sequence[str], *, same_rows: bool = False) -> Self:
        """An extractor of some of the outputs alone, in the order of the settings.

        It shares the weights of this one, and computes no other layers.

        Args:
          names: names of outputs; a ConfigError if there is none, or no output of a name.
          same_rows: whether the rows of texts, with their prompt, are as here; by default they are
            as in an extractor made with these outputs.
        """
        other, wanted = copy.copy(self), self.preparation.with_outputs(names, same_rows=same_rows)
        other.preparation, other.config, other.outputs = wanted, wanted.config, wanted.outputs
        vars(other).pop("canaries", None)
        other._model = model = self._model.computing(wanted.device_outputs)
        other._step = wanted.runtime.compile(model.step, model.weights, shares_weights=True)
        return other

    def __repr__(self) -> str:
        outputs = ", ".join(output.describe() for output in self.outputs)
        name, devices = self.checkpoint.name, f"{self.devices.count} {self.devices.kind}"
        return f"<FeatureExtractor {name}: {outputs}; {self.precision} on {devices}>"

    @heard()
    def __call__(
        self,
        texts: Texts | Table,
        *,
        text_field: str | None = None,
        text_b_field: str | None = None,
        tokens_field: str | None = None,
        id_field: str | None = None,
        label_field: str | None = None,
        spans: Sequence[Any] | None = None,
        span_field: str | None = None,
    ) -> list[FeatureRecord]:
        """The features of texts in memory.

        Warnings are logged if truncation cuts any, if many of the tokens are [UNK], and if features
        are not finite.

        Args:
          texts: one example each: a text, a tuple of two texts for a pair, a list of words, or an
            `InputExample`. Or a table (pandas, polars, Arrow, a Hugging Face Dataset) with the
            names of its columns; of a pandas Series the index holds the ids.
          text_field: column of the texts of a table; by default as in the settings.
          text_b_field: column of the second texts of pairs; by default `text_b` if there is one.
          tokens_field: column of lists of words, instead of `text_field`.
          id_field: column of the ids; by default `id` if there is one.
          label_field: column of the labels of words, a list for each text; by default as in the
            settings.
          spans: for outputs of level 'span' the spans of each text: a list of (begin, end), (begin,
            end, label) or (begin, end, label, type_id), in characters, type_id 1 for a second text.
          span_field: column of the spans of a table; by default as in the settings.

        Returns:
          For each text, in order, its features by name, [tokens, D], [words, D] or [D]; its tokens
          ([CLS] and [SEP] included), their ids and their places if a feature has level 'token'; its
          words, their places and their labels, if there are any, if a feature has level 'word';
          and its spans in `units`.

        Raises:
          ConfigError: a shard is set, which is a share of a file; or a column is named, and `texts`
            is no table.
          InputError: `texts` is a single string, contains something other than texts, or is a table
            whose columns are not named or do not fit.
        """
        found = examples_of_texts(
            texts,
            self.config.input_settings(),
            text_field=text_field,
            text_b_field=text_b_field,
            tokens_field=tokens_field,
            id_field=id_field,
            label_field=label_field,
            spans=spans,
            span_field=span_field,
        )
        check_spans(spans, self.outputs)
        if label_field is not None and not has_words(self.outputs):
            raise ConfigError(
                f"label_field is {label_field!r}, and no output has level 'word'; leave it out"
            )
        examples = list(found)  # a wrong one is found before the rest
        batches = self._for_labels_of(examples)._batches_in_memory(examples)
        records = [record for batch in batches for record in batch.records(self.outputs)]
        return self.preparation.with_offsets(records, examples)

    def _for_labels_of(self, examples: Sequence[InputExample]) -> Self:
        """A copy whose outputs of words have labels, if an example brings some."""
        if not has_words(self.outputs) or all(example.labels is None for example in examples):
            return self
        for example in examples:
            check_labels(example)
        other = copy.copy(self)
        other.outputs = tuple(replace(o, labelled=o.unit == "word") for o in self.outputs)
        return other

    @heard()
    def encode(
        self,
        texts: Texts | Table | str | InputExample,
        output: str | None = None,
        *,
        ragged: bool = False,
        text_field: str | None = None,
        text_b_field: str | None = None,
        tokens_field: str | None = None,
        spans: Sequence[Any] | None = None,
        span_field: str | None = None,
        prompt: str | None = None,
        prompt_name: str | None = None,
        show_progress: bool = False,
        **unknown: Any,
    ) -> Any:
        """The vectors of texts in memory as NumPy arrays; warnings are logged as in a call.

        Args:
          texts: as in a call, but their ids are not read; or a single text. Texts of an iterator
            are taken one by one, so that only their vectors are in memory.
          output: name of the output to return; not needed if there is only one.
          ragged: return the vectors of tokens or words without padding.
          text_field: column of the texts of a table, as in a call.
          text_b_field: column of the second texts of pairs.
          tokens_field: column of lists of words, instead of `text_field`.
          spans: the spans of each text, as in a call; of a single text its own.
          span_field: column of the spans of a table.
          prompt: a text to put before each text; an empty one for none.
          prompt_name: the name of one of the checkpoint's prompts, instead of `prompt`. By default
            the default prompt of the checkpoint, if an output has pooling `auto`, else none.
          show_progress: show a progress bar on standard error.
          **unknown: is refused, with what to use instead.

        Returns:
          By the level of the output, in the order of the texts and in the dtype of the output:
          `sequence`: [N, D]. `token` ([CLS] and [SEP] included), `word` and `span`: `Padded(values
          [N, S, D], mask [N, S])`, or with `ragged` `Ragged(values [T, D], row_splits [N + 1])`. Of
          a single text its own array, [D], [S, D] or of attention [D, S, S]. Of kind `sparse` a
          `scipy.sparse.csr_matrix` [N, V], also of a single text.

        Raises:
          ConfigError: there are several outputs and `output` is None, or there is none of that
            name; the prompt is unknown or does not fit the outputs; a shard is set; a keyword is
            unknown.
          InputError: `texts` contains something other than texts.
          MissingExtraError: SciPy, which sparse vectors need, is not installed.
        """
        self.refuse(unknown)
        wanted = choose_output(self.outputs, output)
        prompt = self.preparation.prompts.find(prompt, prompt_name)
        single = isinstance(texts, str | InputExample)
        found = examples_of_texts(
            texts,
            self.config.input_settings(),
            text_field=text_field,
            text_b_field=text_b_field,
            tokens_field=tokens_field,
            with_ids=False,
            spans=None if spans is None else [spans] if single else spans,
            span_field=span_field,
        )
        check_spans(spans, self.outputs)
        # A wrong one is found before anything is computed.
        examples = list(found) if isinstance(texts, Sized | InputExample) else found
        with progress_bar(examples, shown=show_progress) as progress:
            batches = self._batches_in_memory(examples, prompt, progress)
            if wanted.max_units:
                return to_csr(batches, wanted, self.checkpoint.config.vocab_size)
            count = len(examples) if isinstance(examples, list) else None
            return collect(batches, wanted, single=single, ragged=ragged, count=count)

    def _batches_in_memory(
        self,
        examples: Iterable[InputExample],
        prompt: str | None = None,
        progress: Callable[[Counts], None] | None = None,
    ) -> Iterator[FeatureBatch]:
        """As `batches`; refuses a shard."""
        if self.config.shard is not None:
            raise ConfigError(
                f"shard is {self.config.shard!r}, which is for files that extract() reads; with "
                "texts in memory, pass only the texts to compute"
            )
        threads = not (isinstance(examples, list) and self.preparation.fit_one_batch(examples))
        return self.batches(lambda: examples, progress=progress, prompt=prompt, threads=threads)

    def batches(
        self,
        examples: Callable[[], Iterable[InputExample]],
        *,
        counts: Counts | None = None,
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
          counts: the totals so far, to which the examples are added.
          progress: called after every step with the totals so far, which are ahead of the output.
          ledger: called for each example, in order, with its counts.
          prompt: a text to put before each text; None for the default, see `encode`.
          threads: prepare and compute batches in threads. A few examples are done sooner without.
          warn: log a warning at the end of each loss.
          stages: measures all stages but writing.
          store: features of texts that are known; each other text is computed once and added.

        Raises:
          ConfigError: the outputs cannot have a prompt.
          InputError: the examples cannot be read, or the long text policy refuses one.
        """
        from bert_features.extraction.assembly import regroup
        from bert_features.extraction.reuse import Reuse

        outputs = self.calibrated()[0].outputs
        totals, stages = counts or Counts(), stages or StageClock()
        input_fn = self.preparation.input_fn(examples, prompt=prompt, stages=stages)
        reuse = None
        if store is not None:
            # The texts that it computes have their prompt already.
            compute = functools.partial(self.compute, counts=totals, prompt="", few=False)
            reuse = Reuse(store, input_fn, as_floats(outputs), compute, totals, stages)
        steps = self._run(input_fn, (reuse or input_fn).pools(), totals, stages, threads=threads)

        def finished() -> Iterator[FeatureBatch]:
            for batch, results in steps:
                if reuse is not None and (results is not None or not batch.columns):
                    results = reuse.expand(batch.pool, results)
                if results is not None:
                    totals.add_examples(results.counts)
                    totals.add_clipped(results, outputs)
                    for example in counts_by_example(results) if ledger else ():
                        ledger(example)  # type: ignore[misc]
                raise_if_interrupted()
                if progress:
                    progress(totals)
                if results is not None:
                    yield results

        small = functools.partial(quantize, features=outputs)
        yield from map(small, regroup(finished(), self.pieces))  # it keeps no batch
        if warn:
            sides = self.preparation.sides
            length = sides.query.length if sides and isinstance(prompt, QueryPrompt) else None
            losses.warn_without_summary(totals, self.preparation.given, self.checkpoint, length)

    def features(self) -> tuple[OutputSpec, ...]:
        """The features of each example, as an output file describes them."""
        return self.with_ranges(self._file_ranges()).outputs

    @functools.cached_property
    def canaries(self) -> Canaries:
        """The vectors of fixed texts by the outputs, see `Recipe`."""
        return compute_canaries(self)

    @property
    def recipe(self) -> Recipe:
        """How the vectors are made, see `bert_features.compare`."""
        return make_recipe(self.preparation, self.features(), self.canaries)

    def metadata(self) -> dict[str, Any]:
        """What a features file records of how its vectors were made."""
        return {RECIPE: self.recipe.to_json()}

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

    def warm_up(self) -> None:
        """Compiles the step for each shape that `compute` may meet, by a batch of padding."""
        params = self.preparation.batch_params(few=True)
        for shape in self.preparation.input_fn(lambda: ()).shapes(params).declared:
            self._step.run({name: np.zeros(shape, np.int32) for name in self._model.inputs})

    def compute(
        self,
        examples: Sequence[InputExample],
        counts: Counts,
        *,
        prompt: str | None = None,
        few: bool = True,
    ) -> FeatureBatch:
        """The results of examples in memory, in their order.

        Several threads may call it at the same time.

        Args:
          examples: at least one.
          counts: to these the batches are added.
          prompt: see `batches`.
          few: whether all is done in the caller's thread. The last bits may differ otherwise.

        Raises:
          ConfigError: the examples cannot have the prompt.
          InputError: the long text policy refuses an example.
        """
        input_fn = self.preparation.input_fn(lambda: examples, prompt=prompt)
        # A clock of its own: a run that computes these apart measures its own stages.
        clock, pools = StageClock(), input_fn.pools()
        computed = self._run(input_fn, pools, counts, clock, threads=not few)
        return FeatureBatch.join([results for _, results in computed if results is not None])

    def _run(
        self,
        input_fn: "TextInputFn",
        pools: "Iterator[Pool]",
        counts: Counts,
        stages: StageClock,
        *,
        threads: bool,
    ) -> "Iterator[tuple[Batch, FeatureBatch | None]]":
        """The batches of an input; the last one of each pool with the pool's results.

        Without threads it is one of few texts.
        """
        from bert_features.extraction.assembly import assemble

        # Two threads: one reads and tokenizes the next pool, one cuts this one into batches.
        pools = prefetched(pools) if threads else pools
        computed = run_step(
            self._step,
            input_fn.stream(self.preparation.batch_params(few=not threads), pools),
            lambda batch: {n: batch.columns[n] for n in self._model.inputs if batch.columns},
            stages,
            ahead=threads,
        )
        return assemble(
            computed,
            as_floats(self.outputs),
            in_windows=self.preparation.in_windows,
            unknown_id=self.tokenizer.frame.unknown_id,
            counts=counts,
            stages=stages,
        )
