"""From the device's batches back to examples in the order of the input.

Batches come by length, and a long example comes in several rows. The results of a sorting window
go to their places in arrays that hold the whole window; when its last batch is in, its examples are
cut off in batches of their own. Nearly everything is array work: at 50,000 rows a second one Python
object for each row would keep a core busy.

Shape legend: `N` examples, `T` tokens and `W` words of all examples, `D` width of an output.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from bert_features.batches.input_fn import Batch, Window
from bert_features.batches.words import word_strings
from bert_features.config.output_specs import OutputSpec
from bert_features.extraction.counts import CountsByExample
from bert_features.extraction.memory import Memory
from bert_features.extraction.window_results import WindowResults
from bert_features.formats.records import FeatureBatch, Tokens, Words

# Examples of a FeatureBatch: enough to make a writer's cost per call small.
_ROWS_PER_BATCH = 512
_WORD_COLUMNS = ("starts", "ends", "type_ids", "num_pieces")


@dataclass(frozen=True)
class _Finished:
    """Finished examples as flat columns, before they are cut into batches.

    Attributes:
      unique_ids: N ids.
      levels: the level of each feature.
      features: name -> [T, D], [W, D] or [N, D], by the level.
      token_ids: int32 [T].
      token_splits: int64 [N + 1].
      words: W words.
      word_columns: int32 [W] each, of `Words`.
      word_splits: int64 [N + 1].
    """

    unique_ids: list[int | str]
    levels: Mapping[str, str]
    features: dict[str, np.ndarray]
    token_ids: np.ndarray
    token_splits: np.ndarray
    words: list[str]
    word_columns: dict[str, np.ndarray]
    word_splits: np.ndarray

    def __len__(self) -> int:
        return len(self.unique_ids)

    def part(self, start: int, stop: int) -> Self:
        """Examples start:stop; arrays are views."""
        splits = {"token": self.token_splits, "word": self.word_splits}
        rows = {level: slice(int(s[start]), int(s[stop])) for level, s in splits.items()}
        rows["sequence"] = slice(start, stop)
        return replace(
            self,
            unique_ids=self.unique_ids[start:stop],
            features={name: v[rows[self.levels[name]]] for name, v in self.features.items()},
            token_ids=self.token_ids[rows["token"]],
            token_splits=self.token_splits[start : stop + 1] - self.token_splits[start],
            words=self.words[rows["word"]],
            word_columns={name: v[rows["word"]] for name, v in self.word_columns.items()},
            word_splits=self.word_splits[start : stop + 1] - self.word_splits[start],
        )

    @classmethod
    def join(cls, parts: Sequence[Self]) -> Self:
        """The examples of several parts; a copy only if there are several."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            unique_ids=[unique_id for part in parts for unique_id in part.unique_ids],
            levels=parts[0].levels,
            features=_join_columns([part.features for part in parts]),
            token_ids=np.concatenate([part.token_ids for part in parts]),
            token_splits=_join_splits([part.token_splits for part in parts]),
            words=[word for part in parts for word in part.words],
            word_columns=_join_columns([part.word_columns for part in parts]),
            word_splits=_join_splits([part.word_splits for part in parts]),
        )


def _join_columns(parts: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _join_splits(parts: Sequence[np.ndarray]) -> np.ndarray:
    lengths = [np.diff(splits) for splits in parts]
    return np.concatenate([[0], *lengths]).cumsum(dtype=np.int64)


class Assembler:
    """Puts the rows of batches together again.

    Args:
      outputs: what the device computes.
      in_windows: whether an example may have several rows. Outputs of level 'sequence' then come
        unfinished, as float32 and not normalised, and are averaged here first.
      pieces: the vocabulary, an array of str.
      unknown_id: id of [UNK].
    """

    def __init__(
        self,
        outputs: Sequence[OutputSpec],
        *,
        in_windows: bool,
        pieces: np.ndarray,
        unknown_id: int,
    ) -> None:
        self._outputs = tuple(outputs)
        self._levels = {output.name: output.level for output in outputs}
        self._in_windows = in_windows
        self._pieces = pieces
        self._unknown_id = unknown_id
        self._window: Window | None = None
        self._results: WindowResults
        self._ready: deque[_Finished] = deque()
        self._memory = Memory()

    def add(self, batch: Batch, outputs: Mapping[str, np.ndarray]) -> CountsByExample | None:
        """Takes a batch and its outputs [B, S, D] or [B, D].

        Returns:
          The counts of the examples of a sorting window, in order, with its last batch; else None.
        """
        if batch.window is not self._window:
            self._window = batch.window
            self._results = WindowResults(
                batch.window, self._outputs, in_windows=self._in_windows, memory=self._memory
            )
        self._results.add(batch, outputs)
        if not self._results.complete:
            return None
        counts = self._results.counts(self._unknown_id)
        self._ready.append(self._finish(batch.window, self._results))
        del self._results
        return counts

    def take_batches(self, *, flush: bool = False) -> Iterator[FeatureBatch]:
        """The finished examples, by the batch; the smaller rest only with `flush`."""
        count = sum(map(len, self._ready))
        while count >= _ROWS_PER_BATCH or (flush and count):
            size = min(count, _ROWS_PER_BATCH)
            count -= size
            yield self._feature_batch(_Finished.join(list(self._taken(size))))

    def _taken(self, count: int) -> Iterator[_Finished]:
        """Takes the next `count` examples."""
        while count:
            first = self._ready.popleft()
            size = min(count, len(first))
            if size < len(first):
                self._ready.appendleft(first.part(size, len(first)))
            yield first.part(0, size)
            count -= size

    def _finish(self, window: Window, results: WindowResults) -> _Finished:
        none = np.zeros(len(window.examples) + 1, np.int64)
        levels = set(self._levels.values())
        words: list[str] = []
        table = window.words
        if "word" in levels and table is not None:
            bounds = table.row_splits.tolist()
            columns = (table.starts, table.ends, table.type_ids)
            for i, example in enumerate(window.examples):
                rows = slice(bounds[i], bounds[i + 1])
                words += word_strings(example, *(column[rows] for column in columns))
        token_ids, token_splits = results.tokens
        return _Finished(
            unique_ids=[example.unique_id for example in window.examples],
            levels=self._levels,
            features=results.features,
            token_ids=token_ids,
            token_splits=token_splits,
            words=words,
            word_columns={}
            if table is None
            else {name: getattr(table, name) for name in _WORD_COLUMNS},
            word_splits=none if table is None else table.row_splits,
        )

    def _feature_batch(self, finished: _Finished) -> FeatureBatch:
        ids, levels = finished.unique_ids, set(self._levels.values())
        tokens = words = None
        if "token" in levels:
            pieces = self._pieces[finished.token_ids].tolist()
            tokens = Tokens(finished.token_splits, pieces, finished.token_ids)
        if "word" in levels:
            words = Words(finished.word_splits, finished.words, **finished.word_columns)
        return FeatureBatch(
            unique_ids=np.array(ids, np.int64 if set(map(type, ids)) == {int} else object),
            features=finished.features,
            tokens=tokens,
            words=words,
        )
