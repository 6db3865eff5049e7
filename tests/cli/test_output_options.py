"""The command line's options for outputs, words, long text and inputs: what they do, how they fail.

The same settings are tried through a config file where a user would write them there.
"""

import gzip
import json
import re

import numpy as np
import pytest

from bert_features import FeatureExtractor, InputExample, read_features
from tests.cli.command_line import SMALL, run

SETTINGS = {"do_lower_case": True, "max_seq_length": 16, "batch_size": 8}
CONLL = "is\tO\nJackson\tB-PER\n\u200b\tO\n\n?\tO\n\n"


def write(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8", errors="surrogateescape")
    return path


def same(records, wanted):
    for got, want in zip(records, wanted, strict=True):
        assert (got.tokens, got.words) == (want.tokens, want.words)
        assert got.features.keys() == want.features.keys()
        for name, values in want.features.items():
            np.testing.assert_allclose(got.features[name], values, rtol=0, atol=1e-6)


OUTPUTS = [
    ['name = "t"', 'layers = [-1, "embeddings"]', 'combine = "concat"'],
    ['name = "w"', 'level = "word"', 'pooling = "first_last"', "layers = [-1]"],
    ['name = "s"', 'level = "sequence"', 'pooling = "REDUCE_MEAN"', "special_tokens = false"],
]


def test_outputs_by_option_by_config_and_by_python_are_the_same(toy, tmp_path, out):
    text = write(tmp_path, "in.txt", "is this jacksonville ? ||| no\n\nthe a b\n")
    common = ["extract", text, "--checkpoint", toy, "--layers=-1", *SMALL]
    specs = [part for output in OUTPUTS for part in ("--output-spec", ", ".join(output))]
    assert run(*common, "-o", out / "a.parquet", *specs).exit_code == 0
    tables = "\n".join("\n".join(["[[outputs]]", *output]) for output in OUTPUTS)
    config = write(tmp_path, "c.toml", tables)
    assert run(*common, "-o", out / "b.npz", "--format", "npz", "--config", config).exit_code == 0
    outputs = [
        {"name": "t", "layers": [-1, "embeddings"], "combine": "concat"},
        {"name": "w", "level": "word", "pooling": "first_last", "layers": [-1]},
        {"name": "s", "level": "sequence", "layers": [-1], "special_tokens": False},
    ]
    extractor = FeatureExtractor.from_checkpoint(toy, outputs=outputs, **SETTINGS)
    wanted = extractor(
        [InputExample(0, "is this jacksonville ?", "no"), "", "the a b"]
    )  # fmt: skip
    same(read_features(out / "a.parquet"), wanted)
    same(read_features(out / "b.npz"), wanted)
    metadata = read_features(out / "a.parquet").metadata
    assert [o["name"] for o in metadata["recipe"]["settings"]["outputs"]] == ["t", "w", "s"]
    assert [f["pooling"] for f in metadata["features"]] == ["none", "first_last", "mean"]


def test_conll_gives_one_vector_for_each_word(toy, tmp_path, out):
    path = tmp_path / "in.conll.gz"
    path.write_bytes(gzip.compress(CONLL.encode()))
    options = ["--checkpoint", toy, "--layers=-1", "--level", "word", *SMALL]
    result = run("extract", path, "-o", out / "o.parquet", *options)
    assert result.exit_code == 0, result.output
    assert "words      4" in result.stdout
    assert "1 words vanished in cleaning, 0 were cut off; their vectors are zero," in result.stdout
    first, second = read_features(out / "o.parquet")
    assert first.words == ("is", "Jackson", "\u200b")
    assert first.word_spans.num_pieces.tolist() == [1, 2, 0]
    assert first.features["features"].shape == (3, 8)
    assert second.words == ("?",)


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "jsonl", "npz", "h5", "tfrecord"])
def test_the_suffix_says_the_format_and_the_users_ids_are_kept(toy, tmp_path, out, suffix):
    lines = [{"id": "x1", "text": "a"}, {"id": "x0", "text": "b", "text_b": "the"}]
    path = write(tmp_path, "in.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    options = ["--checkpoint", toy, "--layers=-1", *SMALL]
    output, ledger = out / f"o.{suffix}", out / "ledger"
    result = run("extract", path, "-o", output, "--ledger", ledger, *options)
    assert result.exit_code == 0, result.output
    file = read_features(output)
    assert [record.unique_id for record in file] == ["x1", "x0"]
    assert file.by_id("x0").tokens == ("[CLS]", "b", "[SEP]", "the", "[SEP]")
    listed = [json.loads(line)["unique_id"] for line in ledger.read_text().splitlines()]
    assert listed == ["x1", "x0"]


def test_csv_columns_by_name(toy, tmp_path, out):
    path = write(tmp_path, "in.csv", 'key,body,more\n7,"a, b",\n9,the,is\n')
    options = ["--id-field", "key", "--text-field", "body", "--text-b-field", "more"]
    options += ["--checkpoint", toy, "--layers=-1", *SMALL]
    result = run("extract", path, "-o", out / "o.npz", "--format", "npz", *options)
    assert result.exit_code == 0, result.output
    records = list(read_features(out / "o.npz"))
    assert [record.unique_id for record in records] == ["7", "9"]
    assert records[1].tokens == ("[CLS]", "the", "[SEP]", "is", "[SEP]")


def test_windows_are_reported(toy, tmp_path, out):
    path = write(tmp_path, "in.txt", "the a b is not " * 8 + "\na\n")
    options = ["--checkpoint", toy, "--layers=-1", "--long-text", "window", "--stride", "5", *SMALL]
    result = run("extract", path, "-o", out / "o.parquet", *options)
    assert result.exit_code == 0, result.output
    assert "truncated  0 examples, 0 tokens lost" in result.stdout
    assert re.search(r"rows       8 computed for 2 examples", result.stdout)
    assert [len(record.tokens) for record in read_features(out / "o.parquet")] == [42, 3]


TEXT = ("in.txt", "a b\n" + "the a b is not " * 8 + "\n")


@pytest.mark.parametrize(
    ("source", "options", "status", "message"),
    [
        (("in.txt", "fine\n\udcff\n"), [], 1, "in.txt, line 2: byte 0xff at file offset 5 is not"),
        (TEXT, ["--layers=-1,last"], 2, r"layers is \[-1, 'last'\]; allowed: a list"),
        (TEXT, ["--layers=-1,,2"], 2, "--layers is '-1,,2'; separate the entries"),
        (TEXT, ["--config", "nowhere.toml"], 2, "cannot read the config nowhere.toml"),
        (TEXT, ["--device", "gpu"], 2, "no GPU"),
        (TEXT, ["--weights", "1,x", "--combine", "weighted"], 2, r"weights is \[1, 'x'\]; allowed"),
        (TEXT, ["--dtype", "bfloat16"], 2, "'parquet' holds float16, .*binary; .*tfrecord"),
        (TEXT, ["--output-spec", "name = s"], 2, "is not TOML: .*; write the inside of"),
        (TEXT, ["--output-spec", "nme = 's'"], 2, "unknown setting 'nme'; did you mean 'name'"),
        (TEXT, ["--output-spec", "dim = 3", "--combine", "sum"], 2, "combine and outputs"),
        (TEXT, ["--output-spec", "name = 'a/b'"], 2, "output name 'a/b' contains '/'"),
        (TEXT, ["--output-spec", "name = 'tokens'"], 2, "output name 'tokens' is reserved"),
        (TEXT, ["--long-text", "window", "--stride", "14"], 2, "stride must be from 1 to 13"),
        (TEXT, ["--stride", "3"], 2, "stride is for 'window'"),
        (TEXT, ["--long-text", "error"], 1, "example 1 has 40 pieces and does not fit"),
        (
            ("in.words", "?" * 15 + "\n"),
            ["--level", "word", "--long-text", "window", "--input-format", "words"],
            1,
            "example 0 has a word of 15 pieces",
        ),
        (("in.jsonl", '{"text": "a"}\n{"txt": "b"}\n'), [], 1, "in.jsonl, line 2.*text"),
        (TEXT, ["--text-field", "body"], 2, "--text-field is set, but the input is read as text"),
        (("in.txt.gz", "not gzip"), [], 1, "in.txt.gz"),
        (TEXT, ["--format", "jsonl"], 1, ".*has the suffix of parquet, but the format is jsonl"),
    ],
)  # fmt: skip
def test_what_is_refused(toy, tmp_path, out, source, options, status, message):
    """One line, the right status, nothing left; the ledger neither."""
    path = write(tmp_path, *source)
    defaults = ["--checkpoint", toy, "--layers=-1", "--ledger", out / "ledger", *SMALL]
    result = run("extract", path, "-o", out / "o.parquet", *defaults, *options)
    assert result.exit_code == status, result.output
    lines = [line for line in result.stderr.splitlines() if not line.startswith("running on")]
    assert len(lines) == 1, lines
    assert re.match(f"bert-features: .*{message}", lines[0]), lines[0]
    assert list(out.iterdir()) == []
