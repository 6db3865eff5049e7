"""Unpacking: hostile archives, unsound ones, and those that hold no checkpoint."""

import stat
import zipfile

import pytest

from bert_features.checkpoints.archive import unpack
from bert_features.errors import CheckpointError
from tests.reference.published_archive import ARCHIVE, DATA, FILES, read_folder, zipped


def link(name, target):
    member = zipfile.ZipInfo(name)
    member.create_system = 3
    member.external_attr = (stat.S_IFLNK | 0o777) << 16
    return member, target


def special(name, kind):
    member = zipfile.ZipInfo(name)
    member.create_system = 3
    member.external_attr = (kind | 0o600) << 16
    return member, b""


def encrypted():
    """The first member's flag of encryption set, in both of its headers."""
    data = bytearray(zipped(FILES.items()))
    data[6] |= 1
    data[data.index(b"PK\x01\x02") + 8] |= 1
    return bytes(data)


def corrupt():
    data = bytearray(ARCHIVE)
    data[500_000] ^= 0xFF
    return bytes(data)


def declares_less():
    """A bomb whose headers declare 10 bytes for 2,000,000."""
    data = zipped([*FILES.items(), ("zeros", bytes(2_000_000))])
    return data.replace((2_000_000).to_bytes(4, "little"), (10).to_bytes(4, "little"))


HOSTILE = {
    "parent": ([("../evil", b"x")], r"'\.\./evil' does not lie below it"),
    "inner parent": ([("a/../../evil", b"x")], "does not lie below it"),
    "absolute": ([("/tmp/evil", b"x")], "'/tmp/evil' does not lie below it"),
    "drive": ([("C:/evil", b"x")], "does not lie below it"),
    "backslash": ([("..\\evil", b"x")], "does not lie below it"),
    "parent folder": ([("../", b"")], "does not lie below it"),
    "dot": ([("./vocab2.txt", b"")], "does not lie below it"),
    "link": ([link("evil", "/etc/passwd")], "'evil' is a link or a special file"),
    "fifo": ([special("evil", stat.S_IFIFO)], "'evil' is a link or a special file"),
    "device": ([special("evil", stat.S_IFCHR)], "'evil' is a link or a special file"),
    "duplicate": ([("vocab.txt", b"x")], "two members of the same name"),
    "case": ([("VOCAB.txt", b"x")], "two members of the same name"),
    "file and folder": ([("vocab.txt/x", b"x")], "a file and a folder of the same name"),
    "many": ([(f"f{i}", b"") for i in range(100)], "holds 105 members; at most 100"),
    "bomb": ([("zeros", bytes(83_000_000))], r"unpacks to 84,000,0\d\d bytes; at most 83,9"),
}


def unpack_bytes(tmp_path, data, most_bytes=83_999_999):
    (tmp_path / "a.zip").write_bytes(data)
    return unpack(tmp_path / "a.zip", tmp_path / "to", most_bytes=most_bytes, source="a.zip")


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_archives(tmp_path, kind):
    members, message = HOSTILE[kind]
    with pytest.raises(CheckpointError, match=f"^a.zip is refused: .*{message}"):
        unpack_bytes(tmp_path, zipped([*FILES.items(), *members]))
    # Refused before a byte was written.
    assert [path.name for path in tmp_path.iterdir()] == ["a.zip"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"<html>not here</html>", "is not a sound zip archive"),
        (b"", "is not a sound zip archive"),
        (ARCHIVE[:-1000], "is not a sound zip archive"),
        (corrupt(), "is not a sound zip archive: .*(CRC|invalid|Error)"),
        (encrypted(), "'vocab.txt' is encrypted"),
        (declares_less(), "is not a sound zip archive: .*CRC"),
        (zipped([]), "holds no BERT checkpoint: it is empty"),
        (zipped([("a/b/vocab.txt", b"")]), "there is no vocab.txt"),
    ],
)
def test_unsound_archives(tmp_path, data, message):
    with pytest.raises(CheckpointError, match=message):
        unpack_bytes(tmp_path, data)


@pytest.mark.parametrize("name", ["vocab.txt", "bert_config.json", "bert_model.ckpt.index", DATA])
def test_a_missing_member(tmp_path, name):
    data = zipped((n, content) for n, content in FILES.items() if n != name)
    with pytest.raises(CheckpointError, match=f"holds no BERT checkpoint: there is no {name}$"):
        unpack_bytes(tmp_path, data)


def test_one_top_folder_is_left_out(tmp_path):
    members = [(f"uncased_L-12/{name}", content) for name, content in FILES.items()]
    files = unpack_bytes(tmp_path, zipped([("uncased_L-12/", b""), *members]))
    assert read_folder(tmp_path / "to") == FILES
    assert files.keys() == FILES.keys()
