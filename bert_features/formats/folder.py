"""A features folder, which holds one features file for each shard of a run, read as one file."""

import contextlib
import itertools
import logging
import threading
import weakref
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from bert_features.config.recipe import RECIPE, Recipe
from bert_features.config.shards import WHOLE, Shard
from bert_features.errors import OutputError
from bert_features.files import Location, name_of, open_store, storage_errors
from bert_features.formats.canaries import compare_recipes
from bert_features.formats.columns import find_parts
from bert_features.formats.headers import Header
from bert_features.formats.manifest import MANIFEST, FinishedEntry, Manifest, has_manifest
from bert_features.formats.reader import FeatureFile
from bert_features.formats.records import Feature, FeatureBatch, FeatureRecord, splits_of
from bert_features.formats.shard_files import (
    check_file,
    check_sizes,
    checksums_of,
    fetched,
    how_to_mend,
    unreadable,
)

logger = logging.getLogger("bert_features")

# Shards that stay open for the next record.
MAX_OPEN = 4


class _Parts(FeatureFile):
    """Several features files that are read as one; `_shard` gives the file of a number."""

    _starts: np.ndarray

    @abstractmethod
    def _shard(self, number: int) -> FeatureFile:
        """The file of a part."""

    def _records(self, records: range) -> Iterator[FeatureRecord]:
        for number, start, stop in find_parts(self._starts, records):
            shard = self._shard(number)
            # JSON lines are all read without looking for the places of the lines first.
            yield from shard if stop - start == len(shard) else shard[start:stop]

    def _batches(self, records: range, only: Sequence[str] | None = None) -> Iterator[FeatureBatch]:
        for number, start, stop in find_parts(self._starts, records):
            shard = self._shard(number)
            yield from shard.guarded(shard._batches(range(start, stop), only))

    def _record(self, number: int) -> FeatureRecord:
        ((shard, start, _),) = find_parts(self._starts, range(number, number + 1))
        return self._shard(shard)[start]

    def _ragged(self, feature: Feature, records: range) -> tuple[np.ndarray, np.ndarray | None]:
        # For no records, what the first shard returns for none.
        parts = list(find_parts(self._starts, records)) or [(0, 0, 0)]
        if len(parts) > 1:
            return super()._ragged(feature, records)
        ((number, start, stop),) = parts
        return self._shard(number)[start:stop].ragged(feature.name)

    def _blocks(
        self, feature: Feature, records: range
    ) -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
        for number, start, stop in find_parts(self._starts, records):
            yield from self._shard(number)[start:stop].blocks(feature.name)

    def _all_ids(self) -> np.ndarray:
        return np.concatenate([self._shard(number).ids for number in range(len(self._starts) - 1)])

    @property
    def _extent(self) -> str:
        count = len(self._starts) - 1
        return f" in {count:,} shard{'' if count == 1 else 's'}"


class FeatureFolder(_Parts):
    """The records of all shards of a finished run, in order, as if they were in one file.

    A shard is opened, and compared with the manifest, when one of its records is asked for. The few
    that were used last stay open. `ragged` copies what lies in several shards; what lies in one is
    what its file returns.

    `verify` compares each file with the checksum that the manifest has of all its bytes, then with
    its own checksums.

    Attributes:
      metadata: metadata of the first shard.
      features: the features of each record, in order; the same in all shards.
      id_type: whether ids are `int` or `str`.

    Raises:
      OutputError: there is no manifest, it is damaged, the run is not finished, a file is missing,
        or the first shard is not what the manifest says.
    """

    path: Location
    _noun = "folder"
    _watched = MANIFEST

    def __init__(self, path: Location) -> None:
        self._opened: dict[int, FeatureFile] = {}  # the last one used is last
        self._lock = threading.Lock()
        super().__init__(path)  # type: ignore[arg-type]

    @property
    def recipe(self) -> Recipe:
        """See `FeatureFile.recipe`. It has no canaries if the shards have several."""
        recipe = super().recipe
        if not self._manifest.earlier:
            return recipe
        name = f"{recipe.name} (of shards with other numbers)"
        return replace(recipe, name=name, canaries={})

    @property
    def shards(self) -> tuple[Location, ...]:
        """The features file of each shard, in order."""
        return tuple(map(self._manifest.path, range(len(self._manifest.shards))))

    @property
    def bytes(self) -> int:
        """Size of the files of all shards, their sidecars included."""
        name = self._manifest.name
        with storage_errors(f"read {self.path}", advice=how_to_mend(self.path)):
            store = self._manifest.store.listed()
            return sum(
                store.size(part)
                for number, entry in enumerate(self._finished)
                for part in checksums_of(store, name(number), entry)
            )

    def close(self) -> None:
        """Closes the shards that are open."""
        with self._lock:
            opened, self._opened = self._opened, {}
        for shard in opened.values():
            shard.close()

    def texts(self) -> list[tuple[int, str | None]]:
        """See `FeatureFile.texts`."""
        records = [shard.records for shard in self._manifest.shards]
        return list(zip(records, [entry.texts_crc32c for entry in self._finished], strict=True))

    # What a format implements.

    def _check_readable(self) -> None:
        names = _names_in(self.path)
        self._manifest = Manifest.read(self.path)
        self.format = self._manifest.format
        self._finished = _finished(self._manifest)
        missing = [name for name in map(name_of, self.shards) if name not in names]
        if missing:
            raise OutputError(
                f"cannot read {self.path}: {len(missing):,} of its {len(self.shards):,} shards not "
                f"found, {missing[0]} first; {how_to_mend(self.path, 'them')}"
            )

    def _read_header(self) -> Header:
        from bert_features.formats import FORMATS  # which itself needs this module

        if self.format not in FORMATS:
            raise ValueError(f"format {self.format!r} is unknown; allowed: {', '.join(FORMATS)}")
        self._starts = splits_of([shard.records for shard in self._manifest.shards])
        first = self._shard(0)
        self.has_token_ids = first.has_token_ids
        records = self._manifest.records
        return Header(first.metadata, first.features, first.id_type, records, is_whole=True)

    def _verify(self) -> tuple[str, ...]:
        for number, entry in enumerate(self._finished):
            store, name = self._manifest.store, self._manifest.name(number)
            if isinstance(store.location(name), Path):  # a copy is compared when it is fetched
                check_file(store, name, entry)
            self._shard(number).verify()
        # The manifest has a checksum of all bytes, also of what a file itself has none of.
        return ()

    # The shards.

    def _shard(self, number: int) -> FeatureFile:
        """The file of a shard, open for as long as it is one of the last few that were used."""
        with self._lock:
            shard = self._opened.pop(number, None) or self._open(number)
            self._opened[number] = shard
            if len(self._opened) > MAX_OPEN:
                # Not closed: an iterator or another thread may read it. Once nobody does, it is.
                del self._opened[next(iter(self._opened))]
            return shard

    def _open(self, number: int) -> FeatureFile:
        from bert_features.formats import read_features  # which itself needs this module

        store, name = self._manifest.store, self._manifest.name(number)
        check_sizes(store, name, self._finished[number])
        with contextlib.ExitStack() as copies:
            path = copies.enter_context(fetched(store, name, self._finished[number]))
            shard = read_features(path, format=self.format)
            self._check_shard(number, shard)
            # A copy of a shard at an address is removed once nobody reads it.
            weakref.finalize(shard, copies.pop_all().close)
        return shard

    def _check_shard(self, number: int, shard: FeatureFile) -> None:
        """Refuses a shard that is not what the manifest says."""
        manifest, problem = self._manifest, None
        expected = manifest.shards[number].records
        if len(shard) != expected:
            problem = f"it holds {len(shard)} records, and the manifest records {expected}"
        elif shard.id_type != manifest.id_type:
            problem = f"its ids are {shard.id_type}, and the manifest records {manifest.id_type}"
        elif number > 0 and shard.features != self.features:
            problem = _difference(shard.features, self.features, manifest.name(0))
        if problem:
            raise unreadable(manifest.store, manifest.name(number), problem)


class FeatureFiles(_Parts):
    """The records of several features files, in their order, as if they were in one file.

    Where an id is in several, `by_id` gives the first record.

    Raises:
      OutputError: their features, dtypes, scales or types of ids differ, or their vectors may not
        be compared, see `bert_features.compare`.
    """

    _noun = "files"

    def __init__(self, files: Sequence[FeatureFile]) -> None:
        if not files:
            raise OutputError("the list of features files is empty; pass at least one")
        self._files, self.format = files, "+".join(dict.fromkeys(f.format for f in files))
        self.has_token_ids = all(file.has_token_ids for file in files)
        super().__init__(files[0].path)
        self.path = ", ".join(str(file.path) for file in files)

    def _check_readable(self) -> None:
        pass  # they are open

    def close(self) -> None:
        """Closes the files."""
        for file in self._files:
            file.close()

    def texts(self) -> list[tuple[int, str | None]]:
        """See `FeatureFile.texts`."""
        return [part for file in self._files for part in file.texts()]

    def _read_header(self) -> Header:
        first = self._files[0]
        for other in self._files[1:]:
            if problem := _unlike(first, other):
                raise OutputError(f"cannot read {first.path} and {other.path} as one: {problem}")
        _check_shares(self._files)
        self._starts = splits_of([len(file) for file in self._files])
        is_whole = all(file._is_whole is not False for file in self._files)  # each says the rest
        count = int(self._starts[-1])
        return Header(first.metadata, first.features, first.id_type, count, is_whole=is_whole)

    def _verify(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(each for file in self._files for each in file.verify()))

    @property
    def _extent(self) -> str:
        return f" in {len(self._files):,} files"

    def _shard(self, number: int) -> FeatureFile:
        return self._files[number]

    def __reduce__(self) -> Any:
        return type(self), (self._files,)


def _check_shares(files: Sequence[FeatureFile]) -> None:
    """Refuses shares of one run that are there twice or of two numbers; warns of missing ones."""
    shares = [(share, file.path) for file in files if (share := _share_of(file)).count > 1]
    for (share, path), (other, other_path) in itertools.combinations(shares, 2):
        if share.count != other.count or share == other:
            raise OutputError(
                f"{path} is share {share} of a run and {other_path} share {other}; pass the file "
                "of each share of one run once"
            )
    if shares and (missing := shares[0][0].count - len(shares)):
        text = "%d of the %d shares of the run are missing: %s has share %s"
        logger.warning(text, missing, shares[0][0].count, shares[0][1], shares[0][0])


def _share_of(file: FeatureFile) -> Shard:
    """The share of a run that a file has."""
    shard = file.recipe.settings.get("shard") if RECIPE in file.metadata else None
    return WHOLE if shard is None else Shard.parse(shard)


def _unlike(first: FeatureFile, other: FeatureFile) -> str:
    """Why two files cannot be read as one; empty if they can."""
    again = "extract one of them again"
    if first.id_type != other.id_type:
        return f"ids are {first.id_type} and {other.id_type}; {again}"
    for mine, its in zip_longest(first.features, other.features):
        described = [None if f is None else (f.name, f.describe(), f.labelled) for f in (mine, its)]
        if described[0] != described[1]:
            listed = (", ".join(f.describe() for f in file.features) for file in (first, other))
            return f"they have {' and '.join(listed)}; {again}"
        if mine.scale != its.scale:
            return f"{mine.name} has another scale; {again}, with the other as its scale_from"
    comparisons = compare_recipes(first.recipe, other.recipe)
    return next((f"{each.feature}: {each}" for each in comparisons if not each.may_be_compared), "")


def _names_in(folder: Location) -> set[str]:
    """The names in a folder; raises OutputError if it cannot be listed, or has no manifest."""
    with storage_errors(f"read {folder}", advice="pass the folder that a run wrote"):
        names = open_store(folder).names()
        is_ours = has_manifest(folder)
    if not is_ours:
        raise OutputError(
            f"cannot read {folder}: Is a directory, without the {MANIFEST} of a features folder; "
            "pass a features file, or the folder that a run wrote"
        )
    return names


def _finished(manifest: Manifest) -> tuple[FinishedEntry, ...]:
    """The records of all shards; raises OutputError if the run is not finished."""
    if manifest.finished is None:
        done = sum(1 for _ in manifest.finished_shards())
        raise OutputError(
            f"cannot read {manifest.folder}: its run is not finished: {done:,} of "
            f"{len(manifest.shards):,} shards are done; run the same extract command again to "
            "resume it"
        )
    return manifest.finished


def _difference(features: Sequence[Feature], first: Sequence[Feature], name: str) -> str:
    """What a shard has instead of a feature of the first shard, whose file has this name."""
    actual, expected = (
        feature.to_metadata() if feature else {}
        for feature in next(pair for pair in zip_longest(features, first) if pair[0] != pair[1])
    )
    key = next(key for key in actual | expected if actual.get(key) != expected.get(key))
    return f"a feature has {key} {actual.get(key)}, and in {name} {key} {expected.get(key)}"
