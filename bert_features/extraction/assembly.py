"""From the device's batches back to examples in the order of the input.

Batches come by length, and a long example comes in several windows. Here its rows wait for each
other and for their turn.

Shape legend: `B` batch, `S` sequence, `D` width of an output.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from bert_features.batches.bucketing import FILLER_ID
from bert_features.batches.input_fn import Batch, PreparedExample
from bert_features.batches.word_tables import WordTable
from bert_features.batches.words import word_strings
from bert_features.config.output_specs import (
    OutputSpec,
)
from bert_features.extraction.counts import ExampleCounts, count_unknown, find_non_finite
from bert_features.formats.records import FeatureBatch, Tokens, Words

# Examples of a FeatureBatch: enough to make a writer's cost per call small.
_ROWS_PER_BATCH = 512


@dataclass
class _Row:
    """The results of a row without its padding."""

    ids: np.ndarray
    own: slice
    specials: int
    tokens_lost: int
    tokens_unknown: int
    non_finite: bool
    outputs: dict[str, np.ndarray]


@dataclass
class _Example:
    """The rows of an example that have come in, by their number."""

    num_windows: int
    rows: dict[int, _Row] = field(default_factory=dict)


@dataclass(frozen=True)
class _Finished:
    """The results of an example."""

    counts: ExampleCounts
    token_ids: np.ndarray
    words: list[str]
    table: WordTable | None
    features: dict[str, np.ndarray]


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
        self._levels = {output.level for output in outputs}
        self._in_windows = in_windows
        self._pieces = pieces
        self._unknown_id = unknown_id
        self._token_level = {output.name for output in outputs if output.level == "token"}
        self._arrived: deque[PreparedExample] = deque()  # from the one whose turn it is on
        self._waiting: dict[int, _Example] = {}
        self._ready: list[_Finished] = []
        self._next = 0  # the position whose turn it is

    def add(self, arrived: Batch, outputs: Mapping[str, np.ndarray]) -> None:
        """Takes a batch, the examples that arrive with it, and its outputs [B, S, D] or [B, D]."""
        self._arrived.extend(arrived.examples)
        batch = arrived.columns
        lengths = batch["input_mask"].sum(axis=1).tolist()
        pairs = batch["input_type_ids"].max(axis=1).tolist()
        lost = batch["tokens_lost"].tolist()
        places = _places(batch, lengths)
        unknown = count_unknown(batch, self._unknown_id).tolist()
        non_finite = find_non_finite(outputs, batch["input_mask"], self._token_level).tolist()
        for i, position in enumerate(batch["unique_ids"].tolist()):
            if position == FILLER_ID:
                continue
            window, num_windows, own_start, own_end = places[i]
            example = self._waiting.setdefault(position, _Example(num_windows))
            example.rows[window] = _Row(
                ids=batch["input_word_ids"][i, : lengths[i]],
                own=slice(own_start, own_end),
                specials=3 if pairs[i] else 2,
                tokens_lost=lost[i],
                tokens_unknown=unknown[i],
                non_finite=non_finite[i],
                outputs=self._outputs_of(i, lengths[i], outputs),
            )

    def _outputs_of(
        self, row: int, length: int, outputs: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        """Copies without the padding. A view would keep the whole batch for one row that waits."""
        return {
            output.name: outputs[output.name][row].copy()
            if output.level == "sequence"
            else outputs[output.name][row, :length].copy()
            for output in self._outputs
        }

    def take_ready(self) -> Iterator[ExampleCounts]:
        """Finishes the examples whose turn it is; gives the counts of each."""
        while True:
            example = self._waiting.get(self._next)
            if example is None or len(example.rows) < example.num_windows:
                return
            del self._waiting[self._next]
            finished = self._finish(example, self._arrived.popleft())
            self._ready.append(finished)
            self._next += 1
            yield finished.counts

    def take_batches(self, *, flush: bool = False) -> Iterator[FeatureBatch]:
        """The finished examples, by the batch; the smaller rest only with `flush`."""
        while len(self._ready) >= _ROWS_PER_BATCH or (flush and self._ready):
            examples = self._ready[:_ROWS_PER_BATCH]
            self._ready = self._ready[_ROWS_PER_BATCH:]
            yield self._join(examples)

    def _finish(self, example: _Example, prepared: PreparedExample) -> _Finished:
        rows = [example.rows[i] for i in range(example.num_windows)]
        table = prepared.words
        features = {output.name: self._feature(output, rows, table) for output in self._outputs}
        # The vectors of a sequence were scaled and cast after the device, see `_average`.
        sequences = [features[o.name] for o in self._outputs if o.level == "sequence"]
        overflown = self._in_windows and not all(np.isfinite(v).all() for v in sequences)
        return _Finished(
            counts=_count(prepared, rows, overflown=overflown),
            token_ids=_join([row.ids[row.own] for row in rows]),
            words=[]
            if table is None
            else word_strings(prepared.example, table.starts, table.ends, table.type_ids),
            table=table,
            features=features,
        )

    def _feature(self, output: OutputSpec, rows: list[_Row], table: WordTable | None) -> np.ndarray:
        parts = [row.outputs[output.name] for row in rows]
        if output.level == "token":
            return _join([part[row.own] for part, row in zip(parts, rows, strict=True)])
        if output.level == "word":
            assert table is not None  # the input_fn finds words for such outputs
            return _word_vectors(parts, table)
        if not self._in_windows:
            return parts[0]
        counted = [len(row.ids) - (0 if output.special_tokens else row.specials) for row in rows]
        return _average(parts, counted, output)

    def _join(self, examples: list[_Finished]) -> FeatureBatch:
        ids = [example.counts.unique_id for example in examples]
        return FeatureBatch(
            unique_ids=np.array(ids, np.int64 if all(type(i) is int for i in ids) else object),
            features={
                output.name: _stack_or_join([e.features[output.name] for e in examples], output)
                for output in self._outputs
            },
            tokens=self._tokens(examples) if "token" in self._levels else None,
            words=_words(examples) if "word" in self._levels else None,
        )

    def _tokens(self, examples: list[_Finished]) -> Tokens:
        ids = np.concatenate([example.token_ids for example in examples])
        splits = _row_splits([len(example.token_ids) for example in examples])
        return Tokens(splits, self._pieces[ids].tolist(), ids)


def _places(batch: Mapping[str, np.ndarray], lengths: list[int]) -> list[tuple[int, int, int, int]]:
    """Of each row: its number, the number of rows of its example, the bounds of its own tokens."""
    if "window" not in batch:
        return [(0, 1, 0, length) for length in lengths]
    names = ("window", "num_windows", "own_starts", "own_ends")
    return list(zip(*(batch[name].tolist() for name in names), strict=True))


def _stack_or_join(parts: list[np.ndarray], output: OutputSpec) -> np.ndarray:
    return np.stack(parts) if output.level == "sequence" else np.concatenate(parts)


def _count(prepared: PreparedExample, rows: list[_Row], *, overflown: bool) -> ExampleCounts:
    own = sum(row.own.stop - row.own.start for row in rows)
    table = prepared.words
    vanished = lost = count = 0
    if table is not None:
        count = len(table.starts)
        vanished = int(np.count_nonzero(table.all_pieces == 0))
        lost = int(np.count_nonzero((table.num_pieces == 0) & (table.all_pieces > 0)))
    return ExampleCounts(
        unique_id=prepared.example.unique_id,
        tokens_kept=own - rows[0].specials,
        tokens_lost=rows[0].tokens_lost,
        windows=len(rows),
        words=count,
        words_vanished=vanished,
        words_lost=lost,
        tokens_unknown=sum(row.tokens_unknown for row in rows),
        non_finite=overflown or any(row.non_finite for row in rows),
    )


def _join(parts: list[np.ndarray]) -> np.ndarray:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _word_vectors(parts: list[np.ndarray], table: WordTable) -> np.ndarray:
    """[words, D]: each word's vector from its window; zero for words that are in none."""
    if len(parts) == 1 and (table.windows == 0).all():
        return parts[0][: len(table.windows)]
    vectors = np.zeros((len(table.windows), parts[0].shape[1]), parts[0].dtype)
    for window, part in enumerate(parts):
        here = table.windows == window
        vectors[here] = part[table.indices[here]]
    return vectors


def _average(parts: list[np.ndarray], lengths: list[int], output: OutputSpec) -> np.ndarray:
    """[D]: the mean of the windows' vectors by the tokens counted, finished as on the device."""
    vector = parts[0].astype(np.float32)
    if len(parts) > 1:
        mean = np.average(np.stack(parts), axis=0, weights=lengths)
        vector = mean.astype(np.float32)
    if output.normalize:
        vector = vector / max(float(np.linalg.norm(vector)), 1e-12)
    return vector.astype(output.dtype)


def _words(examples: list[_Finished]) -> Words:
    tables = [example.table for example in examples if example.table is not None]

    def column(name: str) -> np.ndarray:
        return np.concatenate([getattr(table, name) for table in tables])

    return Words(
        row_splits=_row_splits([len(table.starts) for table in tables]),
        words=[word for example in examples for word in example.words],
        starts=column("starts"),
        ends=column("ends"),
        type_ids=column("type_ids"),
        num_pieces=column("num_pieces"),
    )


def _row_splits(lengths: list[int]) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
