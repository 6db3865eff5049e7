"""From the device's batches back to examples in the order of the input.

Batches come by length, and a long example comes in several rows. The results of a sorting window
go to their places in arrays that hold the whole window; when its last batch is in, its examples are
cut off in batches of their own. Nearly everything is array work: at 50,000 rows a second one Python
object for each row would keep a core busy.

Shape legend: `N` examples, `T` tokens and `W` words of all examples, `D` width of an output.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from bert_features.batches.input_fn import Batch, Window
from bert_features.config.output_specs import OutputSpec
from bert_features.extraction.counts import CountsByExample
from bert_features.extraction.finished import WORD_COLUMNS, Finished, Results, words_of
from bert_features.extraction.memory import Memory
from bert_features.extraction.window_results import WindowResults
from bert_features.formats.records import FeatureBatch, Tokens, Words

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
        expand: Callable[[Window, Results | None], Results] | None = None,
    ) -> None:
        self._outputs = tuple(outputs)
        self._levels = {output.name: output.level for output in outputs}
        self._in_windows = in_windows
        self._pieces = pieces
        self._unknown_id = unknown_id
        self._expand = expand
        self._window: Window | None = None
        self._results: WindowResults
        self._ready: deque[Finished] = deque()
        self._memory = Memory()

    def add(self, batch: Batch, outputs: Mapping[str, np.ndarray]) -> CountsByExample | None:
        """Takes a batch and its outputs [B, S, D] or [B, D].

        Returns:
          The counts of the examples of a sorting window, in order, with its last batch; else None.
        """
        results = self.assemble(batch, outputs)
        if self._expand is not None and (results or not batch.window.examples):
            results = self._expand(batch.window, results)
        if results is None:
            return None
        self._ready.append(results.finished)
        return results.counts

    def assemble(self, batch: Batch, outputs: Mapping[str, np.ndarray]) -> Results | None:
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
        return Results(self._finish(batch.window, results), results.counts(self._unknown_id))

    def take_batches(self, *, flush: bool = False) -> Iterator[FeatureBatch]:
        """The finished examples, by the batch; the smaller rest only with `flush`."""
        count = sum(map(len, self._ready))
        while count >= _ROWS_PER_BATCH or (flush and count):
            size = min(count, _ROWS_PER_BATCH)
            count -= size
            yield batch_of(Finished.join(list(self._taken(size))), self._pieces)

    def _taken(self, count: int) -> Iterator[Finished]:
        """Takes the next `count` examples."""
        while count:
            first = self._ready.popleft()
            size = min(count, len(first))
            if size < len(first):
                self._ready.appendleft(first.part(size, len(first)))
            yield first.part(0, size)
            count -= size

    def _finish(self, window: Window, results: WindowResults) -> Finished:
        none = np.zeros(len(window.examples) + 1, np.int64)
        table = window.words
        columns = {} if table is None else {name: getattr(table, name) for name in WORD_COLUMNS}
        words: list[str] = []
        if "word" in self._levels.values() and table is not None:
            words = words_of(window.examples, columns, table.row_splits)
        token_ids, token_splits = results.tokens
        return Finished(
            unique_ids=[example.unique_id for example in window.examples],
            levels=self._levels,
            features=results.features,
            token_ids=token_ids,
            token_splits=token_splits,
            words=words,
            word_columns=columns,
            word_splits=none if table is None else table.row_splits,
        )


def batch_of(finished: Finished, pieces: np.ndarray) -> FeatureBatch:
    """Finished examples as readers of features know them.

    Args:
      finished: the examples.
      pieces: the vocabulary, an array of str.
    """
    levels = set(finished.levels.values())
    tokens = words = None
    if "token" in levels:
        kept = pieces[finished.token_ids].tolist()
        tokens = Tokens(finished.token_splits, kept, finished.token_ids)
    if "word" in levels:
        words = Words(finished.word_splits, finished.words, **finished.word_columns)
    ids = finished.unique_ids
    return FeatureBatch(
        unique_ids=np.array(ids, np.int64 if set(map(type, ids)) == {int} else object),
        features=finished.features,
        tokens=tokens,
        words=words,
    )
