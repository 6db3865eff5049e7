"""Spans of texts: the pieces of each, and where they are found among the rows.

Shape legend: `P` pieces of all texts. Texts are numbered as in `words.PieceRuns`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain

import numpy as np

from bert_features.batches.row_plan import Rows, expand_ranges
from bert_features.batches.unit_tables import UnitTable
from bert_features.batches.words import PiecePlaces, PieceRuns
from bert_features.errors import InputError
from bert_features.readers.input_example import InputExample, Span


def find_spans(
    examples: Sequence[InputExample], pieces: PiecePlaces, chunks: tuple[int, int] | None
) -> PieceRuns:
    """The spans of examples, which have them or get chunks: tokens of each, and what two share.

    Raises InputError for an example without spans if there are no chunks.
    """
    bounds = np.searchsorted(pieces.texts, np.arange(2 * len(examples) + 1)).tolist()
    by_example: list[Sequence[Span]] = []
    for i, example in enumerate(examples):
        if example.spans is not None:
            by_example.append(example.spans)
        elif chunks is not None:
            by_example.append([*_chunks(example, pieces, bounds[2 * i : 2 * i + 3], *chunks)])
        else:
            raise InputError(
                f"example {example.unique_id!r} has no spans, which level 'span' needs; pass spans "
                "or span_field, or in Python the argument spans"
            )
    counts = [len(spans) for spans in by_example]
    flat = [(begin, end, kind) for begin, end, _, kind in chain.from_iterable(by_example)]
    begins, ends, kinds = np.array(flat, np.int64).reshape(-1, 3).T
    texts = 2 * np.repeat(np.arange(len(examples)), counts) + kinds
    prompts = np.repeat([example.prompt for example in examples], counts) * (kinds == 0)
    firsts, lasts = pieces.runs(texts, begins + prompts, ends + prompts)
    return PieceRuns(texts, firsts, lasts - firsts, begins, ends)


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


def place_spans(rows: Rows, spans: PieceRuns, total: int) -> tuple[Rows, UnitTable]:
    """Shares spans out to the rows that own their tokens.

    A row has room for as many as it has tokens; the last ones of more lose what it owns of them.

    Args:
      rows: the rows.
      spans: the spans.
      total: P; the pieces of [CLS] and [SEP] have higher numbers.

    Returns:
      The rows with `span_begins` and `span_ends`, see `config.packing.SPAN_BOUNDS`; and the spans.
    """
    parts = _parts(rows, spans, total)
    counts = np.bincount(parts[1], minlength=len(rows.lengths))
    order = np.argsort(parts[1], kind="stable")
    slots = np.empty_like(order)
    slots[order] = expand_ranges(np.zeros_like(counts), counts)
    has_room = slots < rows.lengths[parts[1]]
    units, part_rows, first_tokens, last_tokens, slots = (c[has_room] for c in (*parts, slots))
    columns = np.full((2, len(rows.values)), -1, np.int32)
    places = rows.starts[part_rows] + slots
    columns[:, places] = rows.place[first_tokens], rows.place[last_tokens] + 1
    sizes = last_tokens + 1 - first_tokens
    table = UnitTable.of(rows, spans, units=units, part_rows=part_rows, slots=slots, sizes=sizes)
    return replace(rows, span_begins=columns[0], span_ends=columns[1]), table


def _parts(rows: Rows, spans: PieceRuns, total: int) -> tuple[np.ndarray, ...]:
    """The unit, row, first token and last token of each part, int64 [O]; units ascend."""
    # Each piece that is kept is owned once, and the rows have the owned ones in their order.
    owned = np.flatnonzero(rows.is_own & (rows.pieces < total))
    bounds = [spans.first_pieces, spans.first_pieces + spans.num_pieces]
    firsts, lasts = np.searchsorted(rows.pieces[owned], bounds)
    row = rows.row_of_token[owned]
    kept = np.flatnonzero(firsts < lasts)
    row_first, row_last = row[firsts[kept]], row[lasts[kept] - 1]
    units = np.repeat(kept, row_last - row_first + 1)
    part_rows = expand_ranges(row_first, row_last - row_first + 1)
    row_bounds = np.searchsorted(row, np.arange(len(rows.lengths) + 1))
    begins = np.maximum(firsts[units], row_bounds[part_rows])
    ends = np.minimum(lasts[units], row_bounds[part_rows + 1])
    has_tokens = begins < ends
    columns = units, part_rows, owned[begins], owned[ends - 1]
    return tuple(column[has_tokens] for column in columns)
