"""Spans of texts: the pieces of each, and where they are found among the rows.

Shape legend: `N` examples, `P` pieces of all their texts, `R` rows, `T` tokens of all rows, `U`
spans of all examples, `O` parts: the tokens of one span that one row owns. Texts are numbered
2 * i for text_a and 2 * i + 1 for text_b of example i.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain

import numpy as np

from bert_features.batches.row_plan import Rows, count_by_row, expand_ranges
from bert_features.batches.words import Units
from bert_features.errors import InputError
from bert_features.readers.input_example import InputExample, Span


@dataclass(frozen=True)
class SpanTable:
    """The spans of several examples, one example after the other, and their parts, row by row.

    Attributes:
      row_splits: int64 [N + 1]; the spans of example i lie at row_splits[i]:row_splits[i + 1].
      begins: int32 [U], the first character in the text.
      ends: int32 [U], one past the last character.
      type_ids: int32 [U]: 1 for spans of text_b.
      num_pieces: int32 [U], pieces that the vector is made of; 0 for a zero vector.
      all_pieces: int32 [U], pieces that the span has; 0 if it has blanks alone.
      row_parts: int64 [R], number of parts in each row.
      part_units: int64 [O], the span of each part.
      part_sizes: int32 [O], number of its tokens.
    """

    row_splits: np.ndarray
    begins: np.ndarray
    ends: np.ndarray
    type_ids: np.ndarray
    num_pieces: np.ndarray
    all_pieces: np.ndarray
    row_parts: np.ndarray
    part_units: np.ndarray
    part_sizes: np.ndarray

    @classmethod
    def join(cls, tables: Sequence["SpanTable"]) -> "SpanTable":
        """The spans of several tables."""
        before = np.cumsum([0, *(len(table.begins) for table in tables)])
        moved = [
            replace(t, row_splits=t.row_splits[1:] + n, part_units=t.part_units + n)
            for t, n in zip(tables, before, strict=False)
        ]
        first, *columns = (
            np.concatenate([getattr(table, field.name) for table in moved]) for field in fields(cls)
        )
        return cls(np.append(0, first), *columns)

    def counts(self) -> dict[str, np.ndarray]:
        """How many spans each example has, int64 [N], by the names of `counts.SPAN_COUNTS`."""
        kept, every = self.num_pieces, self.all_pieces
        found = {
            "spans_blank": every == 0,
            "spans_cut": (kept > 0) & (kept < every),
            "spans_lost": (kept == 0) & (every > 0),
        }
        counts = {name: count_by_row(values, self.row_splits) for name, values in found.items()}
        return {"spans": np.diff(self.row_splits), **counts}


@dataclass(frozen=True)
class SpanPieces:
    """The spans of several examples as runs of pieces.

    Attributes:
      texts: int64 [U], the text of each.
      begins, ends: int64 [U], its characters, counted without a prompt.
      firsts, lasts: int64 [U], its first piece among all P, and one past its last.
      row_splits: int64 [N + 1], where the spans of each example begin and end.
      total: P.
    """

    texts: np.ndarray
    begins: np.ndarray
    ends: np.ndarray
    firsts: np.ndarray
    lasts: np.ndarray
    row_splits: np.ndarray
    total: int


@dataclass(frozen=True)
class PiecePlaces:
    """The pieces of texts, with their places as characters of their text.

    Attributes:
      texts: int64 [P], the text of each.
      starts: int64 [P], its first character.
      ends: int64 [P], one past its last.
      begins_word: bool [P], whether WordPiece begins a word with it; else all false.
    """

    texts: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    begins_word: np.ndarray

    @classmethod
    def of(
        cls,
        units: Units,
        lengths: np.ndarray,
        starts: np.ndarray,
        ends: np.ndarray,
        words: np.ndarray,
    ) -> "PiecePlaces":
        """From places in units, int32 [P], and the number of pieces of each unit, int64 [U]."""
        per_text = np.array(units.per_text, np.int64)
        texts = np.repeat(np.arange(len(per_text)), per_text)
        # Words of the input, whose starts are -1, are joined by single blanks.
        sizes = np.array([len(unit) + 1 for unit in units.strings], np.int64)
        before = np.append(np.cumsum(sizes) - sizes, 0)
        joined = before[:-1] - before[np.cumsum(per_text) - per_text][texts]
        given = np.array(units.starts, np.int64)
        moved = np.repeat(np.where(given < 0, joined, given), lengths)
        return cls(np.repeat(texts, lengths), starts + moved, ends + moved, words)

    def runs(
        self, texts: np.ndarray, begins: np.ndarray, ends: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The first piece that shares a character with each span, and one past the last."""
        # Places in all texts, one after the other. An empty piece is where its next character is.
        stride = int(max(self.ends.max(initial=0), ends.max(initial=0))) + 2
        piece, span = self.texts * stride, texts * stride
        last_characters = piece + np.maximum(self.ends, self.starts + 1)
        firsts = np.searchsorted(last_characters, span + begins, side="right")
        lasts = np.searchsorted(piece + self.starts, span + ends)
        return firsts, np.where(begins < ends, np.maximum(firsts, lasts), firsts)


def find_spans(
    examples: Sequence[InputExample], pieces: PiecePlaces, chunks: tuple[int, int] | None
) -> SpanPieces:
    """The spans of examples, which have them or get chunks: tokens of each, and what two share.

    Raises InputError for an example without spans if there are no chunks.
    """
    bounds = np.searchsorted(pieces.texts, np.arange(2 * len(examples) + 1)).tolist()
    found: list[Sequence[Span]] = []
    for i, example in enumerate(examples):
        if example.spans is not None:
            found.append(example.spans)
        elif chunks is not None:
            found.append([*_chunks(example, pieces, bounds[2 * i : 2 * i + 3], *chunks)])
        else:
            raise InputError.naming(
                "example {received} has no spans, which level 'span' needs; pass {spans} or "
                "{span_field}, or in Python the argument spans",
                received=repr(example.unique_id),
            )
    counts = [len(spans) for spans in found]
    flat = [(begin, end, kind) for begin, end, _, kind in chain.from_iterable(found)]
    begins, ends, kinds = np.array(flat, np.int64).reshape(-1, 3).T
    texts = 2 * np.repeat(np.arange(len(examples)), counts) + kinds
    prompts = np.repeat([example.prompt for example in examples], counts) * (kinds == 0)
    firsts, lasts = pieces.runs(texts, begins + prompts, ends + prompts)
    splits = np.cumsum([0, *counts])
    return SpanPieces(texts, begins, ends, firsts, lasts, splits, len(pieces.texts))


def _chunks(
    example: InputExample, pieces: PiecePlaces, bounds: Sequence[int], size: int, shared: int
) -> Iterator[Span]:
    """Runs of at most `size` pieces of both texts of an example."""
    for kind in (0, 1):
        prompt = example.prompt if kind == 0 else 0
        first, end = bounds[kind : kind + 2]
        first += int(np.searchsorted(pieces.starts[first:end], prompt))
        starts, ends = pieces.starts[first:end] - prompt, pieces.ends[first:end] - prompt
        behind_blank = starts[1:] > ends[:-1]
        may_begin = 1 + np.flatnonzero(behind_blank | pieces.begins_word[first:end][1:])
        begin, count = 0, end - first
        while begin < count:
            stop = min(begin + size, count)
            if stop < count:  # in the last half, so that a text without blanks is not cut to bits
                nearest = int(np.searchsorted(may_begin, stop, side="right")) - 1
                if nearest >= 0 and may_begin[nearest] > begin + size // 2:
                    stop = int(may_begin[nearest])
            yield Span(int(starts[begin]), int(ends[begin:stop].max()), "", kind)
            if stop == count:
                break
            least = max(stop - shared, begin + 1)
            nearest = int(np.searchsorted(may_begin, least))
            following = int(may_begin[nearest]) if nearest < len(may_begin) else stop
            begin = min(following, stop)


def place_spans(
    rows: Rows, found: SpanPieces, name: Callable[[int], str]
) -> tuple[Rows, SpanTable]:
    """Shares spans out to the rows that own their tokens.

    Returns:
      The rows with `span_begins` and `span_ends`, see `config.packing.SPAN_BOUNDS`; and the spans.

    Raises:
      InputError: a row has more spans than tokens; `name` names the i-th example.
    """
    row_starts = np.cumsum(rows.lengths) - rows.lengths
    row_of_token = np.repeat(np.arange(len(rows.lengths)), rows.lengths)
    place = np.arange(len(rows.values)) - row_starts[row_of_token]
    own = (place >= rows.own_starts[row_of_token]) & (place < rows.own_ends[row_of_token])
    # Each piece that is kept is owned once, and the rows have the owned ones in their order.
    owned = np.flatnonzero(own & (rows.pieces < found.total))
    firsts, lasts = np.searchsorted(rows.pieces[owned], [found.firsts, found.lasts])
    row = row_of_token[owned]
    kept = np.flatnonzero(firsts < lasts)
    row_first, row_last = row[firsts[kept]], row[lasts[kept] - 1]
    units = np.repeat(kept, row_last - row_first + 1)
    part_rows = expand_ranges(row_first, row_last - row_first + 1)
    order = np.argsort(part_rows, kind="stable")
    units, part_rows = units[order], part_rows[order]
    bounds = np.searchsorted(row, np.arange(len(rows.lengths) + 1))
    begins = np.maximum(firsts[units], bounds[part_rows])
    ends = np.minimum(lasts[units], bounds[part_rows + 1])
    has_tokens = begins < ends
    units, part_rows, begins, ends = (v[has_tokens] for v in (units, part_rows, begins, ends))
    numbers = np.arange(len(units)) - np.searchsorted(part_rows, part_rows)
    counts = np.bincount(part_rows, minlength=len(rows.lengths))
    if (counts > rows.lengths).any():
        raise _too_many(rows, counts, name)
    slots = row_starts[part_rows] + numbers
    columns = np.full((2, len(rows.values)), -1, np.int32)
    columns[0, slots], columns[1, slots] = place[owned[begins]], place[owned[ends - 1]] + 1
    table = SpanTable(
        row_splits=found.row_splits,
        begins=found.begins.astype(np.int32),
        ends=found.ends.astype(np.int32),
        type_ids=(found.texts % 2).astype(np.int32),
        num_pieces=(lasts - firsts).astype(np.int32),
        all_pieces=(found.lasts - found.firsts).astype(np.int32),
        row_parts=counts,
        part_units=units,
        part_sizes=(ends - begins).astype(np.int32),
    )
    return replace(rows, span_begins=columns[0], span_ends=columns[1]), table


def _too_many(rows: Rows, counts: np.ndarray, name: Callable[[int], str]) -> InputError:
    row = int(np.flatnonzero(counts > rows.lengths)[0])
    return InputError.naming(
        "{example} has {count} spans in a row of {length} tokens; allowed: at most one for each "
        "token. Give the text several times, each time with some of its spans",
        example=name(int(rows.examples[row])),
        count=counts[row],
        length=rows.lengths[row],
    )
