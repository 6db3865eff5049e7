"""tokenize: the pieces it prints, and what it refuses."""

import pytest

from tests.cli.command_line import run
from tests.toy import TOY_VOCAB


def test_tokenize(minilm_dir, tmp_path, vocabularies):
    path = tmp_path / "in.txt"
    path.write_text("Déjà vu ||| [CLS]\n\nunaffable")
    assert run("tokenize", path).stdout == "de ##ja vu | | | [ cl ##s ]\n\nuna ##ffa ##ble\n"
    vocab = minilm_dir / "vocab.txt"
    ids = run("tokenize", path, "--vocab", vocab, "--format", "ids").stdout
    assert ids.splitlines()[2] == "14477 20961 3468"
    cased = vocabularies / "cased_28996.txt"
    assert run("tokenize", path, "--vocab", cased).stdout.startswith("D ##é ##j ##à v ##u")


@pytest.mark.parametrize(
    ("options", "status", "message"),
    [
        (["--vocab", "v", "--checkpoint", "minilm"], 2, "--vocab and --checkpoint are both given"),
        (["--vocab", "nowhere"], 1, "cannot read the vocabulary nowhere"),
        (["--checkpoint", "nowhere"], 1, "there is no checkpoint 'nowhere'"),
    ],
)
def test_tokenize_refuses(text, options, status, message):
    result = run("tokenize", text, *options)
    assert (result.exit_code, message in result.stderr) == (status, True), result.output


def test_tokenize_needs_to_know_the_casing(text, tmp_path):
    vocab = tmp_path / "vocab.txt"
    vocab.write_text("\n".join(TOY_VOCAB))
    result = run("tokenize", text, "--vocab", vocab)
    assert "vocab.txt is unknown; pass --uncased or --cased" in result.stderr
    result = run("tokenize", text, "--vocab", vocab, "--uncased")
    assert result.stdout.splitlines()[2] == "the a b"
