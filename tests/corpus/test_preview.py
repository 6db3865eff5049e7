"""plan(): what it foretells is what extract then does."""

import itertools
import json
import re

import numpy as np
import pytest
from typer.testing import CliRunner

from bert_features import extract
from bert_features.cli import app
from bert_features.config.extract_config import ExtractConfig
from bert_features.corpus.preview import plan, suggest_buckets
from bert_features.errors import CheckpointError, OutputError

pytestmark = pytest.mark.usefixtures("kept_steps")

FEW = ["the", "a", "b", "is", "not"]
TEXTS = [" ".join(FEW[: i % 6]) + " jackson" * (i * 7 % 19) for i in range(300)]


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "in.txt"
    path.write_text("\n".join(TEXTS) + "\n")
    return path


def test_a_plan_takes_folders_globs_and_several_files(toy, text, tmp_path):
    config = ExtractConfig(checkpoint=toy, layers=(-1,), do_lower_case=True)
    (tmp_path / "more").mkdir()
    for name in "ab":
        (tmp_path / "more" / f"{name}.txt").write_text(text.read_text())
    one, three = plan(config, text), plan(config, [f"{tmp_path}/more", f"{tmp_path}/i*.txt"])
    assert (three.examples, three.tokens) == (3 * one.examples, 3 * one.tokens)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"long_text": "head_tail", "level": "word", "format": "jsonl"},
        {"long_text": "window", "stride": 5, "level": "word"},
        {"long_text": "window", "level": "sequence"},
        {"packing": True, "buckets": None, "level": "word"},
    ],
    ids=str,
)
def test_a_plan_comes_true(toy, text, tmp_path, settings):
    config = ExtractConfig.of(
        {"checkpoint": toy, "layers": (-1,), "max_seq_length": 20, "buckets": (5, 10)}
        | {"batch_tokens": 70, "do_lower_case": True, "format": "npz", **settings}
    )
    foretold = plan(config, text)
    summary = extract(config, text, tmp_path / "out")
    counts = summary.counts
    assert foretold.examples == counts.examples == 300
    assert foretold.tokens == counts.tokens
    assert foretold.computed_tokens == counts.computed_tokens
    assert foretold.row_lengths.sum() == counts.rows
    assert foretold.pad_waste == counts.pad_waste
    if config.packing:
        assert foretold.packed_tokens == counts.computed_tokens < foretold.unpacked_tokens
    assert foretold.truncated_examples == counts.truncated_examples
    assert foretold.tokens_lost == counts.tokens_lost
    assert foretold.words == counts.words
    assert foretold.words_without_vector == counts.words_lost + counts.words_vanished
    lengths = [2 + len(text.split()) + text.count("jackson") for text in TEXTS]
    np.testing.assert_array_equal(
        foretold.example_lengths, np.bincount(lengths, minlength=len(foretold.example_lengths))
    )
    # What is written beside the features, tokens, words and ids, counts much in so narrow a model.
    if config.format == "npz":
        assert foretold.output_bytes("npz") < summary.bytes_written


def cost_of(buckets, row_lengths):
    """Tokens computed for the rows; infinite where a row does not fit."""
    total, below = 0.0, 0
    for bucket in buckets:
        total += sum(row_lengths[below + 1 : bucket + 1]) * bucket
        below = bucket
    return np.inf if sum(row_lengths[below + 1 :]) else total


@pytest.mark.parametrize("seed", range(10))
def test_suggested_buckets_are_the_best_there_are(seed):
    most = (1, 2, 3, 5)[seed % 4]
    rng = np.random.default_rng(seed)
    row_lengths = rng.integers(0, 100, 41) * (rng.random(41) < 0.4)
    row_lengths[0] = 0
    sets = [
        buckets
        for count in range(1, most + 1)
        for buckets in itertools.combinations([8, 16, 24, 32, 40], count)
    ]
    suggested = suggest_buckets(row_lengths, max_seq_length=40, max_buckets=most)
    assert len(suggested) <= most
    assert cost_of(suggested, row_lengths) == min(cost_of(b, row_lengths) for b in sets)
    assert suggest_buckets([0], max_seq_length=20, max_buckets=most) == (20,)  # no rows


def test_the_command_draws_it(toy, text):
    options = ["--checkpoint", toy, "--layers=-1", "--uncased", "--max-seq-length", "20"]
    result = CliRunner().invoke(
        app, ["plan", str(text), *options, "--batch-size", "8", "--buckets", "8,16"]
    )
    assert result.exit_code == 0, result.output
    assert "examples          300" in result.stdout
    assert "layer_output_0  token, 8 values of float32" in result.stdout
    assert "█" in result.stdout
    assert "8 x 16" in result.stdout
    found = re.search(
        r"TPU or GPU: \d+\.\d% with packing, (\d+\.\d% without packing)", result.stdout
    )
    assert found
    assert "a good choice for a TPU or GPU: --buckets=" in result.stdout
    assert not result.stderr


def test_a_cache_that_a_run_would_refuse_is_refused(toy, text):
    with pytest.raises(OutputError, match="is an address"):
        plan(ExtractConfig(checkpoint=toy, layers=-1, do_lower_case=True, cache="s3://b/c"), text)


def test_a_plan_that_is_refused_makes_no_folder(tmp_path, text):
    cache = tmp_path / "cache"
    with pytest.raises(CheckpointError):
        plan(ExtractConfig(checkpoint=str(tmp_path), cache=str(cache)), text)
    assert not cache.exists()


def test_the_command_prints_json(toy, text):
    options = ["--checkpoint", toy, "--layers=-1", "--uncased", "--max-seq-length", "20"]
    options += ["--batch-size", "8", "--buckets", "8,16", "--format", "npz", "--dedupe"]
    result = CliRunner().invoke(app, ["plan", str(text), *options, "--json"])
    assert result.exit_code == 0, result.output
    printed = json.loads(result.stdout)
    lengths = [2 + len(text.split()) + text.count("jackson") for text in TEXTS]
    assert printed["examples"] == len(TEXTS)
    assert printed["example_lengths"] == [[n, lengths.count(n)] for n in sorted(set(lengths))]
    assert printed["tokens_lost"] == sum(max(0, length - 20) for length in lengths)
    assert printed["tokens"] == sum(min(20, length) for length in lengths)
    assert printed["output_bytes"] == printed["tokens"] * 8 * 4
    assert printed["outputs"] == [
        {"name": "layer_output_0", "level": "token", "width": 8, "dtype": "float32"}
        | {"bytes": printed["output_bytes"]}
    ]
    assert [bucket["length"] for bucket in printed["buckets"]] == [8, 16, 20]
    assert sum(bucket["rows"] for bucket in printed["buckets"]) == len(TEXTS)
    assert {bucket["batch_rows"] for bucket in printed["buckets"]} == {8}
    fillers = [(8 * b["batches"] - b["rows"]) * b["length"] for b in printed["buckets"]]
    assert [bucket["filler_tokens"] for bucket in printed["buckets"]] == fillers
    computed = [8 * bucket["batches"] * bucket["length"] for bucket in printed["buckets"]]
    assert [bucket["computed_tokens"] for bucket in printed["buckets"]] == computed
    assert printed["filler_share"] == sum(fillers) / printed["computed_tokens"] > 0
