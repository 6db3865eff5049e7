"""The scale of int8 vectors: the range of each dimension, of a file or of the first texts."""

import itertools
import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_features.config.features import OutputSpec, Scale
from bert_features.config.output_specs import scale_file
from bert_features.errors import ConfigError, OutputError
from bert_features.extraction.recipe import make_recipe
from bert_features.formats import FeatureFile, read_features
from bert_features.formats.headers import parse_scale
from bert_features.formats.records import Feature, FeatureBatch
from bert_features.formats.small_vectors import find_scale
from bert_features.readers.input_example import InputExample

if TYPE_CHECKING:
    from bert_features.extraction.preparation import Preparation

logger = logging.getLogger("bert_features")

_FIRST_TEXTS = 1000
# Scales this narrow, as a share of the values, are of texts that are all alike.
_NARROW = 0.1


def with_scales(outputs: Sequence[OutputSpec], scales: Mapping[str, Any]) -> tuple[OutputSpec, ...]:
    """The outputs with these scales, by name; OutputError: one does not fit."""
    known = [output for output in outputs if output.name in scales]
    try:
        parsed = {o: parse_scale(scales[o.name], o.name, o.width) for o in known}
    except ValueError as error:
        raise OutputError(f"{error}; extract again with --overwrite") from error
    return tuple(replace(o, scale=parsed.get(o, o.scale)) for o in outputs)


def add_scales(
    outputs: tuple[OutputSpec, ...],
    examples: Iterator[InputExample] | None,
    compute: Callable[[list[InputExample]], Iterable[FeatureBatch]],
) -> tuple[tuple[OutputSpec, ...], Iterator[InputExample]]:
    """The outputs with the scales that they lack, from the first texts; and all the examples.

    Args:
      outputs: the outputs; those that name a file have its scale.
      examples: the texts of the run, from the first; None if there are none to take scales of.
      compute: gives the features of some examples before they become int8.

    Raises:
      ConfigError: an output lacks its scale, and there are no texts.
    """
    counts = {
        o: int(o.scale_from or _FIRST_TEXTS) for o in outputs if o.dtype == "int8" and not o.scale
    }
    if not counts:
        return outputs, examples or iter(())
    if examples is None:
        raise ConfigError(
            f"the dtype of output '{next(iter(counts)).name}' is 'int8', and the scale of its "
            "vectors is unknown: only extract() finds it in texts; set scale_from to a "
            "features file"
        )
    head = list(itertools.islice(examples, min(max(counts.values()), sys.maxsize)))
    logger.info("int8 vectors take the scale of the first %s texts", f"{len(head):,}")
    scales = _scales_of_texts(len(head), list(compute(head)), counts)
    return with_scales(outputs, scales), itertools.chain(head, examples)


def _scales_of_texts(
    texts: int, batches: Sequence[FeatureBatch], counts: Mapping[OutputSpec, int]
) -> dict[str, Scale]:
    """The scales of the first texts, as many for each output as `counts` says."""
    scales = {}
    for output, count in counts.items():
        blocks = list(_first_vectors(batches, output, count))
        scale = scales[output.name] = find_scale(blocks, output.width)
        # A run that ends there has no other texts.
        least, largest = np.array(scale)
        sizes = np.maximum(np.abs(least), np.abs(largest))
        is_narrow = np.median(largest - least) <= _NARROW * np.median(sizes)
        if texts >= count and is_narrow:
            logger.warning(
                "int8 vectors take the scale of %s from %s, so that other texts get nearly the "
                "same codes; set scale_from to more texts, or to a features file",
                output.name,
                f"{count:,} texts that are all alike" if count > 1 else "a single text",
            )
    return scales


def scales_of_files(outputs: Sequence[OutputSpec], preparation: "Preparation") -> dict[str, Scale]:
    """The scales of outputs that name a file; raises ConfigError if one does not fit."""
    scaled = (o for o in outputs if o.dtype == "int8" and scale_file(o))
    return {output.name: _scale_of_file(output, preparation) for output in scaled}


def _scale_of_file(output: OutputSpec, preparation: "Preparation") -> Scale:
    """The scale of the feature with the output's name, or the only one; int8 has its own."""
    file = read_features(str(output.scale_from))
    named = [each for each in file.features if each.name == output.name] or file.features
    feature = named[0]
    fits = (feature.level, feature.width) == (output.level, output.width)
    if len(named) == 1 and fits and feature.dtype != "binary":
        _check_recipe(output, file, feature, preparation)
        blocks = (values for values, _ in file.blocks(feature.name))
        scale = feature.scale or find_scale(blocks, output.width)
        if scale[0] != scale[1]:
            return scale
    raise ConfigError(
        f"the scale file {file.path} has no vectors that differ and are like "
        f"{output.describe()}; it has {', '.join(each.describe() for each in file.features)}"
    )


def _check_recipe(
    output: OutputSpec, file: FeatureFile, feature: Feature, preparation: "Preparation"
) -> None:
    """Refuses a file whose vectors were made in another way; raises ConfigError."""
    try:
        recipe = file.recipe
    except OutputError:
        text = "the scale file %s does not record how it was made; it may not fit"
        logger.warning(text, file.path)
        return
    now = make_recipe(preparation, (output,), {})
    differences = recipe.differences(now, feature.name, output.name).vectors
    if differences:
        raise ConfigError(
            f"the scale file {file.path} was made with {'; '.join(differences)}; set scale_from "
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
