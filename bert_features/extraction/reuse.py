"""Reuse: texts that repeat are computed once.

The examples of the input pass a sieve before they are tokenised: only a text that is neither in the
store nor in the same sorting window goes on. When the features of a window are there, they are
stored, and each example gets those of its text.

The sieve goes by hashes, so it may be wrong: two texts can share a hash, an entry can be damaged, a
disk can be full. The keys themselves are compared when features are fetched. What is not found then
is computed there and then.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from bert_features.batches.input_fn import Chunk, TextInputFn, Window
from bert_features.extraction import feature_store
from bert_features.extraction.counts import Counts
from bert_features.extraction.entries import Codec
from bert_features.extraction.feature_store import Entry, FeatureStore, NewEntry
from bert_features.extraction.window_results import ids_of
from bert_features.formats.records import FeatureBatch
from bert_features.monitor.stages import StageClock
from bert_features.readers.input_example import InputExample

# Faster than `json.dumps`, which makes an encoder for each call that has a setting.
_encode = json.JSONEncoder(ensure_ascii=False).encode


def key_of(example: InputExample) -> bytes:
    """All of an example that its features depend on; other examples have other keys."""
    parts = (example.text_a, example.text_b, example.words_a, example.words_b)
    return _encode(parts).encode("utf-8", "surrogatepass")


class Text(NamedTuple):
    """A distinct text: the first example that has it, its key and the hash of the key."""

    example: InputExample
    key: bytes
    hash: int


@dataclass(frozen=True)
class SievedWindow(Chunk):
    """A sorting window in which no text repeats; `examples` are those to compute.

    Attributes:
      everyone: the examples of the input, N, in their order.
      new: the texts of `examples`.
      known: the texts that the store has.
      places: int64 [N], the place of each example's text among `new`, then `known`.
    """

    everyone: list[InputExample] = field(default_factory=list)
    new: list[Text] = field(default_factory=list)
    known: list[Text] = field(default_factory=list)
    places: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))


class Reuse:
    """The texts of one input, computed once each.

    Args:
      store: what is known already.
      input_fn: the input.
      codec: writes and reads entries.
      compute: computes examples apart from the input; it counts them.
      counts: the totals to add reused examples to.
      stages: measures looking up texts, as a part of tokenizing.
    """

    def __init__(
        self,
        store: FeatureStore,
        input_fn: TextInputFn,
        codec: Codec,
        compute: Callable[[TextInputFn], FeatureBatch],
        counts: Counts,
        stages: StageClock,
    ) -> None:
        self._stages = stages
        self._store, self._input_fn, self._codec = store, input_fn, codec
        self._compute, self._counts = compute, counts
        # Texts under way, which the store will have: the tokens of each, by hash.
        self._under_way: dict[int, int] = {}

    def windows(self) -> Iterator[Window]:
        """The sorting windows of the input; one whose texts are all known has no examples."""
        filling, computed = _Filling(), 0
        for _, examples in self._input_fn.read():
            with self._stages.timing("tokenize"):
                texts = filling.texts(examples)
                known = self._known(texts)
            new = self._add(filling, texts, known, computed)
            computed += new
            filling.place(examples)
            if filling.tokens >= self._input_fn.window_tokens:
                yield filling.window()
                filling = _Filling()
        if filling.everyone:
            yield filling.window()

    def _add(
        self, filling: "_Filling", texts: list[Text], known: Mapping[int, int], computed: int
    ) -> int:
        """Adds the texts that a window does not have yet; gives the number that are new."""
        new = [text for text in texts if text.hash not in known]
        filling.add_known([text for text in texts if text.hash in known], known)
        if new:
            chunk = self._input_fn.lay_out([text.example for text in new], computed)
            filling.add_new(new, chunk)
            if self._store.accepts:
                self._under_way |= {text.hash: filling.tokens_of[text.key] for text in new}
        return len(new)

    def _known(self, texts: Iterable[Text]) -> Mapping[int, int]:
        """The hashes of texts that the store has or will have, with the tokens of each."""
        # In this order: `expand` stores a text before it takes it out of those under way.
        hashes = [text.hash for text in texts]
        known = {
            each: tokens for each in hashes if (tokens := self._under_way.get(each)) is not None
        }
        return known | self._store.tokens([each for each in hashes if each not in known])

    def expand(self, window: Window, results: FeatureBatch | None) -> FeatureBatch:
        """The results of all examples of a window.

        Args:
          window: a window of `windows`.
          results: those of the examples that were computed; None if there are none.
        """
        assert isinstance(window, SievedWindow)
        parts = []
        if results is not None:
            results = self._codec.kept_columns(results)
            self._keep(window.new, results)
            parts.append(results)
            if len(window.new) == len(window.everyone):
                return results
        found = self._store.fetch([t.hash for t in window.known], [t.key for t in window.known])
        hits = [text for text in window.known if text.key in found]
        missed = [text for text in window.known if text.key not in found]
        if hits:
            entries = [found[text.key].value for text in hits]
            parts.append(self._codec.decode(entries, [text.example for text in hits]))
        if missed:
            computed = self._compute(self._input_fn.over([text.example for text in missed]))
            computed = self._codec.kept_columns(computed)
            self._keep(missed, computed)
            parts.append(computed)
        places = _moved(window, [*hits, *missed])
        taken = FeatureBatch.join(parts).take(places)
        taken = replace(taken, unique_ids=ids_of(window.everyone))
        self._count(window, taken, places, hits, found)
        return taken

    def _keep(self, texts: list[Text], results: FeatureBatch) -> None:
        """Stores the features of texts."""
        tokens = results.counts["tokens"].tolist()
        entries = zip(texts, tokens, self._codec.encode(results), strict=True)
        self._store.add(NewEntry(t.key, t.hash, count, value) for t, count, value in entries)
        for text in texts:
            self._under_way.pop(text.hash, None)

    def _count(
        self,
        window: SievedWindow,
        taken: FeatureBatch,
        places: np.ndarray,
        hits: list[Text],
        found: Mapping[bytes, Entry],
    ) -> None:
        """Counts the examples that were not computed."""
        first_hit, end = len(window.new), len(window.new) + len(hits)
        was_known = (places >= first_hit) & (places < end)
        is_first = np.zeros(len(places), bool)
        is_first[np.unique(places, return_index=True)[1]] = True
        reused = np.flatnonzero(was_known | ~is_first)
        others = np.array([not found[text.key].is_own for text in hits], bool)
        self._counts.add_reused(
            {name: values[reused] for name, values in taken.counts.items()},
            from_cache=int(others[places[was_known] - first_hit].sum()),
        )


class _Filling:
    """A sorting window while it is filled.

    Attributes:
      everyone: the examples of the input.
      tokens: the tokens of all of them.
      tokens_of: the tokens of each distinct text, by its key.
    """

    def __init__(self) -> None:
        self.everyone: list[InputExample] = []
        self.tokens = 0
        self.tokens_of: dict[bytes, int] = {}
        self._chunks: list[Chunk] = []
        self._new: list[Text] = []
        self._known: list[Text] = []
        self._places: dict[bytes, int] = {}  # of known texts the complement: -1, -2, …
        self._place_of_example: list[int] = []
        self._keys: list[bytes] = []

    def texts(self, examples: Iterable[InputExample]) -> list[Text]:
        """The distinct texts of some examples that the window does not have yet."""
        self._keys = [key_of(example) for example in examples]
        fresh: dict[bytes, InputExample] = {}
        for key, example in zip(self._keys, examples, strict=True):
            if key not in self._places:
                fresh.setdefault(key, example)
        return [Text(e, key, feature_store.hash_key(key)) for key, e in fresh.items()]

    def add_known(self, texts: list[Text], tokens: Mapping[int, int]) -> None:
        """Adds texts that are known, with their tokens by hash."""
        for text in texts:
            self._places[text.key] = ~len(self._known)
            self._known.append(text)
            self.tokens_of[text.key] = tokens[text.hash]

    def add_new(self, texts: list[Text], chunk: Chunk) -> None:
        """Adds texts that are to be computed, and their rows."""
        examples = chunk.columns["unique_ids"] - chunk.columns["unique_ids"][0]
        tokens = np.bincount(examples, chunk.columns["lengths"]).astype(np.int64).tolist()
        for text, count in zip(texts, tokens, strict=True):
            self._places[text.key] = len(self._new)
            self._new.append(text)
            self.tokens_of[text.key] = count
        self._chunks.append(chunk)

    def place(self, examples: list[InputExample]) -> None:
        """Adds the examples whose texts came last."""
        self.everyone += examples
        self._place_of_example += [self._places[key] for key in self._keys]
        self.tokens += sum(self.tokens_of[key] for key in self._keys)

    def window(self) -> SievedWindow:
        """The window."""
        joined = Chunk.join(self._chunks) if self._chunks else Chunk([], {})
        places = np.array(self._place_of_example, np.int64)
        return SievedWindow(
            joined.examples,
            joined.columns,
            joined.words,
            everyone=self.everyone,
            new=self._new,
            known=self._known,
            places=np.where(places < 0, len(self._new) + ~places, places),
        )


def _moved(window: SievedWindow, known: list[Text]) -> np.ndarray:
    """The places of a window's examples when its known texts are in another order."""
    place = {text.key: len(window.new) + i for i, text in enumerate(known)}
    moved = np.array([place[text.key] for text in window.known], np.int64)
    places: np.ndarray = np.concatenate([np.arange(len(window.new)), moved])[window.places]
    return places
