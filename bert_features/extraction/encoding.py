"""Arrays from streamed batches: what `FeatureExtractor.encode` returns.

Dimensions: `N` texts, `S` tokens or words of the longest text, `T` tokens or words of all texts,
`D` width of an output.
"""

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_features.config.output_specs import Feature, OutputSpec
from bert_features.errors import ConfigError
from bert_features.extraction.counts import Counts
from bert_features.formats.columns import value_dtype
from bert_features.formats.records import FeatureBatch, describe_array


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
      row_splits: int64 [N + 1]; those of text i are values[row_splits[i]:row_splits[i + 1]].
    """

    values: np.ndarray
    row_splits: np.ndarray

    def __repr__(self) -> str:
        values, splits = describe_array(self.values), describe_array(self.row_splits)
        return f"Ragged(values={values}, row_splits={splits})"


def choose_output(outputs: Sequence[OutputSpec], name: str | None) -> OutputSpec:
    """The output of a name, or the only one.

    Raises:
      ConfigError: there is no such output, or there are several and no name.
    """
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


def collect(
    batches: Iterable[FeatureBatch],
    output: Feature,
    count: int | None,
    *,
    single: bool,
    ragged: bool,
) -> Any:
    """The vectors of an output, as `FeatureExtractor.encode` returns them.

    Args:
      batches: the features of the texts.
      output: the output.
      count: number of texts, if it is known before the last batch.
      single: whether there is a single text, whose own array is wanted.
      ragged: whether vectors of tokens or words are wanted without padding.
    """
    if output.level == "sequence":
        vectors = _collect_vectors(batches, output, count)
        return vectors[0] if single else vectors
    if ragged or single:
        parts = _collect_ragged(batches, output)
        return parts.values if single else parts
    return _collect_padded(batches, output)


def _collect_vectors(
    batches: Iterable[FeatureBatch], output: Feature, count: int | None
) -> np.ndarray:
    """The vectors of texts, [N, D]; `count` is N, if it is known before the last batch."""
    parts = (batch.features[output.name] for batch in batches)
    if count is None:
        return _join(parts, output)
    vectors = np.empty((count, output.width), value_dtype(output.dtype))
    _fill(vectors, parts)
    return vectors


def _collect_ragged(batches: Iterable[FeatureBatch], output: Feature) -> Ragged:
    """The vectors of the tokens or words of texts, one text after the other."""
    lengths: list[np.ndarray] = []
    values = _join(_parts(batches, output, lengths), output)
    return Ragged(values, np.concatenate([[0], *lengths]).cumsum(dtype=np.int64))


def _collect_padded(batches: Iterable[FeatureBatch], output: Feature) -> Padded:
    """The vectors of the tokens or words of texts, as rows of the longest text's length."""
    of_batches: list[np.ndarray] = []
    parts = deque(_parts(batches, output, of_batches))
    lengths = np.concatenate(of_batches) if of_batches else np.zeros(0, np.int64)
    mask = np.arange(lengths.max(initial=0)) < lengths[:, None]
    values = np.zeros((*mask.shape, output.width), value_dtype(output.dtype))
    done = 0
    for part_lengths in of_batches:
        rows = slice(done, done + len(part_lengths))
        values[rows][mask[rows]] = parts.popleft()  # frees each part once it is copied
        done = rows.stop
    return Padded(values, mask)


def _parts(
    batches: Iterable[FeatureBatch], output: Feature, lengths: list[np.ndarray]
) -> Iterator[np.ndarray]:
    """The vectors of each batch, [T of the batch, D]; adds the lengths of its texts to a list."""
    for batch in batches:
        lengths.append(np.diff(batch.level(output.level).splits))
        yield batch.features[output.name]


def _join(parts: Iterable[np.ndarray], output: Feature) -> np.ndarray:
    held = deque(parts)
    joined = np.empty((sum(map(len, held)), output.width), value_dtype(output.dtype))
    # Each part is freed once it is copied, so that the peak is not twice the result.
    _fill(joined, (held.popleft() for _ in range(len(held))))
    return joined


def _fill(array: np.ndarray, parts: Iterable[np.ndarray]) -> None:
    done = 0
    for part in parts:
        array[done : done + len(part)] = part
        done += len(part)


@contextlib.contextmanager
def progress_bar(total: int | None, *, shown: bool) -> Iterator[Callable[[Counts], Any] | None]:
    """A bar on standard error; gives the function that takes the totals, or None if not shown."""
    if not shown:
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeRemainingColumn as TimeLeft

    columns = (TextColumn("encode"), BarColumn(), MofNCompleteColumn(), TextColumn("texts"))
    with Progress(*columns, TimeLeft(), console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=total)
        yield lambda counts: bar.update(task, completed=counts.examples)
