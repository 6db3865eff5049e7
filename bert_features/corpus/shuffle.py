"""Shuffled stores: the tokens or words of texts, each a row, in one random order across all texts.

The n-th row has as its key the n-th number of 64 bits of NumPy's PCG64(seed); the store has the
rows in the order of their keys. So the seed and the number of rows alone decide the order. Two
passes need little memory: one scatters the rows into parts, files of this machine, by the first
bits of their keys; the other reads a part at a time, sorts it and writes it.

Shape legend: `T` tokens or words of several texts, `R` rows, `D` width of a feature.
"""

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from itertools import islice, pairwise
from pathlib import Path
from typing import Literal

import numpy as np

from bert_features.config.features import Feature
from bert_features.config.recipe import RECIPE
from bert_features.config.shards import MAX_COUNT
from bert_features.corpus.folder import check_folder
from bert_features.corpus.inputs import look_up
from bert_features.corpus.shards import describe_shard
from bert_features.errors import ConfigError, OutputError
from bert_features.extraction.counts import Counts, find_non_finite
from bert_features.files import is_url, local_path, open_store, replacing
from bert_features.files.targets import check_folder as check_place
from bert_features.formats import SUFFIXES, check_dtype, open_writer, output_targets, read_features
from bert_features.formats.arrow_layout import convert_from_arrow, convert_to_arrow, schema_of
from bert_features.formats.columns import value_dtype
from bert_features.formats.folder import FeatureFolder
from bert_features.formats.groups import ENOUGH_BYTES
from bert_features.formats.manifest import MANIFEST, InputEntry, Manifest, ShardEntry
from bert_features.formats.records import FeatureBatch, Rows, splits_of
from bert_features.runtime.loop import prefetched

# The number that a row has beside its position, and what it is in the source.
_NUMBERS = {"token": ("token_id", "token_ids"), "word": ("num_pieces", "word_num_pieces")}


def shuffle_features(
    features: str | Path,
    folder: str | Path,
    *,
    seed: int,
    level: Literal["token", "word"] = "token",
    special_tokens: bool = True,
    shard_rows: int = 50_000,
    buffer_mb: int = 256,
    format: str = "parquet",
    overwrite: bool = False,
) -> FeatureFolder:
    """Writes the tokens or words of a features file in one random order across all texts.

    The store is a features folder, whose records are rows: the id of a text; `position`, int32 [1],
    of the token or word in it; its vectors, [D]. A token has `token_id` and, if the source has
    words, `word_number`: -1 if it is in no word, or the pieces of the text's words are not all its
    tokens. A word has `num_pieces`, 0 where its vectors are zeros. The folder appears when it is
    whole. A repeated call removes what a killed one left, and begins again.

    Args:
      features: a features file or folder: its path or address.
      folder: the folder to write. The disk needs room for its rows twice.
      seed: from 0 on. Row i of the store is row `numpy.argsort(keys, kind="stable")[i]` of the
        source, for the keys `numpy.random.PCG64(seed).random_raw(R)`.
      level: what the rows are.
      special_tokens: whether [CLS] and [SEP] are rows.
      shard_rows: rows of each shard; the last one has the rest.
      buffer_mb: megabytes of rows in memory, about. It does not change the bytes.
      format: a key of `FORMATS`.
      overwrite: whether a features folder at `folder` is replaced.

    Raises ConfigError for a wrong setting; OutputError if the source cannot be read or has no such
    rows, or the folder cannot be written.
    """
    bounds = {"seed": (seed, 0), "shard_rows": (shard_rows, 1), "buffer_mb": (buffer_mb, 1)}
    for name, (value, least) in bounds.items():
        if not isinstance(value, int) or value < least:
            raise ConfigError(f"{name} is {value!r}; allowed: an integer of at least {least}")
    if level not in _NUMBERS:
        raise ConfigError(f"level is {level!r}; allowed: {', '.join(_NUMBERS)}")
    if level == "word" and not special_tokens:
        raise ConfigError(f"special_tokens is False, but level is {level!r}; leave one out")
    output_targets(folder, format=format)  # refuses an unknown format
    if is_url(folder):
        raise OutputError(f"{folder} is an address; pass a path")
    source = _Source(features, level, special_tokens)
    for dtype in {feature.dtype for feature in source.features} - {"int32"}:
        check_dtype(format, dtype)
    check_folder(local_path(folder))
    target = check_place(local_path(folder), [("the source", source.place)], overwrite=overwrite)
    with replacing(target, overwrite=overwrite, folder=True) as new:
        # Beside what takes the target's place, so the parts are removed with it.
        parts = new.with_name(f"{new.name}.parts")
        new.mkdir()
        parts.mkdir()
        # A part is in memory twice while it is joined.
        count = 2 * source.count() * source.row_bytes // (buffer_mb << 20) + 1
        paths = [parts / str(part) for part in range(count)]
        rows = _scatter(source, seed, paths)
        starts = range(0, rows, shard_rows)
        if not 0 < len(starts) <= MAX_COUNT:
            raise OutputError(
                f"{rows:,} rows of {features} make {len(starts):,} shards of {shard_rows:,}; "
                f"allowed: 1 to {MAX_COUNT:,}; change shard_rows or special_tokens"
            )
        origin = {"path": source.place, "records": len(source.file)}
        shard = ShardEntry(input=0, first=0, records=1, start=0, end=None, line=0, crc32c="0" * 8)
        manifest = Manifest(
            format=format,
            suffix=next(suffix for suffix, name in SUFFIXES.items() if name == format),
            id_type="str" if source.file.id_type == "str" else "int",
            recipe=source.recipe,
            order={"seed": seed, "level": level, "special_tokens": special_tokens},
            inputs=(InputEntry.model_validate(origin | look_up(source.place)._asdict()),),
            shards=tuple(
                shard.model_copy(update={"first": i, "records": min(shard_rows, rows - i)})
                for i in starts
            ),
            folder=new,
        )
        _write(source, paths, manifest)
    return FeatureFolder(target)


class _Source:
    """The tokens or words of a features file, in its order.

    `features` are the numbers of a row and its `vectors`; `row_bytes` its size with id and key;
    `place` is the file, or the manifest of the folder.
    """

    def __init__(self, features: str | Path, level: str, special_tokens: bool) -> None:
        import pyarrow as pa

        self.file = file = read_features(features)
        self.recipe = file.recipe
        self._level, self._special_tokens = level, special_tokens
        if not special_tokens and file.recipe.texts.get("task") == "query":
            raise OutputError(
                f"{file.path} has queries of late interaction, which [MASK] may fill behind [SEP], "
                "and special_tokens is False; leave it out"
            )
        name, self._column = _NUMBERS[level]
        vectors = (feature for feature in file.features if feature.level == level)
        self.vectors = [replace(feature, level="row", labelled=False) for feature in vectors]
        names = [feature.name for feature in self.vectors]
        if not names or (level == "token" and not file.has_token_ids):
            has = ", ".join(dict.fromkeys(feature.level for feature in file.features))
            if has == "row":
                raise OutputError(f"{file.path} is shuffled already; shuffle what it came from")
            raise OutputError(
                f"{file.path} has {has} features in format {file.format}; pass another level than "
                f"{level}, or extract it in a format with token ids, not jsonl"
            )
        self._has_words = level == "token" and any(f.level == "word" for f in file.features)
        numbers = ["position", name, *["word_number"] * self._has_words]
        if taken := {*numbers} & {*names}:
            raise OutputError(
                f"{file.path} has a feature {min(taken)!r}, a name that rows use; give it another"
            )
        self._read = ["unique_ids", self._column, *names, *["word_num_pieces"] * self._has_words]
        of_numbers = [Feature(number, (), "none", 1, "int32", "row") for number in numbers]
        self.features = (*of_numbers, *self.vectors)
        self.schema = schema_of(self.features, file.id_type)
        self.with_keys = self.schema.insert(0, pa.field("", pa.uint64()))
        widths = [f.stored_width * value_dtype(f.dtype).itemsize for f in self.features]
        self.row_bytes = sum(widths) + 16
        manifest = open_store(file.path).location(MANIFEST)
        self.place = str(manifest if isinstance(file, FeatureFolder) else file.path)

    def count(self) -> int:
        """Number of tokens or words, T."""
        return sum(int(b.levels[self._level].splits[-1]) for b in self.file.batches([self._column]))

    def rows(self) -> Iterator[tuple[FeatureBatch, np.ndarray]]:
        """Tokens or words, a bounded part at a time, and the places of the rows among them."""
        for batch in self.file.batches(self._read):
            units = batch.levels[self._level]
            splits, lengths = units.splits, np.diff(units.splits)
            places, column = np.arange(splits[-1]), units.columns[self._column]
            numbers = [places - np.repeat(splits[:-1], lengths), column]
            if self._level == "token":
                # No text contains the ids of its first and its last token, [CLS] and [SEP].
                starts, ends = splits[:-1][lengths > 0], splits[1:][lengths > 0]
                own = ~np.isin(column, column[np.concatenate([starts, ends - 1])])
                if self._has_words:
                    numbers.append(_word_numbers(own, splits, batch.levels["word"]))
                places = places if self._special_tokens else np.flatnonzero(own)
            columns = [number[:, None].astype(np.int32) for number in numbers]
            columns += [units.features[feature.name] for feature in self.vectors]
            named = zip((feature.name for feature in self.features), columns, strict=True)
            yield FeatureBatch(np.repeat(batch.unique_ids, lengths), dict(named)), places


def _word_numbers(own: np.ndarray, splits: np.ndarray, words: Rows) -> np.ndarray:
    """The number of each token's word in its text, [T]; -1 where it is unknown.

    `own`, bool [T], are the tokens of the texts themselves, and `splits` where texts begin. Pieces
    stand in the order of their words, so their numbers say whose they are if they add up.
    """
    pieces, lengths = words.columns["word_num_pieces"], np.diff(words.splits)
    expected = np.diff(splits_of(pieces)[words.splits])
    adds_up = np.diff(splits_of(own)[splits]) == expected
    number = np.arange(len(pieces)) - np.repeat(words.splits[:-1], lengths)
    numbers = np.full(len(own), -1)
    known = np.repeat(number, pieces)[np.repeat(adds_up, expected)]
    numbers[own & np.repeat(adds_up, np.diff(splits))] = known
    return numbers


def _scatter(source: _Source, seed: int, paths: list[Path]) -> int:
    """Appends each row with its key to the file of its part, by Arrow; gives the number of rows."""
    import pyarrow as pa

    bits, total = np.random.PCG64(seed), 0
    with closing(prefetched(source.rows())) as read:  # beside writing
        for units, places in read:
            keys = bits.random_raw(len(places))
            parts = (keys >> 32) * np.uint64(len(paths)) >> 32
            order = np.argsort(parts, kind="stable")
            rows = convert_to_arrow(units.take(places[order]), source.features, source.schema)
            keyed = pa.record_batch([pa.array(keys[order]), *rows.columns], schema=source.with_keys)
            ends = np.searchsorted(parts[order], np.arange(len(paths) + 1, dtype=np.uint64))
            for path, (start, stop) in zip(paths, pairwise(ends.tolist()), strict=True):
                with path.open("ab") as file:
                    file.write(keyed[start:stop].serialize())
            total += len(places)
    return total


def _sorted(source: _Source, paths: list[Path]) -> Iterator[tuple[FeatureBatch, np.ndarray]]:
    """The rows of each part, whose file is removed, and the order of their keys, int64."""
    import pyarrow as pa

    for path in paths:
        with pa.memory_map(str(path)) as file:
            messages = pa.ipc.MessageReader.open_stream(file)
            pieces = [pa.ipc.read_record_batch(each, source.with_keys) for each in messages]
            table = pa.Table.from_batches(pieces, source.with_keys).combine_chunks()
            del pieces
        path.unlink()
        order = np.argsort(np.asarray(table.column(0)), kind="stable")
        yield convert_from_arrow(table.remove_column(0), source.features), order


def _blocks(source: _Source, paths: list[Path], sizes: Iterable[int]) -> Iterator[FeatureBatch]:
    """The rows in the order of their keys, in blocks of these sizes."""
    parts = _sorted(source, paths)
    rows, order = next(parts)
    for size in sizes:
        block = []
        while size:
            while not len(order):
                rows, order = next(parts)
            block.append(rows.take(order[:size]))
            order, size = order[size:], size - len(block[-1])
        yield FeatureBatch.join(block)


def _write(source: _Source, paths: list[Path], manifest: Manifest) -> None:
    """Writes the shards of a store and its manifest."""
    step, finished = max(1, ENOUGH_BYTES // source.row_bytes), []
    steps = [[*range(0, shard.records, step), shard.records] for shard in manifest.shards]
    sizes = (stop - start for each in steps for start, stop in pairwise(each))
    # Sorted beside writing.
    with closing(prefetched(_blocks(source, paths, sizes))) as blocks:
        for number, bounds in enumerate(steps):
            path, counts = Path(manifest.path(number)), Counts(bounds[-1], bounds[-1])
            with open_writer(
                path,
                format=manifest.format,
                features=source.features,
                metadata={RECIPE: manifest.recipe.to_json(), "order": manifest.order},
                id_type=manifest.id_type,
                checksum=True,
            ) as writer:
                for block in islice(blocks, len(bounds) - 1):
                    block.counts["non_finite"] = bad = np.zeros(len(block), bool)
                    for feature in source.vectors:
                        found = find_non_finite(block.sequence[feature.name])
                        bad |= False if found is None else found
                    counts.non_finite_examples += int(bad.sum())
                    writer.write(block)
            finished.append(describe_shard(path, manifest.format, counts, writer.crc32c))
    replace(manifest, finished=tuple(finished)).write()
