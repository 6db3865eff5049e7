"""The manifest of a features folder: what its shards are, and which of them are finished.

A features folder has one features file for each shard of a run, and `_manifest.json`, written
before the first shard. While the run continues, the record of each finished shard is a file of its
own in the hidden folder `.finished`; so finishing a shard costs the same in a folder of ten and of
ten thousand. When all are finished, their records move into the manifest.
"""

import dataclasses
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from bert_features.config.recipe import Recipe
from bert_features.config.settings import problem_of
from bert_features.config.shards import MAX_COUNT
from bert_features.errors import OutputError, first_line, printable
from bert_features.files import Location, Store, name_of, open_store, storage_errors
from bert_features.formats.headers import parse_scale

# Programs that read a folder of Parquet files ignore names that begin with `_` or `.`.
MANIFEST = "_manifest.json"
FINISHED = ".finished"
MANIFEST_VERSION: Final = 2
_KEPT = "finished shards are kept"

# Bytes of a manifest that tell it from other files of this name.
BEGINNING_BYTES = 4096

# Bounds, because anyone may have written a manifest: numbers of 64 bits, and a suffix that cannot
# lead out of the folder.
_MAX_INT = (1 << 63) - 1
_Int = Annotated[int, Field(ge=-_MAX_INT, le=_MAX_INT)]
_Count = Annotated[int, Field(ge=0, le=_MAX_INT)]
_Path = Annotated[str, Field(pattern=r"^[^\x00]+$")]
_Checksum = Annotated[str, Field(pattern=r"^[0-9a-f]{8}$")]
_MANY_SECONDS = 1e10  # 300 years


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class InputEntry(_Entry):
    """An input of the run.

    Attributes:
      bytes: its size.
      modified_ns: when it was last changed, in nanoseconds since 1970; None for an address.
      version: what an object store tells versions of the object by; None if it does not, and for a
        local file.
    """

    path: _Path
    bytes: _Count
    modified_ns: _Int | None
    version: str | None
    records: _Count


class ShardEntry(_Entry):
    """A shard: consecutive examples of one input.

    Attributes:
      input: the number of the input, from 0.
      first: the number of its first example, counted from 0 over all inputs.
      start: where it begins in the input, in bytes.
      end: where it ends; None for an input that is read from its beginning to its end.
      line: the number of lines before it.
      crc32c: the CRC-32C of these lines; in Parquet of what is read of these rows.
    """

    input: _Count
    first: _Count
    records: _Count
    start: _Count
    end: _Count | None
    line: _Count
    crc32c: _Checksum


class FinishedEntry(_Entry):
    """The record of a finished shard.

    Attributes:
      bytes: the size of its features file.
      crc32c: the CRC-32C of that file.
      sidecar_crc32c: the same of its sidecar; None where there is none.
      ends_crc32c: the CRC-32C of the first and last 64 KiB of the features file, which a reader
        compares before it reads.
      texts_crc32c: the checksum of its texts.
      seconds: how long it took.
      counts: totals by the names of `extraction.counts.Counts`.
    """

    bytes: _Count
    crc32c: _Checksum
    sidecar_crc32c: _Checksum | None
    ends_crc32c: _Checksum
    texts_crc32c: _Checksum | None = None
    seconds: Annotated[float, Field(ge=0, le=_MANY_SECONDS)]
    counts: dict[str, _Count]


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid", strict=True))
class Manifest:
    """What a features folder holds, or will hold; the fields are the keys of `_manifest.json`.

    Attributes:
      suffix: the suffix of their names.
      id_type: whether ids are `int` or `str`.
      recipe: how the vectors are made.
      processor: the processor that computed first, on which the last digits depend.
      hosts: the number of machines that share the run; 1 if it was begun as the run of one.
      earlier: the versions and canaries that shards had before others were accepted.
      order: of a shuffled store the `seed`, the `level` of its source that its rows are of, and
        whether `special_tokens` are among them; else None.
      shards: the shards, in order; at least one.
      finished: the records of all shards once the run is finished; None until then.
      folder: the folder: its path, or its address. It is not written.
    """

    manifest_version: Literal[2] = MANIFEST_VERSION
    format: Annotated[str, Field(pattern=r"^[a-z0-9]{1,16}$")]
    suffix: Annotated[str, Field(pattern=r"^\.[a-z0-9]{1,16}$")]
    id_type: Literal["int", "str"]
    recipe: Recipe
    processor: str = ""
    hosts: Annotated[int, Field(ge=1, le=MAX_COUNT)] = 1
    earlier: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    order: dict[str, Any] | None = None
    inputs: tuple[InputEntry, ...]
    shards: Annotated[tuple[ShardEntry, ...], Field(max_length=MAX_COUNT)]
    finished: Annotated[tuple[FinishedEntry, ...], Field(max_length=MAX_COUNT)] | None = None
    folder: Location = Path()

    @classmethod
    def read(cls, folder: Location) -> Self:
        """Reads a folder's manifest.

        Raises OutputError if there is none, it is damaged, or another version wrote it.
        """
        store = open_store(folder)
        path = store.location(MANIFEST)
        try:
            has_manifest(folder)
            text = store.read(MANIFEST)
        except OSError as error:
            raise OutputError(f"cannot read {path}: {error.strerror}") from error
        try:
            _check_version(path, text)
            parsed = TypeAdapter(cls).validate_json(text)
            parsed.recipe.check()
            for name, output in parsed.recipe.outputs.items():
                if output.get("scale", []) != []:
                    parse_scale(output["scale"], name)
            parsed._check_shards()
            if parsed.finished is not None and len(parsed.finished) != len(parsed.shards):
                raise ValueError(f"{len(parsed.shards)} shards, {len(parsed.finished)} finished")
        except (ValueError, TypeError, RecursionError) as error:  # pydantic's too
            raise _damaged(path, error) from error
        return replace(parsed, folder=folder)

    def _check_shards(self) -> None:
        """Refuses shards that are not one after the other, each of an input."""
        if not self.shards:
            raise ValueError("it lists no shards")
        first = 0
        for number, shard in enumerate(self.shards):
            if shard.first != first:
                raise ValueError(
                    f"shard {number} begins at example {shard.first}, and the shards before it "
                    f"hold {first}"
                )
            if shard.input >= len(self.inputs):
                raise ValueError(
                    f"shard {number} is of input {shard.input}, and there are {len(self.inputs)}"
                )
            first += shard.records
        if first > _MAX_INT:
            raise ValueError(f"its shards hold {first} examples; allowed: at most {_MAX_INT}")

    def begin(self) -> None:
        """Makes room for records of shards; raises OutputError if the folder is not writable."""
        with storage_errors(f"write {self.folder}", advice=_KEPT):
            self.store.make_folder(FINISHED)

    def write(self) -> None:
        """Puts the manifest in the folder; with an OutputError what was there is as before."""
        self.store.write(MANIFEST, self._text())

    def create(self) -> bool:
        """Puts the manifest in the folder if there is none; whether it did."""
        return self.store.create(MANIFEST, self._text())

    def _text(self) -> str:
        exclude: Any = {"folder": True, "recipe": {"name"}}
        return TypeAdapter(Manifest).dump_json(self, indent=1, exclude=exclude).decode() + "\n"

    @property
    def records(self) -> int:
        """Number of examples of all shards."""
        return sum(shard.records for shard in self.shards)

    @property
    def store(self) -> Store:
        """The folder, to read and to write."""
        return open_store(self.folder)

    def name(self, shard: int) -> str:
        """The name of the features file of a shard, as `part-00000-of-00042.parquet`."""
        return f"part-{shard:05d}-of-{len(self.shards):05d}{self.suffix}"

    def path(self, shard: int) -> Location:
        """The features file of a shard."""
        return self.store.location(self.name(shard))

    def finish_shard(self, shard: int, entry: FinishedEntry) -> None:
        """Records that a shard's features file is in its place; raises OutputError if it cannot."""
        self.begin()
        self.store.write(_record(shard), entry.model_dump_json() + "\n")

    def finished_shards(self) -> Iterator[tuple[int, FinishedEntry]]:
        """Number and record of each finished shard, in order; OutputError: one is damaged."""
        if self.finished is not None:
            yield from enumerate(self.finished)
            return
        store = self.store
        with storage_errors(f"read {self.folder}", advice=_KEPT):
            there = store.names(FINISHED) if store.exists(FINISHED) else set()
        shards = [s for s in range(len(self.shards)) if name_of(_record(s)) in there]
        texts = store.read_all(map(_record, shards))
        for shard in shards:
            yield shard, _read_record(store.location(_record(shard)), texts)


def has_manifest(folder: Location) -> bool:
    """Whether a folder has a manifest; OutputError: the folder is not open."""
    with storage_errors(f"read {folder}", advice="nothing was changed"):
        return open_store(folder).exists(MANIFEST)


_FINISHED = TypeAdapter(FinishedEntry)


def _record(shard: int) -> str:
    """The name of the record of a shard."""
    return f"{FINISHED}/{shard:05d}.json"


def _read_record(path: Location, texts: Iterator[bytes]) -> FinishedEntry:
    """The next of some records, which is at `path`."""
    try:
        return _FINISHED.validate_json(next(texts))
    except OSError as error:
        raise OutputError(f"cannot read {path}: {error.strerror}") from error
    except ValidationError as error:
        raise _damaged(path, error) from error


def is_beginning(text: bytes) -> bool:
    """Whether a manifest may begin with these bytes."""
    return b'"manifest_version"' in text


def _check_version(path: Location, text: bytes) -> None:
    content = json.loads(text)
    if not isinstance(content, dict) or "manifest_version" not in content:
        raise ValueError("it has no manifest_version")
    version = content["manifest_version"]
    if version != MANIFEST_VERSION:
        raise OutputError(
            f"cannot read {path}: its manifest_version is {version!r:.40}, and this release reads "
            f"{MANIFEST_VERSION}; use the release that wrote it, or extract again with --overwrite"
        )


def _damaged(path: Location, error: Exception) -> OutputError:
    return OutputError(
        f"cannot read {path}: it is damaged, or not one of bert_features ({_reason(error)}); take "
        "it from a copy, or extract again with --overwrite"
    )


def _reason(error: Exception) -> str:
    """What is wrong, in one line: of pydantic's errors the first, and where it is."""
    if not isinstance(error, ValidationError):
        return first_line(error)
    first = error.errors()[0]
    place = ".".join(map(str, first["loc"]))
    problem = problem_of(first)
    return printable(f"{place}: {problem}" if place else problem)[:200]
