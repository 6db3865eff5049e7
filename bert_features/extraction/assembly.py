"""From the device's batches back to examples in the order of the input.

Batches come by length, and a long example comes in several rows. The results of a sorting window
go to their places in arrays that hold the whole window; when its last batch is in, its examples are
cut off in batches of their own. Nearly everything is array work: at 50,000 rows a second one Python
object for each row would keep a core busy.

Shape legend: `N` examples, `T` tokens and `W` words of all examples, `D` width of an output.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from bert_features.batches.input_fn import Batch, Window
from bert_features.config.output_specs import OutputSpec
from bert_features.extraction.memory import Memory
from bert_features.extraction.window_results import WindowResults
from bert_features.formats.records import FeatureBatch

# Examples of a FeatureBatch: enough to make a writer's cost per call small.
_ROWS_PER_BATCH = 512


class Assembler:
    """Puts the rows of batches together again.

    Args:
      outputs: what the device computes.
      in_windows: whether an example may have several rows. Outputs of level 'sequence' then come
        unfinished, as float32 and not normalised, and are averaged here first.
      pieces: the vocabulary, an array of str.
      unknown_id: id of [UNK].
      expand: makes the examples of a window from those of its rows, None if it has no rows; by
        default they are the same.
    """

    def __init__(
        self,
        outputs: Sequence[OutputSpec],
        *,
        in_windows: bool,
        pieces: np.ndarray,
        unknown_id: int,
        expand: Callable[[Window, FeatureBatch | None], FeatureBatch] | None = None,
    ) -> None:
        self._outputs = tuple(outputs)
        self._in_windows = in_windows
        self._pieces = pieces
        self._unknown_id = unknown_id
        self._expand = expand
        self._window: Window | None = None
        self._results: WindowResults
        self._ready: deque[FeatureBatch] = deque()
        self._memory = Memory()

    def add(self, batch: Batch, outputs: Mapping[str, np.ndarray]) -> FeatureBatch | None:
        """Takes a batch and its outputs [B, S, D] or [B, D].

        Returns:
          The examples of a sorting window, in order, with its last batch; else None.
        """
        results = self.assemble(batch, outputs)
        if self._expand is not None and (results is not None or not batch.window.examples):
            results = self._expand(batch.window, results)
        if results is not None:
            self._ready.append(results)
        return results

    def assemble(self, batch: Batch, outputs: Mapping[str, np.ndarray]) -> FeatureBatch | None:
        """As `add`; gives the examples of the window themselves, and keeps nothing of them."""
        if not batch.window.examples:
            return None
        if batch.window is not self._window:
            self._window = batch.window
            self._results = WindowResults(
                batch.window, self._outputs, in_windows=self._in_windows, memory=self._memory
            )
        self._results.add(batch, outputs)
        if not self._results.complete:
            return None
        results = self._results
        del self._results
        return results.batch(self._unknown_id)

    def take_batches(self, *, flush: bool = False) -> Iterator[FeatureBatch]:
        """The finished examples, by the batch; the smaller rest only with `flush`."""
        count = sum(map(len, self._ready))
        while count >= _ROWS_PER_BATCH or (flush and count):
            size = min(count, _ROWS_PER_BATCH)
            count -= size
            yield with_pieces(FeatureBatch.join(list(self._taken(size))), self._pieces)

    def _taken(self, count: int) -> Iterator[FeatureBatch]:
        """Takes the next `count` examples."""
        while count:
            first = self._ready.popleft()
            size = min(count, len(first))
            if size < len(first):
                self._ready.appendleft(first.part(size, len(first)))
            yield first.part(0, size)
            count -= size


def with_pieces(batch: FeatureBatch, pieces: np.ndarray) -> FeatureBatch:
    """Finished examples as files and readers have them.

    Args:
      batch: the examples; of their tokens there are the ids, and features.
      pieces: the vocabulary, an array of str.

    Returns:
      The same examples without counts. Tokens are there if a feature has level `token`.
    """
    tokens = None
    if batch.tokens is not None and batch.tokens.features:
        columns = batch.tokens.columns
        tokens = replace(batch.tokens, columns={"tokens": pieces[columns["token_ids"]], **columns})
    return replace(batch, tokens=tokens, counts={})
