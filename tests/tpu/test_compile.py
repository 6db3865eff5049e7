"""`bert-features compile`: the compiler's figures against arithmetic by hand; what it refuses."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bert_features.checkpoints.sources.published import find_published
from bert_features.checkpoints.weights.weight_names import parameter_count
from bert_features.cli import app
from bert_features.errors import ConfigError
from bert_features.tpu.compile import (
    DoesNotFitError,
    largest_rows,
    out_of_memory,
    prepare_process,
)


@pytest.mark.parametrize("package", ["jax", "libtpu"])
def test_the_extra_is_missing(monkeypatch, package):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == package else find(name)
    )
    result = CliRunner().invoke(app, ["compile", "--topology", "v5e:2x2"])
    assert result.exit_code == 1
    assert f"{package} is not installed. Install it with: pip install" in result.stderr
    assert "[tpu-compile]" in result.stderr


def test_a_process_in_which_keras_runs_already():
    import keras  # noqa: F401 - on TensorFlow, as all of these tests

    with pytest.raises(ConfigError, match="a process of its own"):
        prepare_process()


TINY = "--architecture=bert-tiny"
COMMANDS = {
    "figures": [
        *("--topology=v5e:2x2", TINY, "--layers=-1,-2", "--combine=sum", "--max-seq-length=32"),
        *("--buckets=32", "--batch=128", "--no-largest", "--json"),
    ],
    "terms": [
        *("--topology=v5e:1x1", TINY, "--kind=sparse", "--max-seq-length=32", "--buckets=32"),
        *("--batch=64", "--no-largest", "--json"),
    ],
    "too large": [
        *("--topology=v5e:1x1", TINY, "--layers=embeddings", "--max-seq-length=512"),
        *("--buckets=512", "--batch=60000"),
    ],
}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """The answers of `tests.tpu.compilations`, by name."""
    folder = tmp_path_factory.mktemp("architectures")

    def job(topology, lengths, *, size=128, **settings):
        """A block whose heads are 64 wide."""
        architecture = {
            "vocab_size": 1000,
            "hidden_size": size,
            "num_attention_heads": size // 64,
            "num_hidden_layers": 1,
            "intermediate_size": 4 * size,
            "max_position_embeddings": 512,
        }
        path = folder / f"{size}.json"
        path.write_text(json.dumps(architecture))
        settings |= {"layers": [-1], "buckets": lengths, "max_seq_length": lengths[-1]}
        return topology, {**settings, "config_file": str(path)}

    topology, settings = job("v5e:2x2", [512], packing=True)
    del settings["buckets"]
    every_pooling = {"level": "sequence", "pooling": "cls+max+mean+last"}
    programs = {"packed": (topology, settings | every_pooling)}
    programs["operations"] = job("v5e:2x2", [64, 256], size=384)
    result = subprocess.run(
        [sys.executable, "-m", "tests.tpu.compilations"],
        input=json.dumps({"commands": COMMANDS, "programs": programs}),
        env={k: v for k, v in os.environ.items() if k != "KERAS_BACKEND"},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


@pytest.mark.slow
@pytest.mark.release
def test_the_figures_of_bert_tiny(compiled):
    """Two blocks, 128 wide: what is compiled, against arithmetic by hand."""
    status, output, errors = compiled["figures"]
    assert status == 0, errors
    got = json.loads(output)
    (shape,) = got["shapes"]
    assert (got["chips"], got["precision"]) == (4, "bfloat16")
    assert (shape["rows"], shape["length"]) == (128, 32)
    parameters = parameter_count(find_published("bert-tiny").config, pooler=False)
    assert shape["weight_bytes"] == pytest.approx(2 * parameters, rel=0.01)  # tiles are padded
    tokens = 128 * 32
    assert shape["output_bytes"] == pytest.approx(tokens * 128 * 4, rel=0.01)
    assert shape["left_bytes_per_token"] == 128 * 4
    # Products: query, key, value, output; two of the feed-forward part; scores and their sums.
    products = 2 * 2 * (4 * 128 * 128 + 2 * 128 * 512 + 2 * 32 * 128)
    assert products < shape["flops_per_token"] < 1.25 * products  # and what is no product
    bounds = shape["bounds_not_measured"]
    assert bounds["intensity"] == shape["flops_per_token"] / shape["bytes_per_token"]
    assert bounds["roofline"] == pytest.approx(
        min(197e12, bounds["intensity"] * 819e9) / shape["flops_per_token"]
    )
    assert 0 < shape["hbm_bytes_per_token"] < shape["bytes_per_token"]
    assert shape["collectives"] == shape["host_callbacks"] == []


@pytest.mark.slow
@pytest.mark.release
def test_all_passes_of_a_loop_are_counted(compiled):
    """The head goes over the vocabulary in two parts."""
    status, output, errors = compiled["terms"]
    assert status == 0, errors
    (shape,) = json.loads(output)["shapes"]
    blocks = 2 * 2 * (4 * 128 * 128 + 2 * 128 * 512 + 2 * 32 * 128)
    products = blocks + 2 * 128 * (128 + 30522)
    assert products < shape["flops_per_token"] < 1.25 * products
    assert shape["hbm_bytes_per_token"] is None


@pytest.mark.slow
@pytest.mark.release
def test_a_batch_that_does_not_fit(compiled):
    status, _, errors = compiled["too large"]
    assert status == 2
    last = errors.strip().splitlines()[-1]
    assert "a batch of 60000 x 512 on each chip needs" in last
    assert "v5e:1x1 has 15.75 GiB" in last
    fits = int(last.rpartition("--batch ")[2])
    assert 1000 < fits < 60000
    # A lower bound by hand: the output alone has 128 float32 values for each token.
    assert fits * 512 * 128 * 4 < 15.75 * 2**30


@pytest.mark.slow
@pytest.mark.release
def test_what_must_not_be_in_a_step_is_found(compiled):
    """Collectives, and callbacks of the host."""
    (_, host) = compiled["steps"].pop("callback")
    assert host == ["recv", "send"]
    exchanged = [["all-reduce"], []]
    assert compiled["steps"] == {"pure": [[], []], "psum": exchanged, "mean": exchanged}


@pytest.mark.slow
@pytest.mark.release
def test_packed_rows(compiled):
    """Rows of 128 and 512: nothing is looked up by an index but words."""
    assert list(compiled["packed"]) == ["128", "512"]
    for program in compiled["packed"].values():
        assert (program["kernels"], program["exchanged"], program["by_index"]) == (0, [], 1)


@pytest.mark.slow
@pytest.mark.release
def test_what_the_operations_for_tpus_do_not_write(compiled):
    """The results between the two products of attention (long rows), and of the feed-forward part.

    64 tokens are two rows side by side: no array has rows of 64 in its lanes, half empty.
    """
    short, long = compiled["operations"]["64"], compiled["operations"]["256"]
    assert short["kernels"] == long["kernels"] == 0
    assert short["exchanged"] == long["exchanged"] == []
    assert "2,256,384" in short["arrays"]
    assert "2,256,1536" not in short["arrays"]
    assert "4,6,64,128" in short["arrays"]
    assert "8,6,64,64" not in short["arrays"]
    assert "8,256,384" in long["arrays"]
    assert "8,256,1536" not in long["arrays"]
    assert "8,6,256,256" not in long["arrays"]


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("required for HLO temporaries (32.00G) exceeds available HBM (15.75G).", (32, 15.75)),
        ("in memory space hbm. Used 15.76G of 15.75G hbm. Exceeded by 3.03M.", (15.76, 15.75)),
        ("INVALID_ARGUMENT: something else", None),
    ],
)
def test_what_the_compiler_says_of_memory(message, expected):
    got = out_of_memory(message)
    assert got == (expected and pytest.approx([x * 2**30 for x in expected]))


def chip(available, *, bytes_of_row, fixed=0):
    """The memory of a chip on which a batch needs `bytes_of_row` per row; and the rows tried."""
    tried = []

    def memory_of(rows):
        tried.append(rows)
        needed = fixed + rows * bytes_of_row
        if needed > available:
            raise DoesNotFitError(needed, available)
        return needed, available

    return memory_of, tried


@pytest.mark.parametrize("step", [1, 2, 8])
@pytest.mark.parametrize("known", [{"fits": 64}, {"too_many": 100_000}])
def test_the_largest_batch_is_found_to_two_percent(step, known):
    memory_of, tried = chip(1e9, bytes_of_row=1e6, fixed=1e8)  # 900 rows fit
    (rows,) = known.values()
    share = (1e8 + rows * 1e6) / 1e9
    found = largest_rows(memory_of, share=share, step=step, max_rows=1 << 20, **known)
    assert 0.98 * 900 - step <= found <= 900
    assert found % step == 0
    assert len(tried) <= 5


def test_nothing_fits():
    memory_of, tried = chip(1e6, bytes_of_row=1e7)
    assert largest_rows(memory_of, share=100.0, step=2, max_rows=1024, too_many=10) == 0
    assert set(tried) <= {2, 4, 6, 8}


def test_a_small_model_stops_at_the_limit():
    memory_of, tried = chip(1e12, bytes_of_row=1)
    assert largest_rows(memory_of, share=1e-9, step=1, max_rows=4096, fits=16) == 4096
    assert tried == [4096]
