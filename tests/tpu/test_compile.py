"""`bert-features compile`: the compiler's figures against arithmetic by hand; what it must refuse.

The compiler runs in processes of their own: Keras' backend and libtpu's environment belong to a
process.
"""

import importlib.util
import json
import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from bert_features.checkpoints.published import find_published
from bert_features.checkpoints.weight_names import parameter_count
from bert_features.cli import app
from bert_features.errors import ConfigError, MissingExtraError
from bert_features.tpu.chips import CHIPS
from bert_features.tpu.compile import prepare_process

needs_compiler = pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None or importlib.util.find_spec("jax") is None,
    reason="no TPU compiler: pip install '.[tpu-compile]'",
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


@needs_compiler
def test_a_process_in_which_keras_runs_already():
    import keras  # noqa: F401 - on TensorFlow, as all of these tests

    with pytest.raises(ConfigError, match="needs a process of its own"):
        prepare_process()
    assert issubclass(MissingExtraError, ImportError)


def test_an_unknown_topology_on_the_command_line():
    result = CliRunner().invoke(app, ["compile", "--topology", "v9:2x2"])
    assert result.exit_code == 2
    assert "unknown topology 'v9:2x2'; accepted: v2:2x2" in result.stderr


def run(*arguments):
    environment = {k: v for k, v in os.environ.items() if k != "KERAS_BACKEND"}
    return subprocess.run(
        [sys.executable, *arguments],
        env=environment | {"TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def compile_json(*arguments):
    result = run("-m", "bert_features", "compile", "--json", *arguments)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


TINY = ("--architecture", "bert-tiny", "--layers=-1,-2", "--combine", "sum", "--max-seq-length")


@pytest.mark.slow
@needs_compiler
def test_the_figures_of_bert_tiny():
    """Two blocks, 128 wide: what is compiled, against arithmetic by hand."""
    got = compile_json("--topology", "v5e:2x2", *TINY, "128", "--buckets", "128", "--no-largest")
    (shape,) = got["shapes"]
    assert (got["chips"], got["precision"]) == (4, "bfloat16")
    assert (shape["rows"], shape["length"]) == (128, 128)
    parameters = parameter_count(find_published("bert-tiny").config, pooler=False)
    assert shape["weight_bytes"] == pytest.approx(2 * parameters, rel=0.01)  # tiles are padded
    tokens = 128 * 128
    assert shape["output_bytes"] == pytest.approx(tokens * 128 * 4, rel=0.01)
    assert shape["left_bytes_per_token"] == 128 * 4
    # Products: query, key, value, output; two of the feed-forward part; scores and their sums.
    products = 2 * 2 * (4 * 128 * 128 + 2 * 128 * 512 + 2 * 128 * 128)
    assert products < shape["flops_per_token"] < 1.25 * products  # and what is no product
    bounds = shape["bounds_not_measured"]
    assert bounds["intensity"] == shape["flops_per_token"] / shape["bytes_per_token"]
    assert bounds["roofline"] == pytest.approx(
        min(197e12, bounds["intensity"] * 819e9) / shape["flops_per_token"]
    )
    assert 0 < shape["hbm_bytes_per_token"] < shape["bytes_per_token"]
    assert shape["collectives"] == shape["host_callbacks"] == []


@pytest.mark.slow
@needs_compiler
def test_a_batch_that_does_not_fit():
    command = ("-m", "bert_features", "compile", "--topology", "v5e:1x1", *TINY, "16")
    result = run(*command, "--buckets", "16", "--batch", "3000000")
    assert result.returncode == 2
    last = result.stderr.strip().splitlines()[-1]
    assert "a batch of 3000000 x 16 on each chip needs" in last
    assert "v5e:1x1 has 15.75 GiB" in last
    fits = int(last.rpartition("--batch ")[2])
    assert 1000 < fits < 3000000
    # A lower bound by hand: the output alone has 128 float32 values for each token.
    assert fits * 16 * 128 * 4 < 15.75 * 2**30


STEPS = """
from bert_features.tpu.compile import compile_for_tpu, make_mesh, prepare_process

prepare_process()
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

from bert_features.tpu.chips import CHIPS, parse_topology
from bert_features.tpu.hlo import collectives, host_callbacks

mesh = make_mesh(parse_topology("v5e:2x2"))
everywhere, by_rows = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in [(), ("data",)])
w = jax.ShapeDtypeStruct((128, 128), jnp.float32, sharding=everywhere)
x = jax.ShapeDtypeStruct((32, 128), jnp.float32, sharding=by_rows)


def psum(w, x):
    spec = PartitionSpec("data")
    sums = jax.shard_map(lambda x: x + jax.lax.psum(x, "data"), mesh=mesh, in_specs=spec,
                         out_specs=spec)
    return sums(x)


steps = {
    "pure": lambda w, x: x @ w,
    "psum": psum,
    "mean": lambda w, x: x - x.mean(0),
    "callback": lambda w, x: jax.pure_callback(lambda x: x, jax.ShapeDtypeStruct(x.shape, x.dtype),
                                               x @ w),
}
for name, step in steps.items():
    text = compile_for_tpu(step, w, x, by_rows).as_text()
    print(name, collectives(text), host_callbacks(text))
for name, chip in CHIPS.items():
    topology = parse_topology(f"{name}:{chip.example}")
    print(name, make_mesh(topology).size == topology.chips * chip.devices)
"""


@needs_compiler
def test_what_must_not_be_in_a_step_is_found():
    """And the compiler knows every chip of the table, with its number of devices."""
    result = run("-c", STEPS)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[:3] == ["pure [] []", "psum ['all-reduce'] []", "mean ['all-reduce'] []"]
    assert lines[3].startswith("callback ")
    assert lines[3].endswith("['recv', 'send']")
    assert lines[4:] == [f"{name} True" for name in CHIPS]


PROGRAMS = """
import json
import sys

from bert_features.tpu.compile import TpuCompiler, prepare_process

prepare_process()
from bert_features.config.extract_config import ExtractConfig
from bert_features.tpu import hlo
from bert_features.tpu.job import plan_job

job = plan_job(ExtractConfig.of(json.loads(sys.argv[2])), sys.argv[1], rows=8)
compiler = TpuCompiler(job)
for rows, length in job.shapes:
    text = compiler.compile(rows, length).as_text()
    arrays = {x["dims"] for one in hlo.instructions(hlo.entry(text))
              for x in hlo._ARRAY.finditer(one.type) if one.opcode != "parameter"}
    print(json.dumps({
        "length": length,
        "kernels": text.count('custom_call_target="tpu_custom_call"'),
        "exchanged": hlo.collectives(text) + hlo.host_callbacks(text),
        "arrays": sorted(arrays),
    }))
"""


def programs(tmp_path, topology, lengths, *, size=128, **settings):
    """What is in the programs of an encoder of two blocks, for eight rows of each length.

    Heads are 64 wide. `arrays` are the dimensions of everything that is written.
    """
    architecture = {
        "vocab_size": 1000,
        "hidden_size": size,
        "num_attention_heads": size // 64,
        "num_hidden_layers": 2,
        "intermediate_size": 4 * size,
        "max_position_embeddings": 512,
    }
    path = tmp_path / "config.json"
    path.write_text(json.dumps(architecture))
    settings |= {"layers": [-1], "buckets": lengths, "max_seq_length": lengths[-1]}
    result = run("-c", PROGRAMS, topology, json.dumps(settings | {"config_file": str(path)}))
    assert result.returncode == 0, result.stderr
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert [one["length"] for one in found] == lengths
    return found


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize(
    ("topology", "precision", "lengths"),
    [
        ("v5e:2x2", "bfloat16", [40, 512]),
        ("v6e:2x2", "bfloat16", [40, 512]),
        ("v5e:2x2", "float32", [16, 200]),
    ],
)
def test_the_pallas_kernel_gets_its_share_of_the_rows(tmp_path, topology, precision, lengths):
    """One kernel for each block, and nothing that waits for another chip."""
    for one in programs(tmp_path, topology, lengths, attention="pallas", precision=precision):
        assert (one["kernels"], one["exchanged"]) == (2, [])
        assert not [
            dims for dims in one["arrays"] if dims.endswith("{0},{0}".format(one["length"]))
        ]


@pytest.mark.slow
@needs_compiler
def test_what_the_operations_for_tpus_do_not_write(tmp_path):
    """The results between the two products of attention (long rows), and of the feed-forward part.

    64 tokens are two rows side by side: no array has rows of 64 in its lanes, half empty.
    """
    short, long = programs(tmp_path, "v5e:2x2", [64, 512], size=768)
    assert short["kernels"] == long["kernels"] == 0
    assert short["exchanged"] == long["exchanged"] == []
    assert "2,256,768" in short["arrays"]
    assert "2,256,3072" not in short["arrays"]
    assert "4,12,64,128" in short["arrays"]
    assert "8,12,64,64" not in short["arrays"]
    assert "8,512,768" in long["arrays"]
    assert "8,512,3072" not in long["arrays"]
    assert "8,12,512,512" not in long["arrays"]
