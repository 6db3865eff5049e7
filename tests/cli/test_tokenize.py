"""tokenize: the pieces it prints, what it reads, and what it refuses."""

import json

import pytest

from tests.cli.command_line import run
from tests.readers.inputs import write
from tests.toy import TOY_VOCAB


@pytest.fixture
def toy_tokens(toy, tmp_path):
    """A function: the lines that are printed for a file, by the toy checkpoint."""

    def tokenize(name, content, *options):
        path = tmp_path / name
        path.write_text(content)
        result = run("tokenize", path, "--checkpoint", toy, "--uncased", *options)
        assert result.exit_code == 0, result.output
        return result.stdout.splitlines()

    return tokenize


def test_tokenize(minilm_dir, tmp_path, vocabularies):
    path = tmp_path / "in.txt"
    path.write_text("Déjà vu ||| [CLS]\n\nunaffable")
    assert run("tokenize", path).stdout == "de ##ja vu [ cl ##s ]\n\nuna ##ffa ##ble\n"
    vocab = minilm_dir / "vocab.txt"
    ids = run("tokenize", path, "--vocab", vocab, "--format", "ids").stdout
    assert ids.splitlines()[2] == "14477 20961 3468"
    cased = vocabularies / "cased_28996.txt"
    assert run("tokenize", path, "--vocab", cased).stdout.startswith("D ##é ##j ##à v ##u")


def test_special_tokens_stand_where_extract_puts_them(toy_tokens):
    content = "is this jacksonville ? ||| no it is not .\n\nthe a b\n"
    assert toy_tokens("in.txt", content, "--special-tokens") == [
        "[CLS] is this jack ##son ##ville ? [SEP] no it is not . [SEP]",
        "[CLS] [SEP]",
        "[CLS] the a b [SEP]",
    ]
    cut = ["--special-tokens", "--max-seq-length", "8"]
    assert toy_tokens("in.txt", content, *cut)[0] == "[CLS] is this jack [SEP] no it [SEP]"
    assert toy_tokens("in.txt", content, *cut[1:])[0] == "is this jack no it"


@pytest.mark.parametrize("from_stdin", [False, True])
def test_what_looks_like_another_format_is_warned_of(toy, tmp_path, caplog, from_stdin):
    lines = '[{"text": "a"},\n{"text": "b"}]\n'
    path = write(tmp_path, "in", lines)
    name = "standard input" if from_stdin else path
    given = ("-", lines) if from_stdin else (path, None)
    result = run("tokenize", given[0], "--checkpoint", toy, "--uncased", stdin=given[1])
    assert result.exit_code == 0
    assert caplog.messages == [
        f"{name} is read as text, each line as one example, but looks like json; if it is, pass "
        "--input-format json (in Python: input_format)"
    ]


def test_jsonl(toy_tokens):
    lines = toy_tokens("in.csv", "id,text,text_b\nx,A jackson,b\n", "--format", "jsonl")
    vocab = {token: number for number, token in enumerate(TOY_VOCAB)}
    tokens = ["a", "jack", "##son", "b"]
    assert [json.loads(line) for line in lines] == [
        {
            "id": "x",
            "tokens": tokens,
            "ids": [vocab[token] for token in tokens],
            "type_ids": [0, 0, 0, 1],
            "offsets": [[0, 1], [2, 6], [6, 9], [0, 1]],
        }
    ]
    content = json.dumps({"tokens": ["the", "jackson"]})
    (line,) = toy_tokens("in.jsonl", content, "--format", "jsonl", "--special-tokens")
    row = json.loads(line)
    assert row["tokens"] == ["[CLS]", "the", "jack", "##son", "[SEP]"]
    assert row["offsets"] == [None, [0, 3], [4, 8], [8, 11], None]
    assert (row["id"], row["type_ids"]) == (0, [0] * 5)


def test_a_config_file_for_extract_serves(toy, toy_tokens, tmp_path):
    config = tmp_path / "c.toml"
    config.write_text('layers = [0]\ntext_field = "body"\nmax_seq_length = 4\n')
    text = "the a b is this not"
    assert toy_tokens("in.csv", f"body\n{text}\n", "--config", config) == [text]


def test_tokenize_needs_to_know_the_casing(text, tmp_path):
    vocab = tmp_path / "vocab.txt"
    vocab.write_text("\n".join(TOY_VOCAB))
    result = run("tokenize", text, "--vocab", vocab)
    assert "vocab.txt is unknown; pass --uncased or --cased" in result.stderr
    result = run("tokenize", text, "--vocab", vocab, "--uncased")
    assert result.stdout.splitlines()[2] == "the a b"


def test_a_vocabulary_without_special_tokens(text, tmp_path):
    vocab = tmp_path / "vocab.txt"
    vocab.write_text("[UNK]\nthe\na\nb\n")
    assert run("tokenize", text, "--vocab", vocab, "--uncased").exit_code == 0
    result = run("tokenize", text, "--vocab", vocab, "--uncased", "--special-tokens")
    assert result.exit_code == 1
    assert "the vocabulary lacks [CLS], [SEP]" in result.stderr


def test_a_pair_of_mpnet_has_its_frame_and_no_types(tmp_path):
    specials = ["<s>", "<pad>", "</s>", "[UNK]", "<mask>", "[PAD]", "[CLS]", "[SEP]", "[MASK]"]
    (tmp_path / "vocab.txt").write_text("\n".join([*specials, "a", "b"]))
    (tmp_path / "config.json").write_text('{"model_type": "mpnet"}')
    (tmp_path / "in.txt").write_text("a a a ||| b b b\n")
    options = (tmp_path / "in.txt", "--vocab", tmp_path / "vocab.txt", "--uncased")
    whole = run("tokenize", *options, "--special-tokens", "--max-seq-length", "8")
    assert whole.stdout == "<s> a a </s> </s> b b </s>\n"
    found = json.loads(run("tokenize", *options, "--format", "jsonl").stdout)
    assert found["type_ids"] == [0] * 6
    assert found["ids"] == [9] * 3 + [10] * 3
