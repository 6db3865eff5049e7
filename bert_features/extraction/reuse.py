"""Reuse: texts that repeat are computed once.

The examples of the input pass a sieve before they are tokenised: only a text that is neither in the
store nor in the same sorting window is computed. When the features of a window are there, they are
stored, and each example gets those of its text.

What the store had when it was asked may be lost when it is needed: an entry can be damaged, a disk
can be full. What is not found then is computed there and then.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from bert_features.batches.input_fn import Chunk, TextInputFn, Window
from bert_features.extraction.counts import Counts
from bert_features.extraction.entries import Codec
from bert_features.extraction.feature_store import Entry, FeatureStore, NewEntry
from bert_features.extraction.window_results import ids_of
from bert_features.formats.records import FeatureBatch
from bert_features.monitor.stages import StageClock
from bert_features.readers.input_example import InputExample

_KEY_BYTES = 20

# Faster than `json.dumps`, which makes an encoder for each call that has a setting.
_encode = json.JSONEncoder(ensure_ascii=False).encode


def key_of(example: InputExample) -> bytes:
    """A digest of all that an example's features depend on; other examples have other keys."""
    parts = _encode((example.text_a, example.text_b, example.words_a, example.words_b))
    return hashlib.blake2b(parts.encode("utf-8", "surrogatepass"), digest_size=_KEY_BYTES).digest()


class Text(NamedTuple):
    """A distinct text: the first example that has it, and its key."""

    example: InputExample
    key: bytes


@dataclass(frozen=True)
class SievedWindow(Chunk):
    """A sorting window in which no text repeats; `examples` are those to compute.

    Attributes:
      everyone: the examples of the input, N, in their order.
      keys: the key of the text of each.
      new: the texts of `examples`.
      known: the texts that the store has.
    """

    everyone: list[InputExample] = field(default_factory=list)
    keys: list[bytes] = field(default_factory=list)
    new: list[Text] = field(default_factory=list)
    known: list[Text] = field(default_factory=list)


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
        # Texts under way, which the store will have: the tokens of each, by key.
        self._under_way: dict[bytes, int] = {}

    def windows(self) -> Iterator[Window]:
        """The sorting windows of the input; one whose texts are all known has no examples."""
        filling, computed = _Filling(), 0
        for _, examples in self._input_fn.read():
            with self._stages.timing("tokenize"):
                keys = [key_of(example) for example in examples]
                texts = filling.find_fresh(examples, keys)
                known = self._known(texts)
            new = [text for key, text in texts.items() if key not in known]
            filling.add_known([text for key, text in texts.items() if key in known], known)
            if new:
                chunk = self._input_fn.lay_out([text.example for text in new], computed)
                tokens = filling.add_new(new, chunk)
                computed += len(new)
                if self._store.accepts:
                    self._under_way |= tokens
            filling.add_examples(examples, keys)
            if filling.tokens >= self._input_fn.window_tokens:
                yield filling.window()
                filling = _Filling()
        if filling.everyone:
            yield filling.window()

    def _known(self, keys: Iterable[bytes]) -> dict[bytes, int]:
        """The keys of texts that the store has or will have, with the tokens of each."""
        # In this order: `expand` stores a text before it takes it out of those under way.
        found = {key: self._under_way.get(key) for key in keys}
        known = {key: tokens for key, tokens in found.items() if tokens is not None}
        return known | self._store.tokens([key for key in found if key not in known])

    def expand(self, window: Window, results: FeatureBatch | None) -> FeatureBatch:
        """The results of all examples of a window.

        Args:
          window: a window of `windows`.
          results: those of the examples that were computed; None if there are none.
        """
        assert isinstance(window, SievedWindow)
        parts = []
        if results is not None:
            parts.append(self._keep(window.new, results))
            if len(window.new) == len(window.everyone):
                return results
        found = self._store.fetch([text.key for text in window.known])
        hits = [text for text in window.known if text.key in found]
        missed = [text for text in window.known if text.key not in found]
        if hits:
            entries = [found[text.key].value for text in hits]
            parts.append(self._codec.decode(entries, [text.example for text in hits]))
        if missed:
            computed = self._compute(self._input_fn.over([text.example for text in missed]))
            parts.append(self._keep(missed, computed))
        rows = {text.key: row for row, text in enumerate([*window.new, *hits, *missed])}
        places = np.array([rows[key] for key in window.keys], np.int64)
        taken = FeatureBatch.join(parts).take(places)
        self._count(taken, places, len(window.new), [found[text.key] for text in hits])
        return replace(taken, unique_ids=ids_of(window.everyone))

    def _keep(self, texts: list[Text], results: FeatureBatch) -> FeatureBatch:
        """Stores the features of texts; gives what an entry has."""
        results = self._codec.kept_columns(results)
        tokens = results.counts["tokens"].tolist()
        entries = zip(texts, tokens, self._codec.encode(results), strict=True)
        self._store.add(NewEntry(text.key, count, value) for text, count, value in entries)
        for text in texts:
            self._under_way.pop(text.key, None)
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


class _Filling:
    """A sorting window while it is filled.

    Attributes:
      everyone: the examples of the input.
      tokens: the tokens of all of them.
    """

    def __init__(self) -> None:
        self.everyone: list[InputExample] = []
        self.tokens = 0
        self._keys: list[bytes] = []
        self._tokens_of: dict[bytes, int] = {}  # of each distinct text
        self._chunks: list[Chunk] = []
        self._new: list[Text] = []
        self._known: list[Text] = []

    def find_fresh(
        self, examples: Iterable[InputExample], keys: Iterable[bytes]
    ) -> dict[bytes, Text]:
        """The distinct texts of some examples that the window does not have yet, by key."""
        fresh: dict[bytes, Text] = {}
        for example, key in zip(examples, keys, strict=True):
            if key not in self._tokens_of and key not in fresh:
                fresh[key] = Text(example, key)
        return fresh

    def add_known(self, texts: list[Text], tokens: Mapping[bytes, int]) -> None:
        """Adds texts that are known, with their tokens by key."""
        self._known += texts
        self._tokens_of.update(tokens)

    def add_new(self, texts: list[Text], chunk: Chunk) -> dict[bytes, int]:
        """Adds texts that are to be computed, and their rows; gives the tokens of each."""
        examples = chunk.columns["unique_ids"] - chunk.columns["unique_ids"][0]
        counts = np.bincount(examples, chunk.columns["lengths"]).astype(np.int64).tolist()
        tokens = {text.key: count for text, count in zip(texts, counts, strict=True)}
        self._new += texts
        self._tokens_of.update(tokens)
        self._chunks.append(chunk)
        return tokens

    def add_examples(self, examples: list[InputExample], keys: list[bytes]) -> None:
        """Adds examples whose texts are there."""
        self.everyone += examples
        self._keys += keys
        self.tokens += sum(self._tokens_of[key] for key in keys)

    def window(self) -> SievedWindow:
        """The window."""
        joined = Chunk.join(self._chunks) if self._chunks else Chunk([], {})
        return SievedWindow(
            joined.examples,
            joined.columns,
            joined.words,
            everyone=self.everyone,
            keys=self._keys,
            new=self._new,
            known=self._known,
        )
