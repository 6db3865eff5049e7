"""pytorch_model.bin: files of torch, and hundreds of crafted ones, of which none runs anything."""

import json
import pickletools
import random
import shutil
import struct
import sys
import tracemalloc
import zipfile

import numpy as np
import pytest
from safetensors.numpy import load_file

from bert_features.checkpoints.convert import convert
from bert_features.checkpoints.find import find_checkpoint
from bert_features.checkpoints.read import has_pooler, read_weights
from bert_features.checkpoints.weights.weight_readers import open_weights
from bert_features.errors import CheckpointError
from tests import families
from tests.reference import torch_file as torch
from tests.weights import assert_same

ONES = np.ones(4, np.float32).tobytes()
STORAGE = torch.storage("0", 4)
GOOD = torch.mapping({"a": torch.tensor(STORAGE, [2, 2], [2, 1])})


def read(path):
    reader = open_weights(path, "safetensors")
    return {name: reader.read(name) for name in reader.shapes()}


@pytest.mark.parametrize("name", ["zip", "zip_protocol_4", "older", "loop"])
def test_files_of_torch(data, name):
    """Both layouts; views, tied weights, all data types, and what a training loop keeps beside."""
    expected = load_file(data / "torch_files" / "same.safetensors")
    reader = open_weights(data / "torch_files" / f"{name}.bin", "safetensors")
    assert reader.shapes() == {name: expected[name].shape for name in sorted(expected)}
    for tensor, value in expected.items():
        found = reader.read(tensor)
        assert found.dtype == value.dtype
        np.testing.assert_array_equal(found, value)
        assert found.flags.aligned
        assert found.flags.c_contiguous


def test_a_tensor_without_elements_lies_anywhere(tmp_path):
    path = tmp_path / "pytorch_model.bin"
    tensor = torch.tensor(STORAGE, [0, 3], [1 << 61, 7], 1 << 61)
    path.write_bytes(torch.zipped(torch.pickled(torch.mapping({"a": tensor})), {"0": ONES}))
    assert read(path)["a"].shape == (0, 3)


@pytest.fixture
def family(tmp_path):
    """A folder of a family with its weights in pytorch_model.bin, and the weights."""

    def make(name, write=torch.zip_of):
        folder = families.folder(name, tmp_path)
        tensors = load_file(folder / "model.safetensors")
        (folder / "model.safetensors").unlink()
        (folder / "pytorch_model.bin").write_bytes(write(tensors))
        return folder, tensors

    return make


@pytest.mark.parametrize("write", [torch.zip_of, torch.older_of])
@pytest.mark.parametrize("name", ["bert", "roberta"])
def test_a_family_has_the_same_weights_as_its_safetensors(family, name, write, tmp_path):
    folder, _ = family(name, write)
    path = folder / "pytorch_model.bin"
    for asked in (folder, path):
        found = find_checkpoint(asked)
        assert (found.kind, found.weights_path) == ("safetensors", path)
        assert_same(read_weights(found, pooler=has_pooler(found)), families.weights(name))
    convert(found, tmp_path / "out", to="safetensors")
    written = find_checkpoint(tmp_path / "out", vocab_file=folder / "vocab.txt")
    assert_same(read_weights(written), read_weights(found))
    path.rename(folder / "epoch_3.pt")
    assert_same(read_weights(find_checkpoint(folder / "epoch_3.pt")), read_weights(written))


def test_shards_and_the_preference(family):
    folder, tensors = family("bert")
    (folder / "pytorch_model.bin").unlink()
    names = [f"pytorch_model-0000{i}-of-00002.bin" for i in (1, 2)]
    shards = {name: dict([*tensors.items()][i::2]) for i, name in enumerate(names)}
    for name, part in shards.items():
        (folder / name).write_bytes(torch.zip_of(part))
    with pytest.raises(CheckpointError, match=r"00001-of-00002\.bin is a shard without its index"):
        find_checkpoint(folder)
    index = folder / "pytorch_model.bin.index.json"
    weight_map = {tensor: shard for shard, part in shards.items() for tensor in part}
    index.write_text(json.dumps({"weight_map": weight_map}))
    found = find_checkpoint(folder)
    assert [path.name for _, path in found.files()[:3]] == [index.name, *names]
    assert_same(read_weights(found, pooler=True), families.weights("bert"))
    index.write_text(json.dumps({"weight_map": weight_map | {min(tensors): "x.safetensors"}}))
    with pytest.raises(CheckpointError, match=r"not \.bin files in its own folder: 'x\.saf"):
        find_checkpoint(folder)
    shutil.copy(families.DATA / "bert" / "model.safetensors", folder)
    assert find_checkpoint(folder).weights_path.name == "model.safetensors"


def bombs():
    """Pickles that cost Python's own reader, or a careless one, hours or all memory."""
    memo = b"q\0"
    doubled = torch.text("a") + b"".join(b"q%c" % i + b"h%c" % i + b"\x86" for i in range(60))
    nested = b")" + b"\x85" * 100_000
    called = b"ccollections\nOrderedDict\nq\x01"
    long = b"(" + b"N" * 100_000 + b"t"
    yield "a key of doubled tuples", b"}" + doubled + b"Ns"
    yield "a key of nested tuples", b"}" + nested + b"Ns"
    yield "a storage named so", torch.items(torch.text("storage"), doubled) + b"Q"
    yield "a value of doubled tuples", b"}" + torch.text("a") + doubled + b"s"
    yield "a shape of nested tuples", torch.called("torch._utils _rebuild_tensor", STORAGE, nested)
    yield "a long call again and again", called + long + memo + b"h\x01h\0R" * 50_000
    yield "a long storage again and again", long + memo + b"h\0Q" * 50_000
    yield "a long list again and again", b"](" + b"N" * 9000 + b"e" + memo + b"h\1h\0\x85R" * 50_000
    shape = torch.named("torch._utils _rebuild_tensor") + b"(" + STORAGE + b"K\0h\0h\0t"
    yield "a long shape again and again", long + memo + (shape + b"R") * 20_000
    yield (
        "colliding integers",
        b"}("
        + b"".join(
            b"\x8a\x0c" + (i * (2**61 - 1)).to_bytes(12, "little") + b"N" for i in range(60_000)
        )
        + b"u",
    )
    yield "instructions", b"N" * 600_000
    yield "a long name", b"X" + struct.pack("<I", 4 << 20) + b"a" * (4 << 20)
    yield "a place of the memo", b"Nr\xff\xff\xff\xff"
    yield "bytes that are not there", b"\x8e" + struct.pack("<Q", 1 << 60)
    yield "a text that is not there", b"X\xff\xff\xff\xff"
    yield "a frame that is not there", b"\x95" + struct.pack("<Q", 1 << 60) + b"N"
    yield "a large integer", b"\x8b" + struct.pack("<i", 1 << 21) + b"\x7f" * (1 << 21)
    yield "digits", b"I" + b"9" * (1 << 20) + b"\n"


def odd_tensors():
    """Tensors that do not lie where they say."""
    huge = 1 << 61
    for shape, strides, offset in [
        ([5], [1], 0),
        ([2, 2], [2, 1], 1),
        ([2, 2], [3, 1], 0),
        ([4], [1], -1),
        ([-4], [1], 0),
        ([2], [-1], 1),
        ([8], [0], 0),
        ([huge, huge, huge], [0, 0, 0], 0),
        ([2], [huge], 0),
        ([4], [1], huge),
        ([2, 2], [1], 0),
        ([1] * 70, [1] * 70, 0),
        ([0, huge], [huge, huge], huge),
    ]:
        yield f"{shape} {strides} {offset}", torch.tensor(STORAGE, shape, strides, offset)
    for key, length, *more in [
        ("0", 5),
        ("0", -1),
        ("0", huge),
        ("1", 4),
        ("../0", 4),
        ("0", 4, "torch ComplexFloatStorage"),
        ("0", 4, "torch DoubleStorage"),
        ("0", 4, "collections OrderedDict"),
        ("0", 4, "torch FloatStorage", torch.items(torch.text("0"), b"K\0K\4")),
        ("0", 4, "torch FloatStorage", b"N", b"N"),
    ]:
        stored = torch.storage(key, length, *more)
        yield f"a storage {key} {length} {more}", torch.tensor(stored, [4], [1])
    yield "two lengths", torch.storage("0", 3) + torch.tensor(STORAGE, [4], [1])
    yield "no storage", torch.tensor(b"N", [4], [1])
    yield "a module", torch.items(*map(torch.text, ("module", "a", "b", "c"))) + b"Q"


def calls(canary):
    """Instructions that make, call or change something, with names that must not be reached."""
    shell = torch.text(f"touch {canary}")
    python = torch.text(f"open({str(canary)!r}, 'w')")
    payloads = [
        ("os system", shell),
        ("posix system", shell),
        ("builtins eval", python),
        ("builtins exec", python),
        ("__builtin__ eval", python),
        ("subprocess getoutput", shell),
        ("pathlib Path.touch", torch.text(str(canary))),
        ("this s", python),
        ("torch load", shell),
        ("torch.hub load", shell),
        ("collections OrderedDict.fromkeys", python),
        ("torch._utils _rebuild_tensor_v2.__globals__", python),
        ("numpy.core.multiarray scalar", python),
        ("pytorch_lightning.utilities.parsing AttributeDict", python),
        ("bert_features.checkpoints.weights.pickle_weights _read_zip", shell),
        ("io open", torch.text(str(canary)) + torch.text("w")),
    ]
    for name, argument in payloads:
        module, _, attribute = name.partition(" ")
        stacked = torch.text(module) + torch.text(attribute) + b"\x93"
        for function in (torch.named(name), stacked):
            for end in (b"R", b"\x81", b"}\x92", b"Rb", b"b"):  # REDUCE NEWOBJ NEWOBJ_EX BUILD
                yield f"{name} {end}", function + torch.items(argument) + end
        yield f"{name} INST", b"(" + argument + b"i" + name.replace(" ", "\n").encode() + b"\n"
        yield f"{name} OBJ", b"(" + torch.named(name) + argument + b"o"
    for number in (b"\x82\1", b"\x83\1\0", b"\x84\1\0\0\0"):
        yield f"EXT {number}", number + torch.items(shell) + b"R"
    known = torch.named("torch._utils _rebuild_tensor_v2")
    yield "attributes of a function", known + torch.mapping({"__code__": b"N"}) + b"b"
    yield "slots of a function", known + b"N" + torch.mapping({"__defaults__": b"N"}) + b"\x86b"
    yield "attributes of a tensor", torch.tensor(STORAGE, [4], [1]) + torch.mapping({}) + b"b"
    yield "a call of a type of storages", torch.named("torch FloatStorage") + b")R"
    yield "a call without a tuple", torch.named("collections OrderedDict") + b"]R"
    yield "a call with pairs", torch.called("collections OrderedDict", b"](K\1K\2\x86e")


def opcodes():
    """Each instruction of pickle alone, after a text, after four, and after a mark."""
    for opcode in pickletools.opcodes:
        for before in (b"", torch.text("a"), torch.text("a") * 4, b"](NN", b"}(XXNN"):
            yield f"{opcode.name} {before}", before + opcode.code.encode("latin-1") + b"\0" * 9


def others():
    """State dicts that are none."""
    yield "a number", b"K\1"
    yield "no tensors", b"}"
    yield "a text beside", torch.mapping({"a": torch.text("b"), "b": STORAGE})
    yield "a nested dict", torch.mapping({"model": torch.mapping({"a": GOOD})})
    yield "two lines", torch.mapping({"a\nb": torch.tensor(STORAGE, [4], [1])})
    yield "half a letter", b"}X\3\0\0\0\xed\xa0\x80" + torch.tensor(STORAGE, [4], [1]) + b"s"


def is_refused(path, content):
    """Whether reading a file ends in one line that names it."""
    path.write_bytes(content)
    try:
        read(path)
    except CheckpointError as error:
        return str(error).isprintable() and str(path) in str(error)
    return False


@pytest.mark.slow
@pytest.mark.release
def test_crafted_pickles_run_nothing(tmp_path):
    """Several hundred, each in both layouts: one line each, and the canary is not there."""
    canary, path = tmp_path / "canary", tmp_path / "pytorch_model.bin"
    bodies = [*calls(canary), *odd_tensors(), *opcodes(), *others(), *bombs()]
    assert len(bodies) > 500
    for what, body in bodies:
        pickle = torch.pickled(body)
        for content in (torch.zipped(pickle, {"0": ONES}), torch.older(pickle, {"0": ONES})):
            assert is_refused(path, content), what
    assert not canary.exists()
    assert "this" not in sys.modules


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            torch.called("os system", torch.text("true")),
            "asks for 'os.system', which weights do no",
        ),
        (b"\x8c\2os\x8c\6system\x93", r"'os\.system', .* not read\. If you trust it, load it"),
        (b"(ios\nsystem\n", "asks for the instruction INST"),
        (torch.tensor(STORAGE, [5], [1]), "a tensor does not lie in its storage of 4 elements"),
        (torch.mapping({"epoch": b"K\1"}), "holds 'epoch'"),
    ],
)
def test_what_a_refusal_says(tmp_path, body, message):
    path = tmp_path / "pytorch_model.bin"
    path.write_bytes(torch.zipped(torch.pickled(body), {"0": ONES}))
    with pytest.raises(CheckpointError, match=message):
        read(path)


def test_claims_take_no_memory(tmp_path):
    """What is short but says that it is large."""
    path = tmp_path / "pytorch_model.bin"
    bodies = [(what, body) for what, body in (*odd_tensors(), *bombs()) if len(body) < 2000]
    tracemalloc.start()
    for what, body in bodies:
        assert is_refused(path, torch.zipped(torch.pickled(body), {"0": ONES})), what
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1e6


def crafted_files(pickle):
    """Whole files whose parts do not fit."""
    yield "the other byte order", torch.zipped(pickle, {"0": ONES}, order=b"big")
    yield "the other byte order", torch.older(pickle, {"0": ONES}, little=b"\x89")
    yield "no byte order", torch.older(pickle, {"0": ONES}, little=b"N")
    yield "compressed", torch.zipped(pickle, {"0": ONES}, zipfile.ZIP_DEFLATED)
    yield "a short storage", torch.zipped(pickle, {"0": ONES[:-1]})
    yield "a short storage", torch.older(pickle, {"0": ONES[:-4]})
    yield "no storage", torch.zipped(pickle, {})
    yield "no storage", torch.older(pickle, {}, keys=b"]")
    yield "keys of doubled tuples", torch.older(pickle, {}, keys=b"]" + b")\x94h\0\x86" * 60 + b"a")
    yield "another storage", torch.older(pickle, {"1": ONES})
    yield "keys that are a text", torch.older(pickle, {"0": ONES}, keys=torch.text("0"))
    yield "another archive", torch.zipped(pickle, {"0": ONES}).replace(b"data.pkl", b"data.txt")
    yield "another pickle", torch.pickled(torch.mapping({"a": b"K\1"}))
    yield (
        "a directory with many entries",
        torch.zipped(pickle, {f"{i:0>60000}": b"" for i in range(80)}),
    )
    yield "a large pickle", torch.zipped(torch.pickled(b"N" * (5 << 20)), {"0": ONES})
    large = torch.tensor(torch.storage("0", 4000), [4000], [1])
    tied = {str(i): b"h\7" if i else large + b"q\7" for i in range(40)}
    yield "a shared storage", torch.zipped(torch.pickled(torch.mapping(tied)), {"0": ONES * 1000})
    yield "nothing", b""
    yield "no pickle", b"\x80"
    yield "zeros", bytes(4096)
    yield "tar", b"data/".ljust(512, b"\0") * 4


def test_crafted_files(tmp_path):
    for what, content in crafted_files(torch.pickled(GOOD)):
        assert is_refused(tmp_path / "pytorch_model.bin", content), what


@pytest.mark.slow
@pytest.mark.parametrize("write", [torch.zipped, torch.older])
def test_damaged_files(tmp_path, write):
    """A file that was cut is refused; one with a changed byte is too, or holds no more."""
    path = tmp_path / "pytorch_model.bin"
    whole = write(torch.pickled(GOOD), {"0": ONES})
    path.write_bytes(whole)
    np.testing.assert_array_equal(read(path)["a"], np.ones((2, 2)))
    for end in range(0, len(whole), 2):
        assert is_refused(path, whole[:end])
    rng = random.Random(0)
    for _ in range(200):
        damaged = bytearray(whole)
        damaged[rng.randrange(len(whole))] = rng.randrange(256)
        if not is_refused(path, damaged):
            assert sum(array.nbytes for array in read(path).values()) <= 4 * len(whole)
