"""int8 outputs: the range of each dimension, from a file or from the first texts of a run."""

import copy
import functools
import itertools
import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from bert_features.config.features import OutputSpec, Ranges
from bert_features.config.output_specs import as_floats, calibration_file
from bert_features.config.recipe import Recipe
from bert_features.errors import ConfigError, OutputError
from bert_features.extraction.recipe import make_recipe
from bert_features.formats import FeatureFile, read_features
from bert_features.formats.canaries import check_numbers
from bert_features.formats.headers import parse_ranges
from bert_features.formats.records import Feature, FeatureBatch
from bert_features.formats.small_vectors import find_ranges
from bert_features.readers.input_example import InputExample

if TYPE_CHECKING:
    from bert_features.encoder.step import Precision
    from bert_features.extraction.preparation import Preparation

logger = logging.getLogger("bert_features")

_FIRST_TEXTS = 1000
# Ranges this narrow, as a share of the values, are of texts that are all alike.
_NARROW = 0.1


class TakesRanges:
    """The methods of an extractor that give its int8 outputs their ranges."""

    outputs: tuple[OutputSpec, ...]
    preparation: "Preparation"
    precision: "Precision" = "float32"
    batches: Callable[..., Iterator[FeatureBatch]]
    canaries: Any
    _model: Any

    def sharing(self, begun: Recipe) -> Self:
        """A copy with the int8 ranges and the canaries of a run; it shares the weights.

        Raises OutputError if they do not fit the outputs, or the canaries differ.
        """
        if begun.canaries:
            check_numbers(begun, make_recipe(self.preparation, self.outputs, self.canaries))
        ranges = {n: each["ranges"] for n, each in begun.outputs.items() if each.get("ranges")}
        other = self.with_ranges(ranges)
        if begun.canaries:
            other.canaries = begun.canaries
        return other

    def with_ranges(self, ranges: Mapping[str, Any]) -> Self:
        """A copy whose outputs have these ranges, by name; OutputError: they do not fit."""
        other, known = copy.copy(self), [o for o in self.outputs if o.name in ranges]
        try:
            found = {o: parse_ranges(ranges[o.name], o.name, o.width) for o in known}
        except ValueError as error:
            raise OutputError(f"{error}; extract again with --overwrite") from error
        other.outputs = tuple(replace(o, ranges=found.get(o, o.ranges)) for o in self.outputs)
        return other

    def calibrated(
        self, examples: Iterator[InputExample] | None = None
    ) -> tuple[Self, Iterator[InputExample]]:
        """A copy whose outputs have the ranges that they lack here, and all the examples.

        Args:
          examples: the texts of the run, from the first; None if only files may give ranges.
            Where the arithmetic is in int8, its errors on the first ones are logged.

        Raises:
          ConfigError: an output has no file, and there are no texts; or its file does not fit.
        """
        if examples is not None and self.precision == "int8":
            from bert_features.extraction.int8 import log_errors

            examples = log_errors(self._model, self.preparation, examples)
        wanted = [o for o in self.outputs if o.dtype == "int8" and not o.ranges]
        found = self._file_ranges()
        counts = {o: int(o.calibration or _FIRST_TEXTS) for o in wanted if o.name not in found}
        if not counts:
            return self.with_ranges(found), examples or iter(())
        if examples is None:
            raise ConfigError(
                f"the dtype of output '{next(iter(counts)).name}' is 'int8', and the ranges of its "
                "dimensions are unknown: only extract() finds them in texts; set calibration to a "
                "features file"
            )
        head = list(itertools.islice(examples, min(max(counts.values()), sys.maxsize)))
        found |= self._ranges_of_texts(head, counts)
        return self.with_ranges(found), itertools.chain(head, examples)

    def _file_ranges(self) -> dict[str, Ranges]:
        """The ranges that files give to outputs without ranges; ConfigError as `calibrated`."""
        wanted = [o for o in self.outputs if o.dtype == "int8" and not o.ranges]
        return {o.name: self._read_ranges[o.name] for o in wanted if calibration_file(o)}

    @functools.cached_property  # a copy has some of these outputs, under the same names
    def _read_ranges(self) -> dict[str, Ranges]:
        return find_in_files(self.outputs, self.preparation)

    def _ranges_of_texts(
        self, head: list[InputExample], counts: Mapping[OutputSpec, int]
    ) -> dict[str, Ranges]:
        """The ranges of the first texts, as many for each output as `counts` says."""
        logger.info("int8 takes the ranges of the first %s texts", f"{len(head):,}")
        floats, found = copy.copy(self), {}
        floats.outputs = as_floats(self.outputs)
        batches = [*floats.batches(lambda: head, warn=False)]
        for output, count in counts.items():
            blocks = list(_first_vectors(batches, output, count))
            ranges = found[output.name] = find_ranges(blocks, output.width)
            # A run that ends there has no other texts.
            if len(head) >= count and _is_narrow(ranges):
                logger.warning(
                    "int8 takes the ranges of %s from %s, so that other texts get nearly the same "
                    "codes; set calibration to more texts, or to a features file",
                    output.name,
                    f"{count:,} texts that are all alike" if count > 1 else "a single text",
                )
        return found


def find_in_files(outputs: Sequence[OutputSpec], preparation: "Preparation") -> dict[str, Ranges]:
    """The ranges of int8 outputs that name a file; raises ConfigError if one does not fit."""
    wanted = (o for o in outputs if o.dtype == "int8" and calibration_file(o))
    return {output.name: _ranges_of_file(output, preparation) for output in wanted}


def _ranges_of_file(output: OutputSpec, preparation: "Preparation") -> Ranges:
    """The ranges of the feature with the output's name, or the only one; int8 has its own."""
    file = read_features(str(output.calibration))
    named = [each for each in file.features if each.name == output.name] or file.features
    feature = named[0]
    fits = (feature.level, feature.width) == (output.level, output.width)
    if len(named) == 1 and fits and feature.dtype != "binary":
        _check_recipe(output, file, feature, preparation)
        blocks = (values for values, _ in file.blocks(feature.name))
        ranges = feature.ranges or find_ranges(blocks, output.width)
        if ranges[0] != ranges[1]:
            return ranges
    raise ConfigError(
        f"the calibration {file.path} has no vectors that differ and are like "
        f"{output.describe()}; it has {', '.join(each.describe() for each in file.features)}"
    )


def _check_recipe(
    output: OutputSpec, file: FeatureFile, feature: Feature, preparation: "Preparation"
) -> None:
    """Refuses a file whose vectors were made in another way; raises ConfigError."""
    try:
        recipe = file.recipe
    except OutputError:
        text = "the calibration %s does not record how it was made; its ranges may not fit"
        logger.warning(text, file.path)
        return
    now = make_recipe(preparation, (output,), {})
    differences = recipe.differences(now, feature.name, output.name).vectors
    if differences:
        raise ConfigError(
            f"the calibration {file.path} was made with {'; '.join(differences)}; set calibration "
            "to a file made with the settings of this run, or to a number of texts"
        )


def _first_vectors(
    batches: Sequence[FeatureBatch], output: OutputSpec, count: int
) -> Iterator[np.ndarray]:
    """The vectors of an output of the first `count` texts."""
    for batch in batches:
        first = batch.part(0, min(count, len(batch)))
        yield first.features[output.name]
        count -= len(first)


def _is_narrow(ranges: Ranges) -> bool:
    least, largest = np.array(ranges)
    sizes = np.maximum(np.abs(least), np.abs(largest))
    return bool(np.median(largest - least) <= _NARROW * np.median(sizes))
