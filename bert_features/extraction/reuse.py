"""Reuse: texts that repeat are computed once.

The examples of the input pass a sieve before they are tokenised: only a text that is neither in the
store nor in the same megabatch is computed. When the features of a megabatch are there, they are
stored, and each example gets the features of its text.

What the store had when it was asked may be lost when it is needed: an entry can be damaged, a disk
can be full. What is not found then is computed there and then.

Shape legend: `N` examples, `T` tokens and `W` words of all examples, `D` width of a feature.
"""

import functools
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from bert_features.batches.input_fn import Chunk, Megabatch, TextInputFn
from bert_features.config.features import OutputSpec
from bert_features.config.levels import LEVELS, TEXT
from bert_features.extraction.assembly import ids_of
from bert_features.extraction.counts import COUNTS, CUT, SPAN_COUNTS, UNIT_COUNTS, Counts
from bert_features.extraction.feature_store import Entry, FeatureStore
from bert_features.extraction.units import texts_of_units
from bert_features.formats.columns import convert_to_batch, levels_of, value_dtype
from bert_features.formats.records import FeatureBatch, splits_of
from bert_features.monitor.stages import StageClock
from bert_features.readers.input_example import InputExample

_KEY_BYTES = 20

# Faster than `json.dumps`, which makes an encoder for each call that has a setting.
_encode = json.JSONEncoder(ensure_ascii=False).encode
_INT32 = np.dtype(np.int32)


class _Section(NamedTuple):
    """A column of an entry, with rows for the units of a level; `width` is None of no feature."""

    level: str
    name: str
    dtype: np.dtype = _INT32
    width: int | None = None


class Codec:
    """Writes and reads the entries of a run: the finished features of a text as bytes.

    An entry is a row of int64 (the number of its tokens and words, its counts, and the number of
    its pairs of each level that the outputs have), then its arrays one after the other, each in C
    order and in the byte order of this machine.
    """

    def __init__(self, outputs: Sequence[OutputSpec]) -> None:
        self._outputs = tuple(outputs)
        self._levels = levels_of(outputs)
        self._labelled = any(output.labelled for output in outputs)
        # The numbers of tokens and words stand before the counts, of other levels behind.
        self._counts = [n for n in COUNTS if "span" in self._levels or n not in SPAN_COUNTS]
        self._counts += [CUT] if any(output.max_units for output in outputs) else []
        self._others = [level for level in self._levels if level not in ("token", "word")]
        self._sections = [
            *(
                _Section(level, name)
                for level in self._levels
                for name, dtype in LEVELS[level].columns.items()
                if dtype != TEXT
            ),
            *(_Section(o.level, o.name, value_dtype(o.dtype), o.width) for o in outputs),
        ]

    def kept_columns(self, batch: FeatureBatch) -> FeatureBatch:
        """A computed batch without what entries do not hold: tokens that have no features."""
        return replace(batch, levels={level: batch.levels[level] for level in self._levels})

    def encode(self, batch: FeatureBatch) -> Iterator[bytes]:
        """The entry of each example."""
        splits = {"sequence": np.arange(len(batch) + 1)}
        splits |= {level: batch.levels[level].splits for level in self._levels}
        none = np.zeros(len(batch) + 1)
        numbers = (np.diff(splits.get(v, none)) for v in ("token", "word", *self._others))
        tokens, words, *others = numbers
        counts = [batch.counts[name] for name in self._counts]
        header = np.stack([tokens, words, *counts, *others], axis=1)
        bounds = {level: values.tolist() for level, values in splits.items()}
        columns = batch.columns
        arrays = [(bounds["sequence"], _as_bytes(header.astype(np.int64)))]
        arrays += [(bounds[s.level], _as_bytes(columns[s.name])) for s in self._sections]
        for i in range(len(batch)):
            yield b"".join([array[rows[i] : rows[i + 1]].data for rows, array in arrays])

    def decode(self, entries: Sequence[bytes], examples: Sequence[InputExample]) -> FeatureBatch:
        """The features and counts in some entries."""
        first = 2 + len(self._counts)  # tokens, words, counts
        numbers = first + len(self._others)
        header = np.stack([np.frombuffer(entry, np.int64, numbers) for entry in entries])
        lengths = {
            "token": header[:, 0],
            "word": header[:, 1],
            "sequence": np.ones(len(entries), int),
            **{level: header[:, first + i] for i, level in enumerate(self._others)},
        }
        columns = {"unique_ids": ids_of(examples)}
        columns |= {LEVELS[level].splits: splits_of(lengths[level]) for level in self._levels}
        starts = np.full(len(entries), header[0].nbytes)
        for section in self._sections:
            ends = starts + lengths[section.level] * (section.width or 1) * section.dtype.itemsize
            bounds = zip(entries, starts.tolist(), ends.tolist(), strict=True)
            joined = b"".join([memoryview(entry)[start:end] for entry, start, end in bounds])
            values = np.frombuffer(joined, section.dtype)
            shape = (-1,) if section.width is None else (-1, section.width)
            columns[section.name] = values.reshape(shape)
            starts = ends
        for level in UNIT_COUNTS.keys() & self._levels:
            splits = columns[LEVELS[level].splits]
            columns |= texts_of_units(level, examples, columns, splits, labelled=self._labelled)
        batch = convert_to_batch(columns, self._outputs)
        batch.counts.update(dict.fromkeys(COUNTS, np.zeros(len(entries), np.int64)))
        batch.counts.update({name: header[:, 2 + i] for i, name in enumerate(self._counts)})
        batch.counts["non_finite"] = batch.counts["non_finite"].astype(bool)
        return batch

    def named(self, batch: FeatureBatch, examples: Sequence[InputExample]) -> FeatureBatch:
        """The features of equal texts, with the ids and the labels of words of the examples."""
        levels = dict(batch.levels)
        if self._labelled:
            words = levels["word"]
            texts = texts_of_units("word", examples, words.columns, words.splits, labelled=True)
            levels["word"] = replace(words, columns=words.columns | texts)
        return replace(batch, unique_ids=ids_of(examples), levels=levels)


def _as_bytes(values: np.ndarray) -> np.ndarray:
    """The rows of an array, uint8 [rows, bytes of a row]."""
    flat = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
    return flat.reshape(len(values), values.nbytes // max(len(values), 1))


def key_of(example: InputExample) -> bytes:
    """A digest of all that an example's features depend on; other examples have other keys."""
    values = (example.text_a, example.text_b, example.words_a, example.words_b)
    parts = _encode(values if example.spans is None else (*values, example.spans, example.prompt))
    return hashlib.blake2b(parts.encode("utf-8", "surrogatepass"), digest_size=_KEY_BYTES).digest()


class Reuse:
    """The texts of one input, computed once each.

    Args:
      store: what is known already.
      outputs: the outputs.
      compute: computes examples apart from the input; it counts them.
      counts: the totals to add reused examples to.
      stages: measures looking up texts, as a part of tokenizing.
    """

    def __init__(
        self,
        store: FeatureStore,
        outputs: Sequence[OutputSpec],
        compute: Callable[[list[InputExample]], FeatureBatch],
        counts: Counts,
        stages: StageClock,
    ) -> None:
        self._stages = stages
        self._store, self._codec = store, Codec(outputs)
        self._compute, self._counts = compute, counts
        # Texts under way, which the store will have: the tokens of each, by key.
        self._under_way: dict[bytes, int] = {}

    def megabatches_of(self, input_fn: TextInputFn) -> Iterator[Megabatch]:
        """The megabatches of an input without known texts, which `everyone` of each puts back."""
        sieve, computed = _Sieve(), 0
        for _, examples in input_fn.read():
            texts: dict[bytes, InputExample] = {}  # not in the megabatch yet
            with self._stages.timing("tokenize"):
                keys = [key_of(example) for example in examples]
                for key, example in zip(keys, examples, strict=True):
                    if key not in sieve.tokens_by_key:
                        texts.setdefault(key, example)
                known = self._known(texts)
            sieve.tokens_by_key |= known
            sieve.known |= {key: text for key, text in texts.items() if key in known}
            new = {key: text for key, text in texts.items() if key not in known}
            if new:
                chunk = input_fn.lay_out(list(new.values()), computed)
                of_rows = chunk.columns["unique_ids"] - chunk.columns["unique_ids"][0]
                counts = np.bincount(of_rows, chunk.columns["lengths"]).astype(int).tolist()
                tokens = dict(zip(new, counts, strict=True))
                sieve.tokens_by_key |= tokens
                sieve.new += new
                sieve.chunks.append(chunk)
                computed += len(new)
                if self._store.accepts:
                    self._under_way |= tokens
            sieve.everyone += examples
            sieve.keys += keys
            sieve.tokens += sum(sieve.tokens_by_key[key] for key in keys)
            if sieve.tokens >= input_fn.megabatch_tokens:
                yield self._megabatch(sieve)
                sieve = _Sieve()
        if sieve.everyone:
            yield self._megabatch(sieve)

    def _known(self, keys: Iterable[bytes]) -> dict[bytes, int]:
        """The keys of texts that the store has or will have, with the tokens of each."""
        # In this order: `_expand` stores a text before it takes it out of those under way.
        under_way = {key: self._under_way.get(key) for key in keys}
        known = {key: tokens for key, tokens in under_way.items() if tokens is not None}
        return known | self._store.tokens([key for key in under_way if key not in known])

    def _megabatch(self, sieve: "_Sieve") -> Megabatch:
        megabatch = Chunk.join(sieve.chunks) if sieve.chunks else Chunk([], {})
        sieve.chunks.clear()
        return replace(megabatch, everyone=functools.partial(self._expand, sieve))

    def _expand(self, sieve: "_Sieve", results: FeatureBatch | None) -> FeatureBatch:
        """The results of all examples of a megabatch, from the computed ones, if any."""
        parts = []
        if results is not None:
            parts.append(self._keep(sieve.new, results))
            if len(sieve.new) == len(sieve.everyone):
                return parts[0]
        entries_by_key = self._store.fetch(list(sieve.known))
        hits = [key for key in sieve.known if key in entries_by_key]
        missed = [key for key in sieve.known if key not in entries_by_key]
        if hits:
            entries = [entries_by_key[key].value for key in hits]
            parts.append(self._codec.decode(entries, [sieve.known[key] for key in hits]))
        if missed:
            computed = self._compute([sieve.known[key] for key in missed])
            parts.append(self._keep(missed, computed))
        rows = {key: row for row, key in enumerate([*sieve.new, *hits, *missed])}
        places = np.array([rows[key] for key in sieve.keys], np.int64)
        taken = FeatureBatch.join(parts).take(places)
        self._count(taken, places, len(sieve.new), [entries_by_key[key] for key in hits])
        return self._codec.named(taken, sieve.everyone)

    def _keep(self, keys: list[bytes], results: FeatureBatch) -> FeatureBatch:
        """Stores the features of texts; gives what an entry has."""
        results = self._codec.kept_columns(results)
        tokens = results.counts["tokens"].tolist()
        self._store.add(zip(keys, tokens, self._codec.encode(results), strict=True))
        for key in keys:
            self._under_way.pop(key, None)
        return results

    def _count(self, taken: FeatureBatch, places: np.ndarray, new: int, hits: list[Entry]) -> None:
        """Counts the examples that were not computed; rows of hits come after the new ones."""
        was_known = (places >= new) & (places < new + len(hits))
        is_first = np.zeros(len(places), bool)
        is_first[np.unique(places, return_index=True)[1]] = True
        reused = was_known | ~is_first
        others = np.array([not entry.is_own for entry in hits], bool)
        self._counts.add_reused(
            {name: values[reused] for name, values in taken.counts.items()},
            from_cache=int(others[places[was_known] - new].sum()),
        )


@dataclass
class _Sieve:
    """The examples of the input that a megabatch stands for.

    Attributes:
      everyone: the examples, N, in their order.
      keys: their keys.
      new: the keys of the texts to compute, each once.
      known: the texts that the store has, by key: the first example of each.
      tokens: the tokens of `everyone`.
      tokens_by_key: the tokens of each distinct text.
      chunks: the rows of the new texts, until the megabatch is full.
    """

    everyone: list[InputExample] = field(default_factory=list)
    keys: list[bytes] = field(default_factory=list)
    new: list[bytes] = field(default_factory=list)
    known: dict[bytes, InputExample] = field(default_factory=dict)
    tokens: int = 0
    tokens_by_key: dict[bytes, int] = field(default_factory=dict)
    chunks: list[Chunk] = field(default_factory=list)
