"""The tensors of `pytorch_model.bin`, read without torch and without Python's `pickle`.

A pickle is a program for a stack. A small interpreter reads it here: it knows the instructions of
`_INSTRUCTIONS` and the names of `_NAMES`, makes plain values, and refuses all else by name. Nothing
that a file names is imported or called. Sizes in a file are compared with the file's before they
are used, and no instruction takes longer than its bytes are long. `torch.save` has two layouts:

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
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from bert_features.checkpoints.weights.other_files import CONVERT
from bert_features.config.settings import shown
from bert_features.errors import CheckpointError

# Limits of a pickle, and of a zip's directory. BERT-large has 120 kB with 17,000 instructions.
_MAX_BYTES, _MAX_INSTRUCTIONS = 4 << 20, 500_000
# The sizes of all tensors in sizes of the file: tied weights share a storage.
_MAX_SHARING = 4
_MAX_DIMENSIONS = 8
_MAGIC = 0x1950A86A20F9469CFC6C
# Keys under which training loops keep the state dict, beside other things.
_WRAPPERS = ("state_dict", "model_state_dict", "model_state", "model", "module", "net")


class _RefusedError(Exception):
    """What a file is or asks for, for the error."""


class _Storage(NamedTuple):
    """A one-dimensional array in the file."""

    key: str
    dtype: np.dtype[Any]
    length: int


class _Tensor(NamedTuple):
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
        try:
            state, self._starts = read(self._data)
            self._tensors = _tensors_of(state)
        except _RefusedError as error:
            raise CheckpointError(f"{path} {error}, and is not read. {CONVERT}") from None
        sizes = (math.prod(t.shape) * t.storage.dtype.itemsize for t in self._tensors.values())
        if sum(sizes) > _MAX_SHARING * len(self._data):
            raise CheckpointError(f"{path}: its tensors are much larger than the file")

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Name -> shape of every tensor, in the order of the names."""
        return {name: self._tensors[name].shape for name in sorted(self._tensors)}

    def read(self, name: str) -> np.ndarray:
        """One tensor, as it is stored."""
        storage, offset, shape, strides = self._tensors[name]
        size = storage.dtype.itemsize
        start = self._starts[storage.key] + offset * size
        steps = [stride * size for stride in strides]
        # A copy, as a file of the older layout is not aligned.
        return np.array(np.ndarray(shape, storage.dtype, self._data, start, steps), order="C")


class _Mapped(mmap.mmap):
    """A file in memory, of which `zipfile` reads no large directory."""

    def read(self, size: int | None = None, /) -> bytes:
        left = len(self) - self.tell()
        if (left if size is None else min(size, left)) > _MAX_BYTES:
            raise ValueError(f"its directory has more than {_MAX_BYTES:,} bytes")
        return super().read(size)


class _Program:
    """The state of the pickles of a file while they are read."""

    def __init__(self) -> None:
        self.storages: dict[str, _Storage] = {}
        self.instructions = 0

    def run(self, pickle: io.BytesIO) -> Any:
        """The value of the pickle that begins here; the next one begins where it ends."""
        self.stack: list[Any] = []
        self.marks: list[int] = []  # their places on the stack
        self.memo: dict[int, Any] = {}
        values: list[Any] = []
        for instruction, argument, _ in pickletools.genops(pickle):
            if instruction.name not in _INSTRUCTIONS:
                raise _unknown(f"the instruction {instruction.name}")
            self.instructions += 1
            if self.instructions > _MAX_INSTRUCTIONS:
                raise ValueError(f"it has more than {_MAX_INSTRUCTIONS:,} instructions")
            taken, start = instruction.stack_before, len(self.stack)
            if pickletools.markobject in taken:
                start, taken = self.marks.pop(), taken[: taken.index(pickletools.markobject)]
            start -= len(taken)
            if start < 0:
                raise IndexError("its stack is empty")
            values = self.stack[start:]
            del self.stack[start:]
            value = _INSTRUCTIONS[instruction.name](self, argument, values)
            if instruction.stack_after:
                self.stack.append(value)
        return values[0]  # of STOP

    def storage(self, described: Any) -> _Storage:
        """The storage of a persistent id: 'storage', type, key, device, length, None for whole."""
        if type(described) is not tuple or not 5 <= len(described) <= 6 or any(described[5:]):
            raise TypeError("a persistent id in an unknown form")
        word, dtype, key, _, length = described[:5]
        if word != "storage" or not isinstance(dtype, np.dtype) or type(key) is not str:
            raise TypeError("a persistent id that names no storage")
        storage = _Storage(key, dtype, length)
        if not _is_count(length) or self.storages.setdefault(key, storage) != storage:
            raise ValueError(f"storage {shown(key)} has an odd length, or two of them")
        return storage


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 62


def _unknown(what: str) -> _RefusedError:
    return _RefusedError(f"is a pickle that asks for {what}, which weights do not need")


def _named(name: str) -> Any:
    if name not in _NAMES:
        raise _unknown(shown(name.replace(" ", ".")))
    return _NAMES[name]


def _call(function: Any, arguments: Any) -> Any:
    # Short: a long tuple of the memo, unpacked by each of many calls, takes hours.
    if not isinstance(function, FunctionType) or type(arguments) is not tuple or len(arguments) > 8:
        raise TypeError("a call in an unknown form")
    return function(*arguments)


def _fill(target: Any, items: list[Any]) -> Any:
    """Puts items into a list or a dict."""
    if isinstance(target, list):
        target.extend(items)
        return target
    for key, value in zip(items[::2], items[1::2], strict=True):
        # As texts: hashes of tuples inside each other, or of chosen integers, take hours.
        if not isinstance(target, dict) or type(key) not in (str, int):
            raise TypeError("an item in an unknown form")
        target[str(key)] = value
    return target


def _tensor(storage: Any, offset: Any, shape: Any, strides: Any, *_: Any) -> _Tensor:
    """A tensor; whether it is trained, and the hooks of its gradient, are dropped."""
    if not isinstance(storage, _Storage) or not type(shape) is type(strides) is tuple:
        raise TypeError("a tensor in an unknown form")
    if not len(shape) == len(strides) <= _MAX_DIMENSIONS:
        raise ValueError(f"a tensor of {len(shape)} dimensions and {len(strides)} strides")
    if not all(_is_count(count) for count in (offset, *shape, *strides)):
        raise ValueError("a tensor of odd sizes")
    if not all(shape) and math.prod(size or 1 for size in shape) < 1 << 40:
        return _Tensor(storage, 0, shape, (0,) * len(shape))  # without elements it lies anywhere
    end = offset + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True)) + 1
    if not all(shape) or max(math.prod(shape), end) > storage.length:
        raise ValueError(f"a tensor does not lie in its storage of {storage.length:,} elements")
    return _Tensor(storage, offset, shape, strides)


def _without_attributes(target: Any, _: object) -> Any:
    """An OrderedDict without its attributes, such as the versions of its modules."""
    if not isinstance(target, dict):
        raise _unknown("the attributes of an object")
    return target


# What a pickle may name -> the type of a storage, or what makes its value.
_NAMES: dict[str, np.dtype[Any] | Callable[..., Any]] = {
    "collections OrderedDict": lambda: {},
    "torch._utils _rebuild_tensor": _tensor,
    "torch._utils _rebuild_tensor_v2": _tensor,
    "torch._utils _rebuild_parameter": lambda data, *_: data,
    "torch BFloat16Storage": np.dtype(ml_dtypes.bfloat16),
    **{"torch DoubleStorage": np.dtype("f8"), "torch FloatStorage": np.dtype("f4")},
    **{"torch HalfStorage": np.dtype("f2"), "torch LongStorage": np.dtype("i8")},
    **{"torch IntStorage": np.dtype("i4"), "torch ShortStorage": np.dtype("i2")},
    **{"torch CharStorage": np.dtype("i1"), "torch ByteStorage": np.dtype("u1")},
    "torch BoolStorage": np.dtype("?"),
}
# Names of instructions -> the value that one pushes, from the program, its argument, and the values
# that it takes from the stack, any mark among them; `pickletools` knows how many these are.
_INSTRUCTIONS: dict[str, Callable[[_Program, Any, list[Any]], Any]] = {
    name: push
    for names, push in {
        "PROTO FRAME STOP NONE": lambda program, argument, values: None,
        "BININT BININT1 BININT2 LONG1 BINFLOAT": lambda program, argument, values: argument,
        "BINUNICODE SHORT_BINUNICODE": lambda program, argument, values: argument,
        "NEWTRUE": lambda program, argument, values: True,
        "NEWFALSE": lambda program, argument, values: False,
        "EMPTY_TUPLE TUPLE1 TUPLE2 TUPLE3": lambda program, argument, values: tuple(values),
        "EMPTY_LIST": lambda program, argument, values: [],
        "EMPTY_DICT": lambda program, argument, values: {},
        "MARK": lambda program, argument, values: program.marks.append(len(program.stack)),
        "TUPLE": lambda program, argument, values: tuple(values[1:]),
        "APPEND SETITEM": lambda program, argument, values: _fill(values[0], values[1:]),
        "APPENDS SETITEMS": lambda program, argument, values: _fill(values[0], values[2:]),
        "MEMOIZE": lambda program, _, values: program.memo.setdefault(len(program.memo), *values),
        "BINPUT LONG_BINPUT": lambda program, i, _: program.memo.update({i: program.stack[-1]}),
        "BINGET LONG_BINGET": lambda program, i, _: program.memo[i],
        "GLOBAL": lambda program, name, values: _named(name),
        "STACK_GLOBAL": lambda program, argument, values: _named(" ".join(values)),
        "REDUCE": lambda program, argument, values: _call(*values),
        "BUILD": lambda program, argument, values: _without_attributes(*values),
        "BINPERSID": lambda program, argument, values: program.storage(*values),
    }.items()
    for name in names.split()
}


def _read_zip(data: _Mapped) -> tuple[Any, dict[str, int]]:
    """The value of the pickle in a zip, and for each storage where its elements begin."""
    with zipfile.ZipFile(data) as archive:  # type: ignore[call-overload]  # all that it needs is there
        members = {member.filename: member for member in archive.infolist()}
    pickles = [name for name in members if name.endswith("/data.pkl") and name.count("/") == 1]
    if len(pickles) != 1:
        raise _RefusedError("is a zip archive that torch.save did not write")
    root = pickles[0].removesuffix("data.pkl")
    start, size = _extent(data, members, pickles[0])
    if size > _MAX_BYTES:
        raise ValueError(f"its pickle has {size:,} bytes; allowed: {_MAX_BYTES:,}")
    program, starts = _Program(), {}
    state = program.run(io.BytesIO(data[start : start + size]))
    if f"{root}byteorder" in members:
        start, size = _extent(data, members, f"{root}byteorder")
        _check_order(data[start : start + min(size, 9)] == b"little")
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


def _read_older(data: _Mapped) -> tuple[Any, dict[str, int]]:
    """As `_read_zip`, of the older layout."""
    program, starts, pickles = _Program(), {}, io.BytesIO(data[:_MAX_BYTES])
    if program.run(pickles) != _MAGIC:
        raise _RefusedError("is a pickle that torch.save did not write")
    program.run(pickles)  # the version, always 1001
    _check_order(program.run(pickles)["little_endian"])
    state, keys = program.run(pickles), program.run(pickles)
    if not isinstance(keys, list) or not all(type(key) is str for key in keys):
        raise ValueError("it has no list of its storages")
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


def _check_order(little: object) -> None:
    if little is not True:
        raise _RefusedError("was written by a machine of the other byte order")


def _tensors_of(state: Any) -> dict[str, _Tensor]:
    """The tensors of a state dict, or of the one among the values of a training loop."""
    tensors: dict[str, Any] = state if isinstance(state, dict) else {}
    inner = [tensors[key] for key in _WRAPPERS if isinstance(tensors.get(key), dict)]
    tensors = inner[0] if inner else tensors
    for name, value in tensors.items():
        if not isinstance(value, _Tensor) or not name.isprintable():  # one line of a message
            raise _RefusedError(f"holds {shown(name)}, which is no tensor with a plain name")
    if not tensors:
        raise _RefusedError("holds no tensors by their names")
    return tensors
