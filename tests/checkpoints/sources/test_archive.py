"""Unpacking: hostile archives, unsound ones, and those that hold no checkpoint."""

import stat
import zipfile

import pytest

from bert_features.checkpoints.sources.archive import unpack
from bert_features.errors import CheckpointError
from tests.reference.published_archive import ARCHIVE, DATA, FILES, read_folder, zipped

SECOND_DATA = "bert_model.ckpt.data-00001-of-00002"


def link(name, target):
    member = zipfile.ZipInfo(name)
    member.create_system = 3
    member.external_attr = (stat.S_IFLNK | 0o777) << 16
    return member, target


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
    data = zipped([*FILES.items(), (SECOND_DATA, bytes(2_000_000))])
    return data.replace((2_000_000).to_bytes(4, "little"), (10).to_bytes(4, "little"))


# Members that no checkpoint has: they stay in the archive.
FOREIGN = {
    "parent": [("../evil", b"x"), ("a/../../vocab.txt", b"x")],
    "absolute": [("/tmp/evil", b"x"), ("C:/evil", b"x"), ("..\\vocab.txt", b"x")],
    "newline": [("vocab.txt\n", b"x")],
    "link": [link("evil", "/etc/passwd")],
    "case": [("VOCAB.txt", b"x")],
    "folder": [("vocab.txt/", b""), ("vocab.txt/x", b"x")],
    "long name": [("x" * 300, b"x")],
    "bomb": [("zeros", bytes(8_000_000))],
}
REFUSED = {
    "duplicate": ([("vocab.txt", b"x")], "holds two files named vocab.txt"),
    "duplicate above": ([("../vocab.txt", b"x")], "holds two files named vocab.txt"),
    "bomb": ([(SECOND_DATA, bytes(8_000_000))], r"unpacks to 9,000,0\d\d bytes; at most 8,9"),
}


def unpack_bytes(tmp_path, data, max_bytes=8_999_999):
    (tmp_path / "a.zip").write_bytes(data)
    unpack(tmp_path / "a.zip", tmp_path / "to", max_bytes=max_bytes, source="a.zip")


@pytest.mark.parametrize("kind", FOREIGN)
def test_only_known_files_are_unpacked(tmp_path, kind):
    unpack_bytes(tmp_path, zipped([*FOREIGN[kind], *FILES.items()]))
    assert read_folder(tmp_path / "to") == FILES
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.zip", "to"]


@pytest.mark.parametrize("kind", REFUSED)
def test_hostile_archives(tmp_path, kind):
    members, message = REFUSED[kind]
    with pytest.raises(CheckpointError, match=f"^a.zip is refused: .*{message}"):
        unpack_bytes(tmp_path, zipped([*FILES.items(), *members]))
    # Refused before a byte was written.
    assert [path.name for path in tmp_path.iterdir()] == ["a.zip"]


def test_a_link_becomes_a_plain_file(tmp_path):
    members = FILES | {"vocab.txt": b""}
    unpack_bytes(tmp_path, zipped([link("x/vocab.txt", "/etc/passwd"), *list(members.items())[1:]]))
    vocab = tmp_path / "to" / "vocab.txt"
    assert not vocab.is_symlink()
    assert vocab.read_text() == "/etc/passwd"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"<html>not here</html>", "is not a sound zip archive"),
        (ARCHIVE[:-1000], "is not a sound zip archive"),
        (corrupt(), "is not a sound zip archive: .*(CRC|invalid|Error)"),
        (encrypted(), "is not a sound zip archive: .*vocab.txt.* is encrypted"),
        (declares_less(), "is not a sound zip archive: .*CRC"),
        (zipped([]), "holds no BERT checkpoint: there is no vocab.txt, there is no bert_config"),
        (zipped([("a/b/vocab.txt", b"")]), "there is no vocab.txt"),
    ],
)
def test_unsound_archives(tmp_path, data, message):
    with pytest.raises(CheckpointError, match=message):
        unpack_bytes(tmp_path, data)
    # Whatever the headers declare, no more than that was written.
    written = sum(path.stat().st_size for path in tmp_path.glob("to/*"))
    assert written <= sum(map(len, FILES.values())) + 10


@pytest.mark.parametrize("name", ["vocab.txt", "bert_config.json", "bert_model.ckpt.index", DATA])
def test_a_missing_member(tmp_path, name):
    data = zipped((n, content) for n, content in FILES.items() if n != name)
    with pytest.raises(
        CheckpointError, match=f"holds no BERT checkpoint: there is no {name}; pass another$"
    ):
        unpack_bytes(tmp_path, data)
    assert [path.name for path in tmp_path.iterdir()] == ["a.zip"]


def test_one_top_folder_is_left_out(tmp_path):
    members = [(f"uncased_L-12/{name}", content) for name, content in FILES.items()]
    unpack_bytes(tmp_path, zipped([("uncased_L-12/", b""), *members]))
    assert read_folder(tmp_path / "to") == FILES
