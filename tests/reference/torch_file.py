"""Writes files as torch.save does, from instructions of pickle that a test can replace."""

import io
import struct
import zipfile

MAGIC = 0x1950A86A20F9469CFC6C


def text(value):
    data = value.encode()
    return b"X" + struct.pack("<I", len(data)) + data


def number(value):
    return b"\x8a\x0b" + value.to_bytes(11, "little", signed=True)


def items(*values):
    """A tuple."""
    return b"(" + b"".join(values) + b"t"


def named(name):
    """`module name`, as the instruction GLOBAL has it."""
    return b"c" + name.replace(" ", "\n").encode() + b"\n"


def called(name, *arguments):
    return named(name) + items(*arguments) + b"R"


def mapping(pairs):
    return b"}(" + b"".join(text(key) + value for key, value in pairs.items()) + b"u"


def storage(key, length, kind="torch FloatStorage", *more):
    return items(text("storage"), named(kind), text(key), text("cpu"), number(length), *more) + b"Q"


def tensor(stored, shape, strides, offset=0):
    sizes = [items(*map(number, sizes)) for sizes in (shape, strides)]
    hooks = called("collections OrderedDict")
    return called("torch._utils _rebuild_tensor_v2", stored, number(offset), *sizes, b"\x89", hooks)


def pickled(body):
    return b"\x80\x02" + body + b"."


def zipped(pickle, storages, compression=zipfile.ZIP_STORED, order=b"little"):
    """The bytes of a file; `storages` are key -> bytes of its elements."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        archive.writestr("archive/data.pkl", pickle)
        archive.writestr("archive/version", b"3\n")
        archive.writestr("archive/byteorder", order)
        for key, elements in storages.items():
            archive.writestr(f"archive/data/{key}", elements)
    return file.getvalue()


def older(pickle, storages, little=b"\x88", keys=None):
    """The same in the layout of before torch 1.6; `storages` are of float32."""
    keys = b"](" + b"".join(map(text, storages)) + b"e" if keys is None else keys
    parts = [number(MAGIC), number(1001), mapping({"little_endian": little})]
    stored = [struct.pack("<q", len(data) // 4) + data for data in storages.values()]
    return b"".join([*map(pickled, parts), pickle, pickled(keys), *stored])


def state_dict(arrays, *more):
    """The pickle of a state dict, and the storages of its arrays of float32 or float16."""
    pairs, storages = {}, {}
    for key, (name, array) in enumerate(arrays.items()):
        strides = [stride // array.itemsize for stride in array.strides]
        # An array of another size has too few bytes for its storage, as in a damaged file.
        kind = "torch HalfStorage" if array.itemsize == 2 else "torch FloatStorage"
        stored = storage(str(key), array.size, kind, *more)
        pairs[name] = tensor(stored, array.shape, strides)
        storages[str(key)] = array.tobytes()
    return pickled(mapping(pairs)), storages


def zip_of(arrays):
    """The bytes of a file of a state dict."""
    return zipped(*state_dict(arrays))


def older_of(arrays):
    """The same in the layout of before torch 1.6, which states that each storage is whole."""
    return older(*state_dict(arrays, b"N"))
