"""Bytes kept in the cache."""

import pytest

from bert_features.files import from_cache

CONTENT = b"\x00model\xff" * 100


class Computing:
    """Computes the content, and counts how often."""

    def __init__(self):
        self.calls = 0

    def __call__(self):
        self.calls += 1
        return CONTENT


@pytest.fixture
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("BERT_FEATURES_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def computing():
    return Computing()


def only_file(cache):
    (path,) = (path for path in cache.rglob("*") if path.is_file())
    return path


def test_what_was_computed_once_is_read(cache, computing):
    assert [from_cache("models", [b"a", b"b"], computing) for _ in range(3)] == [CONTENT] * 3
    assert computing.calls == 1
    assert only_file(cache).parent == cache / "models"


@pytest.mark.parametrize("others", [[b"a"], [b"b", b"a"], [b"ab"], [b"", b"ab"], [b"a", b"c"]])
def test_other_sources_have_another_file(cache, computing, others):
    from_cache("models", [b"a", b"b"], computing)
    assert from_cache("models", others, lambda: b"other") == b"other"
    assert from_cache("models", [b"a", b"b"], computing) == CONTENT
    assert computing.calls == 1


def test_a_file_under_the_name_of_another_is_computed_again(cache, computing):
    assert from_cache("models", [b"other"], lambda: b"other") == b"other"
    other = only_file(cache)
    from_cache("models", [b"a"], computing)
    (own,) = {path for path in other.parent.iterdir() if path.is_file()} - {other}
    other.replace(own)
    assert from_cache("models", [b"a"], computing) == CONTENT
    assert computing.calls == 2


DAMAGES = {
    "empty": lambda content: b"",
    "short": lambda content: content[:-1],
    "hash alone": lambda content: content[:32],
    "part of the hash": lambda content: content[:7],
    "a bit": lambda content: content[:-1] + bytes([content[-1] ^ 1]),
    "a bit of the hash": lambda content: bytes([content[0] ^ 1]) + content[1:],
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_computed_anew_and_replaced(cache, computing, damage):
    from_cache("models", [b"a"], computing)
    path = only_file(cache)
    whole = path.read_bytes()
    path.write_bytes(DAMAGES[damage](whole))
    assert from_cache("models", [b"a"], computing) == CONTENT
    assert computing.calls == 2
    assert only_file(cache).read_bytes() == whole
    from_cache("models", [b"a"], computing)
    assert computing.calls == 2


def test_a_folder_in_the_place_of_the_file(cache, computing):
    from_cache("models", [b"a"], computing)
    path = only_file(cache)
    path.unlink()
    path.mkdir()
    assert from_cache("models", [b"a"], computing) == CONTENT


def test_a_file_in_the_place_of_the_cache(cache, computing):
    cache.write_text("in the way")
    assert [from_cache("models", [b"a"], computing) for _ in range(2)] == [CONTENT] * 2
    assert computing.calls == 2
    assert cache.read_text() == "in the way"


def test_an_error_of_the_computation_is_not_hidden(cache):
    with pytest.raises(ZeroDivisionError):
        from_cache("models", [b"a"], lambda: bytes(1 // 0))
    assert not cache.exists()
