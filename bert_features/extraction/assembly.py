"""From the device's batches back to examples in the order of the input.

Batches come by length, and a long example comes in several rows. The results of a megabatch
go to their places in arrays that hold all of it. Nearly everything is array work: at 50,000
rows a second one Python object for each row would keep a core busy.

Shape legend: `N` examples of the megabatch, `R` their rows, `T` tokens that the rows own, `W`
words, `B` rows of a batch, `S` its length, `D` width of an output, `M` texts that a packed row may
hold, `P` pairs of tokens or words of the examples.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain

import numpy as np

from bert_features.batches.bucketing import Members
from bert_features.batches.input_fn import Batch, Megabatch
from bert_features.batches.row_plan import count_by_row, expand_ranges
from bert_features.batches.unit_tables import UnitTable
from bert_features.config.features import OutputSpec
from bert_features.config.levels import LEVELS
from bert_features.config.packing import TARGET_IDS
from bert_features.extraction.counts import CUT, UNIT_COUNTS, Counts, find_non_finite
from bert_features.extraction.memory import Memory
from bert_features.extraction.placement import DeviceValues, assembly_of
from bert_features.extraction.units import columns_of_units, finish_on_host, vectors_of_units
from bert_features.formats.records import FeatureBatch, Rows, splits_of
from bert_features.monitor.stages import StageClock
from bert_features.readers.input_example import InputExample

# Examples of a batch that is written: enough to make a writer's cost per call small. Fewer are
# enough once their features have 64 MiB; all likely pieces of a long text take 120 MB.
_ROWS_PER_BATCH, _BYTES_PER_BATCH = 512, 64 << 20


class MegabatchResults:
    """Takes the outputs of the batches of one megabatch.

    Args:
      megabatch: the megabatch.
      outputs: what the device computes.
      in_windows: whether an example may have several rows. Outputs of level 'sequence' then come
        unfinished, as float32 and not normalised, and are averaged here first.
      memory: where the arrays of the megabatch come from; by default memory of their own.
    """

    def __init__(
        self,
        megabatch: Megabatch,
        outputs: Sequence[OutputSpec],
        in_windows: bool,
        memory: Memory | None = None,
    ) -> None:
        self._memory = memory or Memory()
        columns = megabatch.columns
        self._megabatch, self._outputs, self._in_windows = megabatch, tuple(outputs), in_windows
        self._lengths = columns["lengths"]
        self._own_starts = columns.get("own_starts", np.zeros_like(self._lengths))
        self._own = columns.get("own_ends", self._lengths) - self._own_starts
        self._places = np.cumsum(self._own) - self._own  # of each row among the T tokens
        examples = columns["unique_ids"] - columns["unique_ids"][0]
        self._first_rows = np.flatnonzero(np.diff(examples, prepend=-1))
        self._values: dict[str, np.ndarray] = {}
        self._missing = len(self._lengths)
        self._parts = {level: self._sorted_parts(table) for level, table in megabatch.units.items()}
        # Sides of the matrices of pairs: tokens, and words that have pieces, of each example.
        self._sizes = {"token_pair": self._lengths.astype(np.int64)}
        if (table := megabatch.units.get("word")) is not None:
            self._sizes["word_pair"] = count_by_row(table.num_pieces > 0, table.row_splits)
        self._pair_splits = {level: splits_of(sizes**2) for level, sizes in self._sizes.items()}

    @property
    def complete(self) -> bool:
        """Whether all rows are here."""
        return self._missing == 0

    def add(self, batch: Batch, outputs: Mapping[str, np.ndarray]) -> None:
        """Copies the outputs of a batch to their places.

        They are [B, S, D]; of the sequence [B, D], packed [B, M, D]; of pairs [B, D, S, S].
        """
        members = batch.members
        for output in self._outputs:
            values = outputs[output.name]
            if output.is_paired:
                self._add_pairs(members, values, output)
                continue
            values = values.reshape(-1, values.shape[-1])
            level = assembly_of(output).level or output.level
            if level == "sequence":
                vectors = self._array(output, values, len(self._lengths))
                vectors[members.rows] = values[members.slots]
            elif level == "token":
                self._add_tokens(members, values, output)
            else:
                self._add_parts(members, values, output)
        self._missing -= len(members.rows)

    def _array(self, output: OutputSpec, values: np.ndarray, count: int) -> np.ndarray:
        """[count, D] for an output; D is the last axis of its `values`, or of pairs the second."""
        if output.name not in self._values:
            width = values.shape[1 if output.is_paired else -1]
            self._values[output.name] = self._memory.empty((count, width), values.dtype)
        return self._values[output.name]

    def _add_tokens(self, members: Members, flat: np.ndarray, output: OutputSpec) -> None:
        array = self._array(output, flat, int(self._own.sum()))
        rows = members.rows
        # A slice for each row is copied once, five times as fast as token by token through indices.
        # NumPy gives up the interpreter's lock for it, so that the writer continues meanwhile.
        begins = members.places + self._own_starts[rows]
        columns = begins, self._places[rows], self._own[rows]
        bounds = zip(*(column.tolist() for column in columns), strict=True)
        for begin, place, length in bounds:
            array[place : place + length] = flat[begin : begin + length]

    def _add_pairs(self, members: Members, values: np.ndarray, output: OutputSpec) -> None:
        sizes, ends = self._sizes[output.level], self._pair_splits[output.level][1:]
        pairs = self._array(output, values, int(ends[-1]))
        rows = members.rows
        # Rows are not packed, and an example has one: its slot is the row of the batch.
        for slot, size, end in zip(members.slots, sizes[rows], ends[rows], strict=True):
            matrix = values[slot, :, :size, :size].transpose(1, 2, 0)
            pairs[end - size * size : end] = matrix.reshape(-1, output.width)

    def _sorted_parts(self, table: UnitTable) -> tuple[np.ndarray, np.ndarray]:
        """int64 [O], the parts of words or spans by row; int64 [R + 1], where each row's begin."""
        numbers = np.arange(len(table.row_splits) - 1)
        example_of_unit = np.repeat(numbers, np.diff(table.row_splits))
        row = self._first_rows[example_of_unit[table.part_units]] + table.part_windows
        order = np.argsort(row, kind="stable")
        return order, np.searchsorted(row[order], np.arange(len(self._lengths) + 1))

    def _add_parts(self, members: Members, flat: np.ndarray, output: OutputSpec) -> None:
        table, (order, splits) = self._megabatch.units[output.level], self._parts[output.level]
        array = self._array(output, flat, len(table.part_units))
        counts = np.diff(splits)[members.rows]
        parts = order[expand_ranges(splits[members.rows], counts)]
        array[parts] = flat[np.repeat(members.places, counts) + table.part_slots[parts]]

    def batch(self, unknown_id: int) -> FeatureBatch:
        """The examples of the megabatch, once all rows are here.

        Its tokens have their ids alone. Words are there if an output needs them.
        """
        examples, tables = self._megabatch.examples, self._megabatch.units
        ids, splits = self._tokens()
        levels = {"token": Rows(splits, {"token_ids": ids})}
        for level, table in tables.items():
            if any(output.unit == level for output in self._outputs):
                labelled = any(output.labelled for output in self._outputs)
                columns = columns_of_units(level, table, examples, labelled=labelled)
                levels[level] = Rows(table.row_splits, columns)
        batch, counts = FeatureBatch(ids_of(examples), levels=levels), dict[str, np.ndarray]()
        for output in self._outputs:
            values = self._values[output.name]
            if output.is_sequence:
                batch.sequence[output.name] = self._averaged(output) if self._in_windows else values
                continue
            if output.is_paired:
                levels.setdefault(output.level, Rows(self._pair_splits[output.level], {}))
            elif (finish := (assembly := assembly_of(output)).finish) is not None:
                computed = DeviceValues(
                    self._megabatch, values, self.own_tokens(), splits, self._first_rows
                )
                made = finish(output, computed)
                if output.max_units:
                    counts[CUT] = assembly.cut(output, computed)
                if isinstance(made, Rows):
                    levels.setdefault(output.level, made)
                    made = made.features[output.name]
                values = made
            elif output.level in tables:
                joins = self._in_windows and LEVELS[output.level].is_text
                values = vectors_of_units(output, tables[output.level], values, unfinished=joins)
            levels[output.level].features[output.name] = values
        return replace(batch, counts=self._counts(batch, ids == unknown_id) | counts)

    def own_tokens(self) -> np.ndarray:
        """int64 [T], the tokens that rows own, as places in the columns of the megabatch."""
        begins = np.cumsum(self._lengths) - self._lengths + self._own_starts
        return expand_ranges(begins, self._own)

    def _tokens(self) -> tuple[np.ndarray, np.ndarray]:
        """The tokens of the examples, each once: ids, int32 [T], and splits, int64 [N + 1]."""
        values = self._megabatch.columns["values"]
        if self._in_windows:
            own = self.own_tokens()
            values = values[own]
            if TARGET_IDS in self._megabatch.columns:  # a masked piece of a row is its own
                targets = self._megabatch.columns[TARGET_IDS][own]
                values = np.where(targets >= 0, targets, values)
        splits = np.append(self._places[self._first_rows], int(self._own.sum()))
        return values, splits.astype(np.int64)

    def _counts(self, batch: FeatureBatch, unknown: np.ndarray) -> dict[str, np.ndarray]:
        """The counts of each example, see `counts.COUNTS`; `unknown` is bool [T]."""
        first = self._first_rows
        splits = batch.levels["token"].splits
        units = dict.fromkeys(chain(*UNIT_COUNTS.values()), np.zeros(len(batch), np.int64))
        for level, table in self._megabatch.units.items():
            counts = table.counts()
            units |= {name: counts[own] for name, own in UNIT_COUNTS[level].items()}
        return {
            "tokens_kept": np.diff(splits) - self._specials()[first],
            "tokens_lost": self._megabatch.columns["tokens_lost"][first],
            "windows": np.diff(np.append(first, len(self._lengths))),
            "tokens_unknown": count_by_row(unknown, splits),
            "non_finite": self._non_finite(batch),
            "tokens": np.add.reduceat(self._lengths, first),
            **units,
        }

    def _non_finite(self, batch: FeatureBatch) -> np.ndarray:
        """Bool [N]: the examples with a NaN or an infinity among their features."""
        examples = np.zeros(len(batch), bool)
        columns = batch.features
        for output in self._outputs:
            non_finite = find_non_finite(columns[output.name])
            if non_finite is not None:
                if (counted := assembly_of(output).counted(self._megabatch)) is not None:
                    non_finite &= counted
                splits = batch.row_splits(output)
                examples |= non_finite if splits is None else count_by_row(non_finite, splits) > 0
        return examples

    def _averaged(self, output: OutputSpec) -> np.ndarray:
        """[N, D]: the mean of the rows' vectors by their tokens, finished as on the device."""
        rows = self._values[output.name].astype(np.float32, copy=False)
        vectors = rows[self._first_rows]
        counted = self._lengths - (0 if output.special_tokens else self._specials())
        bounds = np.append(self._first_rows, len(rows))
        for example in np.flatnonzero(np.diff(bounds) > 1).tolist():
            its = slice(bounds[example], bounds[example + 1])
            vectors[example] = np.average(rows[its], axis=0, weights=counted[its])
        return finish_on_host(vectors, output)

    def _specials(self) -> np.ndarray:
        """int64 [R]: the number of [CLS] and [SEP] in each row."""
        pair = self._megabatch.columns["type_starts"] < self._lengths
        return np.where(pair, 2 + self._megabatch.separators, 2)


def assemble(
    computed: Iterable[tuple[Batch, Mapping[str, np.ndarray]]],
    outputs: Sequence[OutputSpec],
    *,
    in_windows: bool,
    unknown_id: int,
    counts: Counts,
    stages: StageClock,
) -> Iterator[FeatureBatch | None]:
    """Puts the rows of batches together again.

    Args:
      computed: the batches and their outputs, see `MegabatchResults.add`.
      outputs: what the device computes.
      in_windows: see `MegabatchResults`.
      unknown_id: id of [UNK].
      counts: to these the batches are added.
      stages: measures what the caller's thread does.

    Yields:
      For each batch None; for the last one of a megabatch its examples in their order.
    """
    memory = Memory()
    megabatch: MegabatchResults | None = None
    for batch, values in computed:
        stages.lead("assemble")
        counts.add_batch(batch)
        if batch.columns:
            megabatch = megabatch or MegabatchResults(batch.megabatch, outputs, in_windows, memory)
            megabatch.add(batch, values)
        if megabatch is None:  # of a megabatch whose texts are all known
            yield batch.megabatch.everyone(None)
        elif megabatch.complete:
            results, megabatch = megabatch.batch(unknown_id), None
            yield batch.megabatch.everyone(results)
        else:
            yield None
    stages.lead("assemble")


def regroup(batches: Iterable[FeatureBatch], pieces: np.ndarray) -> Iterator[FeatureBatch]:
    """The same examples by `with_pieces` in batches of 512; of large features, and last, in fewer.

    Only the examples of a batch that spans several of the given ones are copied.
    """
    held: list[FeatureBatch] = []
    missing = _ROWS_PER_BATCH
    for batch in batches:
        start = 0
        while len(batch) - start >= missing:
            held.append(batch.part(start, start + missing))
            start, missing = start + missing, _ROWS_PER_BATCH
            yield with_pieces(_joined(held), pieces)
        if start < len(batch):
            held.append(batch.part(start, len(batch)))
            missing -= len(batch) - start
        if sum(v.nbytes for part in held for v in part.features.values()) >= _BYTES_PER_BATCH:
            missing = _ROWS_PER_BATCH
            yield with_pieces(_joined(held), pieces)
    if held:
        yield with_pieces(_joined(held), pieces)


def _joined(held: list[FeatureBatch]) -> FeatureBatch:
    """The batches as one; the list is emptied, so that only the user has their memory."""
    joined = FeatureBatch.join(held)
    held.clear()
    return joined


def with_pieces(batch: FeatureBatch, pieces: np.ndarray) -> FeatureBatch:
    """Finished examples as files and readers have them.

    Tokens, pieces of the vocabulary `pieces`, an array of str, are there if a feature is of tokens.
    """
    levels = dict(batch.levels)
    if "token" in levels and not (levels["token"].features or "token_pair" in levels):
        del levels["token"]
    for level, rows in levels.items():
        texts = {text: pieces[rows.columns[ids]] for text, ids in LEVELS[level].pieces.items()}
        levels[level] = replace(rows, columns=texts | rows.columns)
    return replace(batch, levels=levels)


def ids_of(examples: Sequence[InputExample]) -> np.ndarray:
    """The ids of examples: [N], int64 or str (dtype object)."""
    ids = [example.unique_id for example in examples]
    return np.array(ids, np.int64 if set(map(type, ids)) == {int} else object)
