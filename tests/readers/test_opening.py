"""The bytes of inputs: compressed, damaged, on object stores."""

import json

import pytest
from huggingface_hub import constants

from bert_features.errors import InputError
from bert_features.readers.examples import read_examples
from bert_features.readers.input_example import InputExample
from tests.readers.inputs import COMPRESS, count_examples, read, write, write_parquet
from tests.reference.file_server import FileServer
from tests.reference.object_store import ServerError

TEXT = "one\ntwo ||| deux\n"
TEXT_EXAMPLES = [InputExample(0, "one"), InputExample(1, "two", "deux")]
compressions = pytest.mark.parametrize("suffix", COMPRESS)


@compressions
def test_compressed_files(tmp_path, suffix):
    compress = COMPRESS[suffix]
    text = write(tmp_path, "in.txt" + suffix, compress(TEXT.encode()))
    assert read(text) == TEXT_EXAMPLES
    assert count_examples(text) is None
    table = write(tmp_path, "in.csv" + suffix.upper(), compress(b"text\na\n"))
    assert read(table) == [InputExample(0, "a")]
    sentences = write(tmp_path, "in.conllu" + suffix, compress(b"1\ta\n\n1\tb\n"))
    assert len(read(sentences)) == 2


# --- addresses -----------------------------------------------------------------------------------


def test_local_files_with_odd_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("notes::x", "a:b.txt", "memory:x"):
        write(tmp_path, name, TEXT)
        assert read(name) == TEXT_EXAMPLES
        assert count_examples(name) == 2


def test_the_file_that_was_named_is_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "in.txt", "a\n")
    examples = read_examples("in.txt")
    (tmp_path / "there").mkdir()
    monkeypatch.chdir("there")
    assert list(examples) == [InputExample(0, "a")]


def test_a_local_address_is_a_path(tmp_path):
    path = write(tmp_path, "in.csv", "text\na\n")
    assert read(f"file://{path}") == [InputExample(0, "a")]
    assert count_examples(f"file://{write(tmp_path, 'in.txt', TEXT)}") == 2
    table = write_parquet(tmp_path, {"text": ["a", "b"]})
    assert len(read(f"file://{table}")) == count_examples(f"file://{table}") == 2
    with pytest.raises(InputError, match=r"cannot read /.*absent.*No such file"):
        read(f"file://{tmp_path}/absent.txt")


def test_a_file_of_a_dataset_of_the_hugging_face_hub(monkeypatch):
    """By huggingface_hub's own driver, from a server that answers as the Hub does."""
    facts = {"id": "org/texts", "sha": "a" * 40, "siblings": []}
    with FileServer() as server:
        tree = [{"type": "file", "path": "in.jsonl", "size": 14, "oid": "b" * 40}]
        server.files = {
            "/api/datasets/org/texts": json.dumps(facts).encode(),
            "/api/datasets/org/texts/tree/main?recursive=false&expand=false": json.dumps(
                tree
            ).encode(),
            "/datasets/org/texts/resolve/main/in.jsonl": b'{"text": "a"}\n',
        }
        endpoint = server.url.removesuffix("/models")
        monkeypatch.setattr(constants, "ENDPOINT", endpoint)
        template = endpoint + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        assert read("hf://datasets/org/texts/in.jsonl") == [InputExample(0, "a")]
        with pytest.raises(InputError, match=r"cannot read hf://datasets/org/absent/in.jsonl: "):
            read("hf://datasets/org/absent/in.jsonl")


@pytest.mark.parametrize("suffix", ["", *COMPRESS])
def test_files_of_an_object_store(object_store, suffix):
    pack = COMPRESS.get(suffix, bytes)
    object_store.files[f"bucket/in.txt{suffix}"] = pack(TEXT.encode())
    object_store.files[f"bucket/in.conllu{suffix}"] = pack(b"1\ta\n\n1\tb\n")
    assert read(f"toy://bucket/in.txt{suffix}") == TEXT_EXAMPLES
    assert [e.words_a for e in read(f"toy://bucket/in.conllu{suffix}")] == [("a",), ("b",)]
    for name in (f"in.txt{suffix}", f"in.jsonl{suffix}"):
        object_store.files.setdefault(f"bucket/{name}", b"")
        assert count_examples(f"toy://bucket/{name}") is None


def test_parquet_of_an_object_store(object_store, tmp_path):
    content = write_parquet(tmp_path, {"text": [str(i) for i in range(1000)]}).read_bytes()
    object_store.files["bucket/in.parquet"] = content
    assert [e.text_a for e in read("toy://bucket/in.parquet")] == [str(i) for i in range(1000)]
    assert count_examples("toy://bucket/in.parquet") == 1000
    object_store.files["bucket/in.parquet"] = content[:-20]
    with pytest.raises(InputError, match=r"toy://bucket/in\.parquet: cannot be read as Parquet"):
        read("toy://bucket/in.parquet")


def test_damaged_files_of_an_object_store(object_store):
    whole = COMPRESS[".gz"](b"".join(b"line %d\n" % i for i in range(1000)))
    for content in (whole[:-20], TEXT.encode(), b""):
        object_store.files["bucket/in.txt.gz"] = content
        with pytest.raises(InputError, match=r"^cannot read toy://bucket/in\.txt\.gz: "):
            read("toy://bucket/in.txt.gz")
    object_store.files["bucket/bad"] = b"fine\nbad \xe9"
    with pytest.raises(InputError, match=r"^toy://bucket/bad, line 2: byte 0xe9 at file offset 9"):
        read("toy://bucket/bad")


@pytest.mark.parametrize("use", [read, count_examples])
@pytest.mark.parametrize("suffix", ["txt", "jsonl", "csv", "parquet", "txt.gz"])
def test_files_that_an_object_store_refuses(object_store, use, suffix):
    for name in ("denied", "broken", "folder"):
        object_store.files[f"bucket/{name}.{suffix}"] = b""
    object_store.files[f"bucket/folder.{suffix}/part"] = b""
    del object_store.files[f"bucket/folder.{suffix}"]
    object_store.failing[f"bucket/denied.{suffix}"] = PermissionError("Access Denied")
    object_store.failing[f"bucket/broken.{suffix}"] = ServerError("no credentials")
    for name, message in {
        "denied": "cannot read toy://bucket/denied.*: no permission: Access Denied",
        "broken": "cannot read toy://bucket/broken.*: no credentials",
        "absent": "cannot read toy://bucket/absent.*: no such file",
        "folder": "toy://bucket/folder.* is a directory",
    }.items():
        with pytest.raises(InputError, match=message):
            use(f"toy://bucket/{name}.{suffix}")


@pytest.mark.parametrize("suffix", ["txt", "jsonl", "csv", "parquet", "txt.gz"])
def test_a_connection_that_breaks_in_the_middle(object_store, suffix):
    name = f"bucket/in.{suffix}"
    object_store.files[name] = b"a\n" * 100
    object_store.failing[name] = ServerError("connection lost")
    object_store.fails_late.add(name)
    with pytest.raises(InputError, match=f"^cannot read toy://{name}: connection lost"):
        read(f"toy://{name}")
