"""Pipeline: a checkpoint on a device, and the way of texts through it.

read → reuse → compute → assemble: each stage is an iterator over the one before.
"""

import copy
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from bert_features.checkpoints.checkpoint import Checkpoint
from bert_features.checkpoints.modules.sentence_transformers import read_dense
from bert_features.checkpoints.read import view_weights
from bert_features.config.extract_config import ExtractConfig
from bert_features.config.features import OutputSpec, Scale
from bert_features.config.kinds import needs
from bert_features.config.output_specs import as_floats, dense_modules, has_words, needs_pooler
from bert_features.config.recipe import RECIPE, Canaries, Recipe
from bert_features.config.settings import shown
from bert_features.errors import ConfigError
from bert_features.extraction import losses
from bert_features.extraction.canaries import compute_canaries
from bert_features.extraction.counts import Counts, ExampleCounts, counts_by_example
from bert_features.extraction.feature_store import FeatureStore
from bert_features.extraction.prompts import QueryPrompt
from bert_features.extraction.recipe import make_recipe
from bert_features.extraction.scales import add_scales, scales_of_files, with_scales
from bert_features.formats.canaries import check_numbers
from bert_features.formats.records import FeatureBatch
from bert_features.formats.small_vectors import quantize
from bert_features.machine.quiet_tensorflow import import_tensorflow
from bert_features.monitor.interruption import raise_if_interrupted
from bert_features.monitor.stages import StageClock
from bert_features.readers.input_example import InputExample
from bert_features.readers.labels import check_labels
from bert_features.runtime.base import Runtime
from bert_features.runtime.loop import prefetched, run_step

# The rest imports Keras, whose backend the settings choose.
if TYPE_CHECKING:
    from bert_features.batches.input_fn import Batch

Examples = Callable[[], Iterable[InputExample]]


class Pipeline:
    """A checkpoint made ready on a device.

    Copies share its weights. Arguments, attributes and errors are those of `FeatureExtractor`.
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
            unknown_id=self.tokenizer.frame.unknown_id,
            pieces=len(self.tokenizer.tokens),
            precision=self.precision,
            fuse_qkv=self.devices.kind != "tpu",
            packed=self.preparation.packing,
            calibration=calibration_batches(self.preparation) if in_int8 else (),
        )
        self._step = self.preparation.runtime.compile(
            self._model.step, self._model.weights, longest=self.preparation.shapes.buckets[-1]
        )
        self.pieces = np.array(self.tokenizer.tokens, object)

    def with_outputs(self, names: Sequence[str], *, same_rows: bool = False) -> Self:
        """The same for some of the outputs alone, in the order of the settings.

        It shares the weights of this one, and computes no other layers.

        Args:
          names: names of outputs; a ConfigError if there is none, or no output of a name.
          same_rows: whether the rows of texts, with their prompt, are as here; by default they are
            as if made with these outputs.
        """
        other, chosen = copy.copy(self), self.preparation.with_outputs(names, same_rows=same_rows)
        other.preparation, other.config, other.outputs = chosen, chosen.config, chosen.outputs
        vars(other).pop("canaries", None)
        other._model = model = self._model.computing(chosen.device_outputs)
        other._step = chosen.runtime.compile(model.step, model.weights, shares_weights=True)
        return other

    def _of(self, outputs: Iterable[OutputSpec]) -> Self:
        """A copy with these outputs, which differ from its own in scales or labels alone."""
        other = copy.copy(self)
        other.outputs = tuple(outputs)
        return other

    def with_labels_of(self, examples: Sequence[InputExample]) -> Self:
        """A copy whose outputs of words have labels, if an example brings some."""
        if not has_words(self.outputs) or all(example.labels is None for example in examples):
            return self
        for example in examples:
            check_labels(example)
        return self._of(replace(o, labelled=o.unit == "word") for o in self.outputs)

    def with_scales(self, scales: Mapping[str, Any]) -> Self:
        """A copy whose outputs have these scales, by name; OutputError: they do not fit."""
        return self._of(with_scales(self.outputs, scales))

    def sharing(self, begun: Recipe) -> Self:
        """A copy with the scales and the canaries of a run.

        Raises OutputError if they do not fit the outputs, or the canaries differ.
        """
        if begun.canaries:
            check_numbers(begun, make_recipe(self.preparation, self.outputs, self.canaries))
        scales = {n: each["scale"] for n, each in begun.outputs.items() if each.get("scale")}
        other = self.with_scales(scales)
        if begun.canaries:
            other.canaries = begun.canaries
        return other

    def with_all_scales(
        self, examples: Iterator[InputExample] | None = None
    ) -> tuple[Self, Iterator[InputExample]]:
        """A copy whose outputs have the scales that they lack here, and all the examples.

        Args:
          examples: the texts of the run, from the first; None if only files may give scales.
            Where the arithmetic is in int8, its errors on the first ones are logged.

        Raises:
          ConfigError: an output has no file, and there are no texts; or its file does not fit.
        """
        if examples is not None and self.precision == "int8":
            from bert_features.extraction.int8 import log_errors

            examples = log_errors(self._model, self.preparation, examples)
        floats = self._of(as_floats(self.outputs))
        outputs, examples = add_scales(
            with_scales(self.outputs, self._scales_of_files()),
            examples,
            lambda head: floats.batches(lambda: head, warn=False),
        )
        return self._of(outputs), examples

    def _scales_of_files(self) -> dict[str, Scale]:
        if all(output.scale for output in self.outputs if output.dtype == "int8"):
            return {}  # a worker, which got them, may not have the files
        return self._read_scales

    @functools.cached_property  # a copy has some of these outputs, under the same names
    def _read_scales(self) -> dict[str, Scale]:
        return scales_of_files(self.outputs, self.preparation)

    def features(self) -> tuple[OutputSpec, ...]:
        """The features of each example, as an output file describes them."""
        return with_scales(self.outputs, self._scales_of_files())

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

    def batches(
        self,
        examples: Examples,
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

        outputs = self.with_all_scales()[0].outputs
        totals, stages = counts or Counts(), stages or StageClock()

        def counted() -> Iterator[FeatureBatch]:
            for results in self._run(examples, totals, stages, prompt, threads, store):
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
        yield from map(small, regroup(counted(), self.pieces))  # it keeps no batch
        if warn:
            sides = self.preparation.sides
            length = sides.query.length if sides and isinstance(prompt, QueryPrompt) else None
            losses.warn_without_summary(totals, self.preparation.given, self.checkpoint, length)

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
        # A clock of its own: a run that computes these apart measures its own stages.
        results = self._run(lambda: examples, counts, StageClock(), prompt, not few)
        return FeatureBatch.join([each for each in results if each is not None])

    def _run(
        self,
        examples: Examples,
        counts: Counts,
        stages: StageClock,
        prompt: str | None,
        threads: bool,
        store: FeatureStore | None = None,
    ) -> Iterator[FeatureBatch | None]:
        """The way of the examples; after each batch the examples that are finished, or None.

        Without threads they are a few.
        """
        from bert_features.extraction.assembly import assemble
        from bert_features.extraction.reuse import Reuse

        floats = as_floats(self.outputs)
        input_fn = self.preparation.input_fn(examples, prompt=prompt, stages=stages)
        if store is None:
            megabatches = input_fn.megabatches()
        else:
            # The texts that it computes have their prompt already.
            compute = functools.partial(self.compute, counts=counts, prompt="", few=False)
            megabatches = Reuse(store, floats, compute, counts, stages).megabatches_of(input_fn)
        # Two threads: one reads and tokenizes the next megabatch, one cuts this one into batches.
        megabatches = prefetched(megabatches) if threads else megabatches
        batches = input_fn.stream(self.preparation.batch_params(few=not threads), megabatches)
        computed = run_step(self._step, batches, self._inputs, stages, ahead=threads)
        return assemble(
            computed,
            floats,
            in_windows=self.preparation.in_windows,
            unknown_id=self.tokenizer.frame.unknown_id,
            counts=counts,
            stages=stages,
        )

    def _inputs(self, batch: "Batch") -> dict[str, np.ndarray]:
        return {n: batch.columns[n] for n in self._model.inputs if batch.columns}
