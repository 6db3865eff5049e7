"""The command line's options for outputs, words, long text and inputs: what they do, how they fail.

The same settings are tried through a config file where a user would write them there.
"""

import numpy as np

from bert_features import FeatureExtractor, InputExample, read_features
from tests.cli.command_line import SMALL, run

SETTINGS = {"do_lower_case": True, "max_seq_length": 16, "batch_size": 8}


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
