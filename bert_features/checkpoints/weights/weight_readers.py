"""The files that hold weights, and their readers: TF1 and TF2 checkpoints, and Hugging Face's.

Those are safetensors or `pytorch_model.bin` (see `pickle_weights`), whole and in shards; the names
and the layout of weights are the same, so both are of the kind `safetensors`. A reader gives names
and shapes and reads one tensor at a time; `weight_names` knows what the names mean.
"""

import contextlib
import functools
import json
import mmap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from bert_features.checkpoints.weights import weight_names
from bert_features.checkpoints.weights.file_names import (
    INDEX_SUFFIX,
    PICKLED,
    PICKLED_INDEX,
    SAVED_MODEL,
    is_index,
)
from bert_features.checkpoints.weights.other_files import check_pointer
from bert_features.checkpoints.weights.pickle_weights import PickleReader
from bert_features.checkpoints.weights.relatives import todays_names
from bert_features.checkpoints.weights.weight_names import Kind
from bert_features.config.json_files import read_json_object
from bert_features.config.settings import shown
from bert_features.errors import CheckpointError
from bert_features.machine.quiet_tensorflow import import_tensorflow

# Where an object-based checkpoint keeps the names of its variables: a TrackableObjectGraph.
OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"


class Reader(Protocol):
    """The tensors of a checkpoint on disk, read one at a time."""

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Name -> shape of every tensor, in the order of the names."""
        ...

    def read(self, name: str) -> np.ndarray:
        """One tensor, as it is stored; it may be a view of the file."""
        ...


@dataclass(frozen=True)
class WeightFiles:
    """The weights of a checkpoint on disk; they are opened once.

    Attributes:
      path: the file of Hugging Face's weights (safetensors or pytorch_model.bin), the index of its
        shards, or the prefix of a TensorFlow checkpoint; a SavedModel has that prefix in its folder
        `variables`.
      kind: whose names and layout they have: `tf1`, `tf2`, or `safetensors` for Hugging Face's.
    """

    path: Path
    kind: Kind

    @property
    def format(self) -> str:
        """The kind, or `pickle` for the files of torch."""
        return "pickle" if self.path.name.endswith((*PICKLED, PICKLED_INDEX)) else self.kind

    @functools.cached_property
    def in_saved_model(self) -> bool:
        """Whether they are the variables of a SavedModel."""
        folder = self.path.parent
        return folder.name == "variables" and (folder.parent / SAVED_MODEL).is_file()

    @functools.cached_property
    def root(self) -> Path:
        """The directory of the checkpoint; for a SavedModel the one above its `variables`."""
        folder = self.path.parent
        return folder.parent if self.in_saved_model else folder

    @functools.cached_property
    def is_electra(self) -> bool:
        """Whether this is a TF1 checkpoint of ELECTRA, which Google publishes without a config.

        A CheckpointError if it cannot be read.
        """
        index = self.path.with_name(f"{self.path.name}.index")
        return self.kind == "tf1" and index_names(index, "electra/embeddings/LayerNorm/beta")

    @property
    def may_lack_config(self) -> bool:
        """Whether checkpoints of this kind are published without a config that can be read.

        TensorFlow reads their shapes instead.
        """
        return self.kind == "tf2" or self.in_saved_model or self.is_electra

    @functools.cached_property
    def reader(self) -> Reader:
        """Their tensors; a CheckpointError if the files are damaged or missing."""
        return open_weights(self.path, self.kind)

    def close(self) -> None:
        """Forgets the reader, with the memory that it has mapped; the next use opens another."""
        self.__dict__.pop("reader", None)

    def files(self) -> list[Path]:
        """The files that hold them, any index first.

        Raises CheckpointError if the folder or the index of shards cannot be read.
        """
        path = self.path
        if self.kind != "safetensors":
            with damage_is_an_error(path):
                data = [p for p in path.parent.iterdir() if p.name.startswith(f"{path.name}.data-")]
            return [path.with_name(f"{path.name}.index"), *sorted(data)]
        if not is_index(path.name):
            return [path]
        return [path, *_shards(path, weight_map_in(read_json_object(path), str(path))).values()]

    def beside(self, names: Sequence[str]) -> Path | None:
        """The first of these files beside the weights; of a SavedModel, also among its assets."""
        folders = [self.root] + [self.root / "assets"] * self.in_saved_model
        paths = (folder / name for folder in folders for name in names)
        file = next((path for path in paths if path.is_file()), None)
        if file is not None:
            check_pointer(file)
        return file


def open_weights(path: Path, kind: Kind) -> Reader:
    """Opens weights that `locate` found; raises CheckpointError if they are damaged or missing."""
    with damage_is_an_error(path):
        if kind == "safetensors":
            return _TodaysNames(_ShardsReader(path) if is_index(path.name) else _open_file(path))
        for file in WeightFiles(path, kind).files():
            check_pointer(file)
        return _TensorFlowReader(path, kind)


def index_names(index: Path, name: str) -> bool:
    """Whether the `.index` file of a TensorFlow checkpoint names a tensor; without TensorFlow.

    The file holds names as plain bytes. Raises CheckpointError if it cannot be read.
    """
    with damage_is_an_error(index):
        return name.encode() in index.read_bytes()


@contextlib.contextmanager
def damage_is_an_error(path: Path) -> Iterator[None]:
    """Turns any error of a library about a damaged file into one CheckpointError."""
    try:
        yield
    except (ImportError, MemoryError, CheckpointError):  # not the file's fault, or reported already
        raise
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror or error}") from error
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise CheckpointError(f"{path} is truncated or corrupt: {reason[:200]}") from error


def read_floats(reader: Reader, name: str, path: Path) -> np.ndarray:
    """One weight as float32; a CheckpointError if it is damaged or no float."""
    return np.array(view_floats(reader, name, path))


def view_floats(reader: Reader, name: str, path: Path) -> np.ndarray:
    """As `read_floats`, but it may be a read-only view of the file, which changes with it."""
    with damage_is_an_error(path):
        value = reader.read(name)
        _check_is_float(f"{path}: {name}", value.dtype.name)
        return value.astype(np.float32, copy=False)


def _check_is_float(name: str, dtype: str) -> None:
    if dtype not in ("float16", "bfloat16", "float32", "float64"):
        raise CheckpointError(
            f"{name} is {dtype}, expected floats; this is a quantised copy: take the float weights"
        )


class _TodaysNames:
    """A `Reader` of weights under today's names, whichever their file has."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        stored = reader.shapes()
        self._shapes: dict[str, tuple[int, ...]] = {}
        # Today's name -> the stored name, which of its parts, and how many it has.
        self._places: dict[str, tuple[str, int, int]] = {}
        for name, shape in stored.items():
            parts = todays_names(name)
            if stored.keys() & parts or (shape and shape[0] % len(parts)):
                parts = [name]  # as it is, so that an error lists it
            for number, part in enumerate(parts):
                self._places[part] = name, number, len(parts)
                self._shapes[part] = tuple(n // len(parts) for n in shape[:1]) + shape[1:]

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return self._shapes

    def read(self, name: str) -> np.ndarray:
        stored, number, count = self._places[name]
        value = self._reader.read(stored)
        return value if count == 1 else np.split(value, count)[number]


class _TensorFlowReader:
    """The tensors of a TensorFlow checkpoint.

    In an object-based one a tensor has the name of its variable, where that says more than its key.
    A key is the path to a variable in the objects of the program that saved it
    (`encoder/layer_with_weights-0/embeddings`); the object graph also knows the variable's own
    name (`word_embeddings/embeddings`), which does not depend on how the encoder was wrapped.
    """

    def __init__(self, prefix: Path, kind: Kind) -> None:
        self._reader = import_tensorflow().train.load_checkpoint(str(prefix))
        self._stored = self._reader.get_variable_to_shape_map()
        self._keys = {name: name for name in self._stored}
        if kind == "tf2":
            self._keys = _keys_by_name(self._reader.get_tensor(OBJECT_GRAPH))

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: tuple(self._stored[self._keys[name]]) for name in sorted(self._keys)}

    def read(self, name: str) -> np.ndarray:
        return np.asarray(self._reader.get_tensor(self._keys[name]))


def _keys_by_name(object_graph: bytes) -> dict[str, str]:
    """Name -> key of every tensor of an object graph except the optimizer's."""
    from tensorflow.core.protobuf.trackable_object_graph_pb2 import TrackableObjectGraph

    keys: dict[str, str] = {}
    for node in TrackableObjectGraph.FromString(object_graph).nodes:
        for attribute in node.attributes:
            if attribute.name != "VARIABLE_VALUE":  # such as OBJECT_CONFIG_JSON
                continue
            key = attribute.checkpoint_key
            path = key.partition("/.ATTRIBUTES/")[0]
            # By the key: some optimizers name their slots as the variables they belong to.
            if weight_names.is_ignored(key, "tf2") == "optimizer":
                continue
            recognised = [n for n in (attribute.full_name, path) if n and _is_known(n)]
            name = next((n for n in (*recognised, path) if n not in keys), key)
            keys[name] = key
    return keys


def _is_known(name: str) -> bool:
    return (
        weight_names.split_name(name, "tf2") is not None
        or weight_names.next_sentence_pooler(name) is not None
        or weight_names.is_ignored(name, "tf2") is not None
    )


class _ShardsReader:
    """The tensors of the shards of an index, which must name each in its shard."""

    def __init__(self, path: Path) -> None:
        self._shard_of = weight_map_in(read_json_object(path), str(path))
        shards = _shards(path, self._shard_of)
        self._files = {shard: _open_file(shards[shard]) for shard in shards}
        self._shapes = {shard: file.shapes() for shard, file in self._files.items()}
        stated = {*self._shard_of.items()}
        held = {(name, shard) for shard, names in self._shapes.items() for name in names}
        problems = [f"{shard} lacks {name}" for name, shard in sorted(stated - held)]
        problems += [
            f"{shard} holds {name}, which the index does not name there"
            for name, shard in sorted(held - stated)
        ]
        if problems:
            raise CheckpointError(f"{path} does not match its shards: {some(problems, '; ')}")

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: self._shapes[self._shard_of[name]][name] for name in sorted(self._shard_of)}

    def read(self, name: str) -> np.ndarray:
        return self._files[self._shard_of[name]].read(name)


class _SafetensorsReader:
    """The tensors of one file."""

    def __init__(self, path: Path) -> None:
        import ml_dtypes  # noqa: F401 - gives NumPy the bfloat16 that safetensors asks for
        from safetensors import safe_open

        self._path = path
        self._file = safe_open(path, framework="numpy")  # which checks the header
        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            self._header, self._start = json.loads(file.read(size)), 8 + size
            self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        names = sorted(self._file.keys())
        return {name: tuple(self._file.get_slice(name).get_shape()) for name in names}

    def read(self, name: str) -> np.ndarray:
        dtype = self._file.get_slice(name).get_dtype()
        if dtype.startswith(("F8_", "F6_", "F4")):  # no array holds these
            _check_is_float(f"{self._path}: {name}", dtype)
        if dtype != "F32":
            return np.asarray(self._file.get_tensor(name))
        # A view of the file: safetensors copies, and the encoder holds a copy too.
        begin, end = self._header[name]["data_offsets"]
        flat = np.frombuffer(self._data, "<f4", (end - begin) // 4, self._start + begin)
        return flat.reshape(self._header[name]["shape"])


def _open_file(path: Path) -> Reader:
    with damage_is_an_error(path):
        check_pointer(path)
        return PickleReader(path) if path.suffix in PICKLED else _SafetensorsReader(path)


def weight_map_in(values: dict[str, Any], index: str) -> dict[str, str]:
    """Name -> shard, from the contents of the index of weights in shards.

    Raises CheckpointError if it is no such index, or names files that are not shards beside it.
    """
    weight_map = values.get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f"{index} is not an index of shards: it has no 'weight_map'")
    suffix = ".safetensors" if index.endswith(INDEX_SUFFIX) else ".bin"
    strange = [shard for shard in weight_map.values() if not _is_shard(shard, suffix)]
    if strange:
        raise CheckpointError(
            f"{index} names files that are not {suffix} files in its own folder: "
            f"{some([shown(shard) for shard in strange])}; fetch it again"
        )
    return weight_map


def _shards(index: Path, weight_map: Mapping[str, str]) -> dict[str, Path]:
    """The path of each shard that an index names; all must be there."""
    shards = {shard: index.parent / shard for shard in sorted(set(weight_map.values()))}
    with damage_is_an_error(index):
        missing = [shard for shard, path in shards.items() if not path.is_file()]
    if missing:
        raise CheckpointError(
            f"{index} names shards that are not beside it: {some(missing)}; fetch those too"
        )
    return shards


def _is_shard(value: object, suffix: str) -> bool:
    return isinstance(value, str) and value.endswith(suffix) and not {"/", "\\", "\0"} & set(value)


def some(items: list[str], separator: str = ", ") -> str:
    """The first few of many items, and the number of the others."""
    more = f" and {len(items) - 4} more" if len(items) > 4 else ""
    return separator.join(items[:4]) + more
