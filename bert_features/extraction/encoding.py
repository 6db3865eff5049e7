"""Arrays from streamed batches: what `FeatureExtractor.encode` returns.

Dimensions: `N` texts, `S` tokens or words of the longest text, `T` tokens or words of all texts,
`D` width of an output.
"""

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from typing import Any, NamedTuple

import numpy as np

from bert_features.config.features import Feature, OutputSpec
from bert_features.config.output_specs import has_spans
from bert_features.errors import ConfigError
from bert_features.extraction.counts import Counts
from bert_features.formats.columns import value_dtype
from bert_features.formats.records import FeatureBatch, describe_array, matrices
from bert_features.readers.input_example import InputExample


class Padded(NamedTuple):
    """Vectors of the tokens or words of several texts, as rows of one length.

    Attributes:
      values: [N, S, D]; zero after the end of a text.
      mask: bool [N, S]; true where a text has a token or a word. `values[mask]` is [T, D].
    """

    values: np.ndarray
    mask: np.ndarray

    def __repr__(self) -> str:
        return f"Padded(values={describe_array(self.values)}, mask={describe_array(self.mask)})"


class Ragged(NamedTuple):
    """Vectors of the tokens or words of several texts, one text after the other.

    Attributes:
      values: [T, D].
      row_splits: int64 [N + 1]; the vectors of text i are values[row_splits[i]:row_splits[i + 1]].
    """

    values: np.ndarray
    row_splits: np.ndarray

    def __repr__(self) -> str:
        values, splits = describe_array(self.values), describe_array(self.row_splits)
        return f"Ragged(values={values}, row_splits={splits})"


def choose_output(outputs: Sequence[OutputSpec], name: str | None) -> OutputSpec:
    """The output of a name, or the only one; raises ConfigError if there is none, or several."""
    names = ", ".join(repr(output.name) for output in outputs)
    if name is None and len(outputs) > 1:
        raise ConfigError(
            f"this extractor has {len(outputs)} outputs and encode returns one; pass output=, "
            f"one of {names}. For one vector of each text, make the extractor with "
            "level='sequence', pooling='auto'"
        )
    for output in outputs:
        if name in (None, output.name):
            return output
    raise ConfigError(f"output is {name!r}; allowed: {names}")


def check_spans(spans: Sequence[Any] | None, outputs: Sequence[Feature]) -> None:
    """Refuses spans that no output takes; raises ConfigError."""
    if spans is not None and not has_spans(outputs):
        raise ConfigError("spans was given, and no output has level 'span'; leave spans out")


def collect(
    batches: Iterable[FeatureBatch],
    output: Feature,
    *,
    single: bool,
    ragged: bool,
    count: int | None = None,
) -> Any:
    """The vectors of an output, as `FeatureExtractor.encode` returns them.

    Args:
      batches: the features of the texts.
      output: the output.
      count: the number of texts, if it is known before the last batch.
      single: whether there is one text, whose own array is wanted.
      ragged: whether the vectors of tokens or words are wanted without padding.

    Raises:
      ConfigError: the matrices of attention are wanted with padding.
    """
    if output.is_paired and not (single or ragged):
        raise ConfigError(
            f"'{output.name}' has a matrix for each text, which encode does not pad; pass one text "
            "or ragged=True, or call the extractor itself"
        )
    if output.is_sequence:
        blocks = (batch.features[output.name] for batch in batches)
        vectors = (
            _join(deque(blocks), output) if count is None else _fill(_empty(count, output), blocks)
        )
        return vectors[0] if single else vectors
    parts: deque[np.ndarray] = deque()
    lengths: list[np.ndarray] = []  # of the texts of each batch
    for batch in batches:
        parts.append(batch.features[output.name])
        splits = batch.row_splits(output)
        assert splits is not None  # it is not of level sequence
        lengths.append(np.diff(splits))
    if single:
        return matrices(_join(parts, output)) if output.is_paired else _join(parts, output)
    if ragged:
        splits = np.concatenate([[0], *lengths]).cumsum(dtype=np.int64)
        return Ragged(_join(parts, output), splits)
    return _pad(parts, lengths, output)


# `_join` and `_pad` free each part once it is copied, so that the peak is not twice the result.


def _join(parts: deque[np.ndarray], output: Feature) -> np.ndarray:
    joined = _empty(sum(map(len, parts)), output)
    return _fill(joined, (parts.popleft() for _ in range(len(parts))))


def _empty(count: int, output: Feature) -> np.ndarray:
    return np.empty((count, output.stored_width), value_dtype(output.dtype))


def _fill(array: np.ndarray, parts: Iterable[np.ndarray]) -> np.ndarray:
    done = 0
    for part in parts:
        array[done : done + len(part)] = part
        done += len(part)
    return array


def _pad(parts: deque[np.ndarray], lengths: list[np.ndarray], output: Feature) -> Padded:
    """The vectors of tokens or words as rows of the longest text's length."""
    all_lengths = np.concatenate([np.zeros(0, np.int64), *lengths])
    mask = np.arange(all_lengths.max(initial=0)) < all_lengths[:, None]
    values = np.zeros((*mask.shape, output.stored_width), value_dtype(output.dtype))
    done = 0
    for part_lengths in lengths:
        rows = slice(done, done + len(part_lengths))
        values[rows][mask[rows]] = parts.popleft()
        done = rows.stop
    return Padded(values, mask)


@contextlib.contextmanager
def progress_bar(
    examples: Iterable[InputExample], *, shown: bool
) -> Iterator[Callable[[Counts], Any] | None]:
    """A bar on standard error; gives the function that takes the totals, or None if not shown."""
    if not shown:
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeRemainingColumn as TimeLeft

    columns = (TextColumn("encode"), BarColumn(), MofNCompleteColumn(), TextColumn("texts"))
    with Progress(*columns, TimeLeft(), console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=len(examples) if isinstance(examples, Sized) else None)
        yield lambda counts: bar.update(task, completed=counts.examples)
