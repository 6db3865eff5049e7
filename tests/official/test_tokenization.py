"""The nine tests of google-research/bert's tokenization_test.py, restated, and what else it has."""

import os
import random
import tempfile

import pytest

from bert_features.errors import CheckpointError
from bert_features.official import tf1 as tf
from bert_features.official import tokenization
from tests.reference import full_tokenizer as reference

PIECES = ["[UNK]", "[CLS]", "[SEP]", "want", "##want", "##ed", "wa", "un", "runn", "##ing"]


class TestTokenization:
    """In the order of the original."""

    def test_full_tokenizer(self):
        with tempfile.NamedTemporaryFile(delete=False) as vocab_writer:
            vocab_writer.write("".join(f"{x}\n" for x in [*PIECES, ","]).encode("utf-8"))
            vocab_file = vocab_writer.name
        tokenizer = tokenization.FullTokenizer(vocab_file)
        os.unlink(vocab_file)  # noqa: PTH108
        tokens = tokenizer.tokenize("UNwant\u00e9d,running")
        assert tokens == ["un", "##want", "##ed", ",", "runn", "##ing"]
        assert tokenizer.convert_tokens_to_ids(tokens) == [7, 4, 5, 10, 8, 9]

    def test_chinese(self):
        tokenizer = tokenization.BasicTokenizer()
        assert tokenizer.tokenize("ah\u535a\u63a8zz") == ["ah", "\u535a", "\u63a8", "zz"]

    def test_basic_tokenizer_lower(self):
        tokenizer = tokenization.BasicTokenizer(do_lower_case=True)
        words = tokenizer.tokenize(" \tHeLLo!how  \n Are yoU?  ")
        assert " ".join(words) == "hello ! how are you ?"
        assert tokenizer.tokenize("H\u00e9llo") == ["hello"]

    def test_basic_tokenizer_no_lower(self):
        tokenizer = tokenization.BasicTokenizer(do_lower_case=False)
        words = tokenizer.tokenize(" \tHeLLo!how  \n Are yoU?  ")
        assert " ".join(words) == "HeLLo ! how Are yoU ?"

    def test_wordpiece_tokenizer(self):
        vocab = {token: i for i, token in enumerate(PIECES)}
        tokenizer = tokenization.WordpieceTokenizer(vocab=vocab)
        assert tokenizer.tokenize("") == []
        assert tokenizer.tokenize("unwanted running") == ["un", "##want", "##ed", "runn", "##ing"]
        assert tokenizer.tokenize("unwantedX running") == ["[UNK]", "runn", "##ing"]

    def test_convert_tokens_to_ids(self):
        vocab = {token: i for i, token in enumerate(PIECES)}
        assert tokenization.convert_tokens_to_ids(
            vocab, ["un", "##want", "##ed", "runn", "##ing"]
        ) == [7, 4, 5, 8, 9]

    def test_is_whitespace(self):
        for char in " \t\r\n\u00a0":
            assert tokenization._is_whitespace(char)
        for char in "A-":
            assert not tokenization._is_whitespace(char)

    def test_is_control(self):
        assert tokenization._is_control("\u0005")
        for char in "A \t\r":
            assert not tokenization._is_control(char)

    def test_is_punctuation(self):
        for char in "-$`.":
            assert tokenization._is_punctuation(char)
        for char in "A ":
            assert not tokenization._is_punctuation(char)


def random_texts(count):
    generator = random.Random(5)
    alphabet = "ab ÄÅé'-,.\t\n ΣςσIİı\u00a0\u0301\u200b博推뷁ﬁ𝔘😀\ufffd\0\u2028[]"
    return ["".join(generator.choices(alphabet, k=generator.randrange(20))) for _ in range(count)]


@pytest.mark.parametrize("lower", [True, False])
def test_basic_tokenizer_beside_plain_python(lower):
    tokenizer = tokenization.BasicTokenizer(lower)
    texts = [*random_texts(200), "a" * 300, "", " "]
    for text in texts:
        assert tokenizer.tokenize(text) == reference.basic_tokenize(text, lower=lower), text


@pytest.mark.parametrize("lower", [True, False])
def test_full_tokenizer_beside_the_reference(tmp_path, lower):
    """One text by plain Python, many by the graph."""
    pieces = [*PIECES, "a", "b", "##a", "##b", "é", "e", "'", "-", "博", "σ", "##σ", "ς", "[", "]"]
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(pieces), encoding="utf-8")
    tokenizer = tokenization.FullTokenizer(path, lower)
    wanted = reference.ReferenceTokenizer.from_tokens(pieces, lower=lower)
    texts = random_texts(200)
    assert [tokenizer.tokenize(text) for text in texts] == [wanted.tokenize(t) for t in texts]
    ids = [tokenizer.convert_tokens_to_ids(tokenizer.tokenize(text)) for text in texts]
    assert ids == [wanted.ids(text) for text in texts]


def test_wordpiece_tokenizer_beside_the_reference():
    generator = random.Random(7)
    vocab = {piece: i for i, piece in enumerate(["[UNK]", "a", "ab", "##b", "##ba", "##aa", "b"])}
    tokenizer = tokenization.WordpieceTokenizer(vocab)
    for _ in range(300):
        word = "".join(generator.choices("abc", weights=(5, 5, 1), k=generator.randrange(1, 9)))
        assert tokenizer.tokenize(word) == reference.wordpiece(word, vocab), word


def test_wordpiece_tokenizer_has_the_official_settings():
    tokenizer = tokenization.WordpieceTokenizer({"a": 0, "##a": 1}, "<unk>", 3)
    assert tokenizer.tokenize("aaa aaaa b") == ["a", "##a", "##a", "<unk>", "<unk>"]


def test_full_tokenizer_takes_its_arguments_by_name_and_by_place(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("[UNK]\n[CLS]\n[SEP]\nab\nAb\n", encoding="utf-8")
    by_name = tokenization.FullTokenizer(vocab_file=str(path), do_lower_case=False)
    by_place = tokenization.FullTokenizer(str(path), False)
    assert by_name.tokenize("Ab") == by_place.tokenize("Ab") == ["Ab"]
    assert tokenization.FullTokenizer(str(path)).tokenize("Ab") == ["ab"]
    assert by_name.vocab == tokenization.load_vocab(str(path))
    assert by_name.inv_vocab == {0: "[UNK]", 1: "[CLS]", 2: "[SEP]", 3: "ab", 4: "Ab"}
    assert tokenization.convert_ids_to_tokens(by_name.inv_vocab, [4, 0]) == ["Ab", "[UNK]"]


def test_the_parts_of_a_full_tokenizer(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("[UNK]\n[CLS]\n[SEP]\nab\n##c\n", encoding="utf-8")
    tokenizer = tokenization.FullTokenizer(str(path))
    assert tokenizer.basic_tokenizer.tokenize("ABC!") == ["abc", "!"]
    assert tokenizer.wordpiece_tokenizer.tokenize("abc") == ["ab", "##c"]
    assert tokenizer.tokenize(b"ABC\xff") == ["ab", "##c"]


@pytest.mark.parametrize("folder", ["uncased_L-12_H-768_A-12", "multilingual_L-12_H-768_A-12"])
def test_the_casing_of_a_published_checkpoint(folder):
    validate = tokenization.validate_case_matches_checkpoint
    with pytest.raises(ValueError, match="do_lower_case"):
        validate(False, f"/models/{folder}/bert_model.ckpt")
    validate(True, f"/models/{folder}/bert_model.ckpt")
    validate(False, "gs://bucket/cased_L-12_H-768_A-12/bert_model.ckpt")
    for unknown in (None, "", "model.ckpt", "mine/bert_model.ckpt"):
        validate(True, unknown)


def test_a_vocabulary_at_an_address(tmp_path):
    """By TensorFlow's own file access, as in the original."""
    with tf.gfile.GFile("ram:///vocab.txt", "w") as file:
        file.write("[UNK]\n[CLS]\n[SEP]\na\n")
    assert tokenization.FullTokenizer("ram:///vocab.txt").tokenize("a") == ["a"]
    with pytest.raises(CheckpointError, match=r"none\.txt"):
        tokenization.load_vocab(tmp_path / "none.txt")


def test_convert_to_unicode():
    for function in (tokenization.convert_to_unicode, tokenization.printable_text):
        assert function("é") == function("é".encode()) == "é"
        assert function(b"a\xff") == "a"
        with pytest.raises(ValueError, match="text is a int"):
            function(1)


def test_whitespace_tokenize():
    assert tokenization.whitespace_tokenize(" a\tb \n") == ["a", "b"]
    assert tokenization.whitespace_tokenize("  ") == []
