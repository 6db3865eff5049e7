"""Entries: the finished features of a text as bytes, and back.

An entry is a row of int64 (the number of its tokens and words, and its counts), then its arrays one
after the other, each in C order and in the byte order of this machine.

Shape legend: `N` examples, `T` tokens and `W` words of all examples.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

import numpy as np

from bert_features.config.output_specs import OutputSpec
from bert_features.config.outputs import Level
from bert_features.extraction.counts import CountsByExample
from bert_features.extraction.finished import WORD_COLUMNS, Finished, Results, splits_of, words_of
from bert_features.formats.columns import value_dtype
from bert_features.readers.input_example import InputExample

_COUNTS = tuple(field.name for field in fields(CountsByExample) if field.name != "unique_ids")
_HEADER = 2 + len(_COUNTS)  # tokens, words, counts


@dataclass(frozen=True)
class _Section:
    """An array of an entry: one value, or one vector, for each token, word or example."""

    level: Level
    dtype: np.dtype
    width: int = 1

    def sizes(self, lengths: dict[str, np.ndarray]) -> np.ndarray:
        """Bytes of the array in each entry, int64 [N]."""
        return lengths[self.level] * self.width * self.dtype.itemsize


class Codec:
    """Writes and reads the entries of a run.

    Args:
      outputs: its outputs.
    """

    def __init__(self, outputs: Sequence[OutputSpec]) -> None:
        self._levels = {output.name: output.level for output in outputs}
        has = set(self._levels.values())
        int32 = np.dtype(np.int32)
        self._tokens = [_Section("token", int32)] if "token" in has else []
        self._words = [_Section("word", int32) for _ in WORD_COLUMNS] if "word" in has else []
        self._vectors = [_Section(o.level, value_dtype(o.dtype), o.width) for o in outputs]

    def encode(self, results: Results) -> Iterator[bytes]:
        """The entry of each example."""
        finished, count = results.finished, len(results.finished)
        splits = {
            "token": finished.token_splits if self._tokens else np.zeros(count + 1, np.int64),
            "word": finished.word_splits,
            "sequence": np.arange(count + 1),
        }
        columns = results.counts.columns()
        lengths = [np.diff(splits["token"]), np.diff(splits["word"])]
        header = np.stack([*lengths, *(columns[name] for name in _COUNTS)], axis=1)
        arrays = [("sequence", _as_bytes(header.astype(np.int64)))]
        arrays += [("token", _as_bytes(finished.token_ids)) for _ in self._tokens]
        if self._words:
            arrays += [("word", _as_bytes(finished.word_columns[name])) for name in WORD_COLUMNS]
        for name, level in self._levels.items():
            arrays.append((level, _as_bytes(finished.features[name])))
        bounds = {level: values.tolist() for level, values in splits.items()}
        for i in range(count):
            yield b"".join(
                [array[bounds[level][i] : bounds[level][i + 1]].data for level, array in arrays]
            )

    def decode(self, entries: Sequence[bytes], examples: Sequence[InputExample]) -> Results:
        """The features and counts in some entries.

        Args:
          entries: the entries, N.
          examples: the texts that they are of.
        """
        header = np.stack([np.frombuffer(entry, np.int64, _HEADER) for entry in entries])
        lengths = {
            "token": header[:, 0],
            "word": header[:, 1],
            "sequence": np.ones(len(entries), np.int64),
        }
        arrays = iter(self._arrays(entries, lengths))
        token_ids = next(arrays)[:, 0] if self._tokens else np.zeros(0, np.int32)
        columns = {name: next(arrays)[:, 0] for name in WORD_COLUMNS} if self._words else {}
        unique_ids = [example.unique_id for example in examples]
        word_splits = splits_of([lengths["word"]])
        finished = Finished(
            unique_ids=unique_ids,
            levels=self._levels,
            features=dict(zip(self._levels, arrays, strict=True)),
            token_ids=token_ids,
            token_splits=splits_of([lengths["token"]]),
            words=words_of(examples, columns, word_splits) if columns else [],
            word_columns=columns,
            word_splits=word_splits,
        )
        counts = {name: header[:, 2 + i] for i, name in enumerate(_COUNTS)}
        counts["non_finite"] = counts["non_finite"].astype(bool)
        return Results(finished, CountsByExample(unique_ids, **counts))

    def _arrays(
        self, entries: Sequence[bytes], lengths: dict[str, np.ndarray]
    ) -> Iterator[np.ndarray]:
        """The arrays of all entries, joined: [T, width], [W, width] or [N, width]."""
        starts = np.full(len(entries), _HEADER * np.dtype(np.int64).itemsize)
        for section in [*self._tokens, *self._words, *self._vectors]:
            ends = starts + section.sizes(lengths)
            bounds = zip(entries, starts.tolist(), ends.tolist(), strict=True)
            joined = b"".join([memoryview(entry)[start:end] for entry, start, end in bounds])
            yield np.frombuffer(joined, section.dtype).reshape(-1, section.width)
            starts = ends


def _as_bytes(values: np.ndarray) -> np.ndarray:
    """The rows of an array, uint8 [rows, bytes of a row]."""
    rows = np.ascontiguousarray(values).reshape(len(values), -1)
    return rows.view(np.uint8).reshape(len(values), rows.shape[1] * rows.dtype.itemsize)
