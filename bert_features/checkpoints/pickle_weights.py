"""The tensors of `pytorch_model.bin`, read without torch and without Python's `pickle`.

A pickle is a program for a stack. A small interpreter reads it here: it knows the instructions of
`_INSTRUCTIONS` and the names of `_CALLS` and `_STORAGES`, makes plain values, and refuses all else
by name. Nothing that a file names is imported or called. What a file claims is compared with its
size first, and no instruction takes longer than its bytes are long. `torch.save` has two layouts:

  zip    NAME/data.pkl, the pickle; NAME/data/KEY, the elements of a storage; NAME/byteorder
  older  (before torch 1.6) pickles: a magic number, a version, the system, the state dict, the keys
         of its storages; then for each key the number of elements (int64) and the elements
"""

import io
import math
import mmap
import pickletools
import struct
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from bert_features.checkpoints.other_files import CONVERT
from bert_features.config.settings import shown
from bert_features.errors import CheckpointError

# Of a pickle, of a zip's directory. BERT-large has 120 kB with 17,000 instructions.
_MAX_BYTES, _MAX_INSTRUCTIONS = 4 << 20, 500_000
# The sizes of all tensors in sizes of the file: tied weights share a storage.
_MAX_SHARING = 4
_MAX_DIMENSIONS = 8
_MAGIC = 0x1950A86A20F9469CFC6C
# Keys under which training loops keep the state dict, beside other things.
_WRAPPERS = ("state_dict", "model_state_dict", "model")
_STORAGES: dict[str, np.dtype[Any]] = {
    f"torch {name}Storage": np.dtype(dtype)
    for name, dtype in {
        **{"Double": "f8", "Float": "f4", "Half": "f2", "BFloat16": ml_dtypes.bfloat16},
        **{"Long": "i8", "Int": "i4", "Short": "i2", "Char": "i1", "Byte": "u1", "Bool": "?"},
    }.items()
}


@dataclass(frozen=True)
class _Global:
    """A name of the closed list, as a pickle writes it: module and name, with a blank between."""

    name: str


@dataclass(frozen=True)
class _Storage:
    """A one-dimensional array in the file."""

    key: str
    dtype: np.dtype[Any]
    length: int


@dataclass(frozen=True)
class _Tensor:
    """A view of a storage; offset and strides count elements."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class PickleReader:
    """A `Reader` of one file. Each tensor must lie in its storage, and this in the file.

    Raises CheckpointError where a file needs more than the closed list, and any other error where
    it is damaged: `weight_readers.damage_is_an_error` makes that one too.
    """

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self._data = _Mapped(file.fileno(), 0, access=mmap.ACCESS_READ)
        read = _read_zip if self._data[:4] == b"PK\3\4" else _read_older
        state, self._starts = read(self._data, _Program(path))
        self._tensors = _tensors_of(state, path)
        sizes = (math.prod(t.shape) * t.storage.dtype.itemsize for t in self._tensors.values())
        if sum(sizes) > _MAX_SHARING * len(self._data):
            raise CheckpointError(f"{path}: its tensors are much larger than the file")

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Name -> shape of every tensor, in the order of the names."""
        return {name: self._tensors[name].shape for name in sorted(self._tensors)}

    def read(self, name: str) -> np.ndarray:
        """One tensor, as it is stored."""
        tensor = self._tensors[name]
        dtype, shape = tensor.storage.dtype, tensor.shape
        if not math.prod(shape):
            return np.zeros(shape, dtype)
        start = self._starts[tensor.storage.key] + tensor.offset * dtype.itemsize
        strides = [stride * dtype.itemsize for stride in tensor.strides]
        # A copy, as a file of the older layout is not aligned.
        return np.array(np.ndarray(shape, dtype, self._data, start, strides), order="C")


class _Mapped(mmap.mmap):
    """A file in memory, of which `zipfile` reads no large directory."""

    def read(self, size: int | None = None, /) -> bytes:
        left = len(self) - self.tell()
        if (left if size is None else min(size, left)) > _MAX_BYTES:
            raise ValueError(f"its directory has more than {_MAX_BYTES:,} bytes")
        return super().read(size)


def _refusal(path: Path, what: str) -> CheckpointError:
    return CheckpointError(f"{path} {what}, and is not read. {CONVERT}")


@dataclass
class _Program:
    """The state of the pickles of a file while they are read."""

    path: Path
    stack: list[Any] = field(default_factory=list)
    marks: list[int] = field(default_factory=list)
    memo: dict[int, Any] = field(default_factory=dict)
    storages: dict[str, _Storage] = field(default_factory=dict)
    instructions: int = 0

    def run(self, pickle: io.BytesIO) -> Any:
        """The value of the pickle that begins here; the next one begins where it ends."""
        self.stack, self.marks, self.memo = [], [], {}
        for instruction, argument, _ in pickletools.genops(pickle):
            if instruction.name not in _INSTRUCTIONS:
                raise self.unknown(f"the instruction {instruction.name}")
            self.instructions += 1
            if self.instructions > _MAX_INSTRUCTIONS:
                raise ValueError(f"its pickle has more than {_MAX_INSTRUCTIONS:,} instructions")
            _INSTRUCTIONS[instruction.name](self, argument)
        return self.stack.pop()

    def unknown(self, what: str) -> CheckpointError:
        return _refusal(self.path, f"is a pickle that asks for {what}, which weights do not need")

    def pop(self, count: int | None = None) -> list[Any]:
        """Removes the last values, of which there must be `count`; or those after the last mark."""
        start = self.marks.pop() if count is None else len(self.stack) - count
        values = self.stack[start:]
        if count not in (None, len(values)):
            raise IndexError("its stack is empty")
        del self.stack[start:]
        return values

    def name(self, name: str) -> None:
        if name not in _CALLS and name not in _STORAGES:
            raise self.unknown(shown(name.replace(" ", ".")))
        self.stack.append(_Global(name))

    def call(self) -> None:
        function, arguments = self.pop(2)
        # Short: a long tuple of the memo, unpacked by each of many calls, takes hours.
        if not isinstance(function, _Global) or type(arguments) is not tuple or len(arguments) > 8:
            raise TypeError("a call in an unknown form")
        self.stack.append(_CALLS[function.name](*arguments))

    def fill(self, items: list[Any]) -> None:
        """Puts items into the list or the dict on the stack."""
        target = self.stack[-1]
        if isinstance(target, list):
            return target.extend(items)
        for key, value in zip(items[::2], items[1::2], strict=True):
            # As texts: hashes of tuples inside each other, or of chosen integers, take hours.
            if not isinstance(target, dict) or type(key) not in (str, int):
                raise TypeError("an item in an unknown form")
            target[str(key)] = value
        return None

    def build(self) -> None:
        """Drops the attributes of an OrderedDict, such as the versions of its modules."""
        self.pop(1)
        if not isinstance(self.stack[-1], dict):
            raise self.unknown("the attributes of an object")

    def storage(self) -> None:
        """Pushes the storage that a tuple describes: 'storage', type, key, device, length."""
        (id_,) = self.pop(1)
        if type(id_) is not tuple or len(id_) not in (5, 6) or id_[5:] not in ((), (None,)):
            raise TypeError("a storage in an unknown form")
        word, kind, key, _, length = id_[:5]
        if word != "storage" or type(key) is not str or not _is_count(length):
            raise TypeError("a storage in an unknown form")
        storage = _Storage(key, _STORAGES[kind.name], length)
        if self.storages.setdefault(key, storage) != storage:
            raise ValueError(f"storage {shown(key)} has two types or lengths")
        self.stack.append(storage)


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 62


def _tensor(storage: Any, offset: Any, shape: Any, strides: Any, *_: Any) -> _Tensor:
    """A tensor; whether it is trained, and the hooks of its gradient, are dropped."""
    if not isinstance(storage, _Storage) or not type(shape) is type(strides) is tuple:
        raise TypeError("a tensor in an unknown form")
    if not len(shape) == len(strides) <= _MAX_DIMENSIONS:
        raise ValueError(f"a tensor of {len(shape)} dimensions and {len(strides)} strides")
    if not all(_is_count(count) for count in (offset, *shape, *strides)):
        raise ValueError("a tensor of odd sizes")
    end = offset + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True)) + 1
    elements = math.prod(shape)
    if elements and max(elements, end) > storage.length:
        raise ValueError(f"a tensor does not lie in its storage of {storage.length:,} elements")
    return _Tensor(storage, offset, shape, strides)


# What a pickle may call.
_CALLS: dict[str, Callable[..., Any]] = {
    "collections OrderedDict": lambda: {},
    "torch._utils _rebuild_tensor": _tensor,
    "torch._utils _rebuild_tensor_v2": _tensor,
    "torch._utils _rebuild_parameter": lambda data, *_: data,
}
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
_ARGUMENTS = "BININT BININT1 BININT2 LONG1 BINFLOAT BINUNICODE SHORT_BINUNICODE"
# Name of an instruction (see pickletools) -> what it does with the argument beside it.
_INSTRUCTIONS: dict[str, Callable[[_Program, Any], Any]] = {
    **dict.fromkeys(("PROTO", "FRAME", "STOP"), lambda program, _: None),
    **dict.fromkeys(_ARGUMENTS.split(), lambda program, value: program.stack.append(value)),
    **{
        name: lambda program, _, value=value: program.stack.append(value)
        for name, value in _CONSTANTS.items()
    },
    "EMPTY_LIST": lambda program, _: program.stack.append([]),
    "EMPTY_DICT": lambda program, _: program.stack.append({}),
    "MARK": lambda program, _: program.marks.append(len(program.stack)),
    **{
        name: lambda program, _, count=count: program.stack.append(tuple(program.pop(count)))
        for name, count in {"TUPLE": None, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}.items()
    },
    **{
        name: lambda program, _, count=count: program.fill(program.pop(count))
        for name, count in {"APPEND": 1, "APPENDS": None, "SETITEM": 2, "SETITEMS": None}.items()
    },
    "MEMOIZE": lambda program, _: program.memo.update({len(program.memo): program.stack[-1]}),
    **dict.fromkeys(
        ("BINPUT", "LONG_BINPUT"), lambda program, i: program.memo.update({i: program.stack[-1]})
    ),
    **dict.fromkeys(
        ("BINGET", "LONG_BINGET"), lambda program, i: program.stack.append(program.memo[i])
    ),
    "GLOBAL": _Program.name,
    "STACK_GLOBAL": lambda program, _: program.name(" ".join(program.pop(2))),
    "REDUCE": lambda program, _: program.call(),
    "BUILD": lambda program, _: program.build(),
    "BINPERSID": lambda program, _: program.storage(),
}


def _read_zip(data: _Mapped, program: _Program) -> tuple[Any, dict[str, int]]:
    """The value of the pickle in a zip, and for each storage where its elements begin."""
    with zipfile.ZipFile(data) as archive:  # type: ignore[arg-type]  # all that it needs is there
        members = {member.filename: member for member in archive.infolist()}
    pickles = [name for name in members if name.endswith("/data.pkl") and name.count("/") == 1]
    if len(pickles) != 1:
        raise CheckpointError(f"{program.path} is a zip archive that torch.save did not write")
    start, size = _extent(data, members, pickles[0])
    if size > _MAX_BYTES:
        raise ValueError(f"its pickle has {size:,} bytes; allowed: {_MAX_BYTES:,}")
    state = program.run(io.BytesIO(data[start : start + size]))
    root = pickles[0].removesuffix("data.pkl")
    if f"{root}byteorder" in members:
        start, size = _extent(data, members, f"{root}byteorder")
        _check_order(data[start : start + min(size, 9)] == b"little", program.path)
    starts = {}
    for key, storage in program.storages.items():
        starts[key], size = _extent(data, members, f"{root}data/{key}")
        if storage.length * storage.dtype.itemsize > size:
            raise ValueError(f"storage {shown(key)} has {size:,} bytes, too few for its elements")
    return state, starts


def _extent(data: _Mapped, members: dict[str, zipfile.ZipInfo], name: str) -> tuple[int, int]:
    """Where the bytes of a member begin, and their number; they must be stored as they are."""
    member = members.get(name)
    if member is None or member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 1:
        raise ValueError(f"its member {shown(name)} is missing, compressed or encrypted")
    header = member.header_offset
    if header < 0 or data[header : header + 4] != b"PK\3\4":
        raise ValueError(f"its member {shown(name)} has no header")
    start = header + 30 + sum(struct.unpack_from("<HH", data, header + 26))  # name, extra field
    if start + member.file_size > len(data):
        raise ValueError(f"its member {shown(name)} ends behind the file")
    return start, member.file_size


def _read_older(data: _Mapped, program: _Program) -> tuple[Any, dict[str, int]]:
    """As `_read_zip`, of the older layout."""
    pickles = io.BytesIO(data[:_MAX_BYTES])
    if program.run(pickles) != _MAGIC:
        raise _refusal(program.path, "is a pickle that torch.save did not write")
    program.run(pickles)  # the version, always 1001
    _check_order(program.run(pickles)["little_endian"], program.path)
    state, keys = program.run(pickles), program.run(pickles)
    if not isinstance(keys, list) or not all(type(key) is str for key in keys):
        raise ValueError("it has no list of its storages")
    starts: dict[str, int] = {}
    end = pickles.tell()
    for storage in map(program.storages.__getitem__, keys):
        (length,) = struct.unpack_from("<q", data, end)
        starts[storage.key] = end + 8
        end += 8 + storage.length * storage.dtype.itemsize
        if length != storage.length or end > len(data):
            raise ValueError(f"a storage does not have its {storage.length:,} elements")
    if program.storages.keys() != starts.keys():
        raise ValueError("its list of storages is not complete")
    return state, starts


def _check_order(little: object, path: Path) -> None:
    if little is not True:
        raise _refusal(path, "was written by a machine of the other byte order")


def _tensors_of(state: Any, path: Path) -> dict[str, _Tensor]:
    """The tensors of a state dict, or of the one among the values of a training loop."""
    tensors: dict[str, Any] = state if isinstance(state, dict) else {}
    inner = [tensors[key] for key in _WRAPPERS if isinstance(tensors.get(key), dict)]
    tensors = inner[0] if inner else tensors
    # Each name is one line of a message.
    others = [n for n, t in tensors.items() if not (isinstance(t, _Tensor) and n.isprintable())]
    if others or not tensors:
        what = f"{shown(others[0])} is no tensor" if others else "it has no tensors"
        raise CheckpointError(f"{path} holds no state dict: {what}")
    return tensors
