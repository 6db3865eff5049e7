"""Entries: the finished features of a text as bytes, and back.

An entry is a row of int64 (the number of its tokens and words, its counts, and the number of its
pairs of each level that the outputs have), then its arrays one after the other, each in C order and
in the byte order of this machine.

Shape legend: `N` examples, `T` tokens and `W` words of all examples, `D` width of a feature.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from bert_features.config.output_specs import PAIRS, OutputSpec
from bert_features.extraction.assembly import ids_of, words_of
from bert_features.extraction.counts import COUNTS
from bert_features.formats.columns import SPLITS, convert_to_batch, levels_of, value_dtype
from bert_features.formats.records import SPANS, FeatureBatch, splits_of
from bert_features.readers.input_example import InputExample

_HEADER = 2 + len(COUNTS)  # tokens, words, counts
_INT32 = np.dtype(np.int32)


class _Section(NamedTuple):
    """A column of an entry, with rows for its tokens, its words or the example."""

    level: str
    name: str
    dtype: np.dtype = _INT32
    width: int = 1


class Codec:
    """Writes and reads the entries of a run."""

    def __init__(self, outputs: Sequence[OutputSpec]) -> None:
        self._outputs = tuple(outputs)
        self._levels = set(levels_of(outputs)) | {output.level for output in outputs}
        self._pairs = [level for level in PAIRS if level in self._levels]
        names = {"token": ("token_ids",), "word": SPANS}
        self._sections = [
            *(
                _Section(level, name)
                for level in names
                if level in self._levels
                for name in names[level]
            ),
            *(_Section(o.level, o.name, value_dtype(o.dtype), o.width) for o in outputs),
        ]

    def kept_columns(self, batch: FeatureBatch) -> FeatureBatch:
        """A computed batch without what entries do not hold: tokens that have no features."""
        return batch if "token" in self._levels else replace(batch, tokens=None)

    def encode(self, batch: FeatureBatch) -> Iterator[bytes]:
        """The entry of each example."""
        splits = {
            level: batch.level(level).splits if level in self._levels else np.zeros(len(batch) + 1)
            for level in SPLITS
        }
        tokens, words, *pairs = (np.diff(splits[v]) for v in ("token", "word", *self._pairs))
        counts = [batch.counts[name] for name in COUNTS]
        header = np.stack([tokens, words, *counts, *pairs], axis=1)
        bounds = {level: values.astype(int).tolist() for level, values in splits.items()}
        bounds["sequence"] = list(range(len(batch) + 1))
        columns = batch.columns
        arrays = [(bounds["sequence"], _as_bytes(header.astype(np.int64)))]
        arrays += [(bounds[s.level], _as_bytes(columns[s.name])) for s in self._sections]
        for i in range(len(batch)):
            yield b"".join([array[rows[i] : rows[i + 1]].data for rows, array in arrays])

    def decode(self, entries: Sequence[bytes], examples: Sequence[InputExample]) -> FeatureBatch:
        """The features and counts in some entries."""
        numbers = _HEADER + len(self._pairs)
        header = np.stack([np.frombuffer(entry, np.int64, numbers) for entry in entries])
        lengths = {
            "token": header[:, 0],
            "word": header[:, 1],
            "sequence": np.ones(len(entries), int),
            **{level: header[:, _HEADER + i] for i, level in enumerate(self._pairs)},
        }
        columns = {"unique_ids": ids_of(examples)}
        columns |= {
            SPLITS[level]: splits_of(lengths[level]) for level in self._levels & SPLITS.keys()
        }
        starts = np.full(len(entries), header[0].nbytes)
        for section in self._sections:
            ends = starts + lengths[section.level] * section.width * section.dtype.itemsize
            bounds = zip(entries, starts.tolist(), ends.tolist(), strict=True)
            joined = b"".join([memoryview(entry)[start:end] for entry, start, end in bounds])
            values = np.frombuffer(joined, section.dtype)
            is_feature = section.name not in ("token_ids", *SPANS)
            columns[section.name] = values.reshape(-1, section.width) if is_feature else values
            starts = ends
        if "word" in self._levels:
            columns["words"] = words_of(examples, columns, columns["word_splits"])
        batch = convert_to_batch(columns, self._outputs)
        batch.counts.update({name: header[:, 2 + i] for i, name in enumerate(COUNTS)})
        batch.counts["non_finite"] = batch.counts["non_finite"].astype(bool)
        return batch


def _as_bytes(values: np.ndarray) -> np.ndarray:
    """The rows of an array, uint8 [rows, bytes of a row]."""
    rows = np.ascontiguousarray(values).reshape(len(values), -1)
    return rows.view(np.uint8).reshape(len(values), rows.shape[1] * rows.dtype.itemsize)
