"""`bert-features compile`: the compiler's figures against arithmetic by hand; what it must refuse.

The compiler runs in processes of their own: Keras' backend and libtpu's environment are a
process's.
"""

import importlib.util
import json
import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from bert_features.bert_config import BertConfig
from bert_features.cli import app
from bert_features.config import ExtractConfig
from bert_features.errors import ConfigError, MissingExtraError
from bert_features.published import find_published
from bert_features.tpu_chips import CHIPS, parse_topology
from bert_features.tpu_compile import out_of_memory, prepare_process
from bert_features.tpu_hlo import collectives, fusions, hbm_bytes, host_callbacks
from bert_features.tpu_job import plan_job
from bert_features.tpu_report import Bounds, ShapeReport
from bert_features.weight_names import parameter_count

needs_compiler = pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None or importlib.util.find_spec("jax") is None,
    reason="no TPU compiler: pip install 'bert_features[tpu-compile]'",
)

PROGRAM = """HloModule jit_step

%fused (p.1: bf16[64,128]) -> f32[64,128] {
  %p.1 = bf16[64,128]{1,0:T(8,128)(2,1)} parameter(0)
  ROOT %c.1 = f32[64,128]{1,0:T(8,128)} convert(%p.1)
}

ENTRY %main (x: bf16[64,128], w: f32[3,5]) -> f32[64,128] {
  %x = bf16[64,128]{1,0:T(8,128)(2,1)} parameter(0)
  %w = f32[3,5]{1,0:T(4,128)} parameter(1)
  %start = (bf16[64,128]{1,0:T(8,128)(2,1)S(1)}, bf16[64,128]{1,0:T(8,128)(2,1)}, u32[]{:S(2)}) \
copy-start(%x)
  %near = bf16[64,128]{1,0:T(8,128)(2,1)S(1)} copy-done(%start)
  %one = f32[64,128]{1,0:T(8,128)S(1)} fusion(%near, %w), kind=kLoop, calls=%fused
  %two = (f32[64,128]{1,0:T(8,128)}, f32[]{:T(128)S(1)}) fusion(%one), kind=kLoop, calls=%fused
  ROOT %out = f32[64,128]{1,0:T(8,128)} get-tuple-element(%two), index=0
}
"""


def test_bytes_of_hbm_by_hand():
    # copy: 64 * 128 bfloat16 read; %one: w, float32 padded from [3, 5] to [4, 128]; %two: written.
    assert hbm_bytes(PROGRAM) == 64 * 128 * 2 + 4 * 128 * 4 + 64 * 128 * 4
    assert fusions(PROGRAM) == 2
    assert collectives(PROGRAM) == host_callbacks(PROGRAM) == []


def test_bytes_of_a_layout_with_the_batch_last():
    # In memory [3, 200, 70]: the last two are padded to 8 and 128.
    line = "  %y = bf16[70,3,200]{0,2,1:T(8,128)(2,1)} fusion(), kind=kLoop, calls=%fused"
    assert hbm_bytes(f"\nENTRY %m () -> x {{\n{line}\n}}\n") == 3 * 200 * 128 * 2


def test_of_loops_nothing_is_told():
    line = "  %y = f32[8,128]{1,0:T(8,128)} while(%x), condition=%c, body=%b"
    assert hbm_bytes(f"\nENTRY %m () -> x {{\n{line}\n}}\n") is None


def report(**changes):
    figures = {
        "length": 128,
        "rows": 4,
        "compile_seconds": 1.0,
        "weight_bytes": 10,
        "temporary_bytes": 10,
        "output_bytes": 10,
        "largest_rows": None,
        "flops_per_token": 2e8,
        "bytes_per_token": 5e5,
        "hbm_bytes_per_token": 1e5,
        "kernels": 3,
        "left_bytes_per_token": 3200.0,
        "collectives": (),
        "host_callbacks": (),
    }
    return ShapeReport(**figures | changes)


@pytest.mark.parametrize(
    ("bytes_per_token", "precision", "roofline"),
    [
        (5e5, "bfloat16", 197e12 / 2e8),  # 400 flop/byte, above the chip's 241
        (1e6, "bfloat16", 819e9 / 1e6),  # 200, below it
        (1e6, "float32", 197e12 / 6 / 2e8),  # a sixth of the peak
    ],
)
def test_roofline(bytes_per_token, precision, roofline):
    bounds = Bounds.of(
        report(bytes_per_token=bytes_per_token), parse_topology("v5e:2x2"), precision
    )
    assert bounds.roofline == pytest.approx(roofline)
    peak = 197e12 if precision == "bfloat16" else 197e12 / 6
    assert bounds.roofline * 2e8 == pytest.approx(min(peak, bounds.intensity * 819e9))
    assert bounds.hbm_roofline == pytest.approx(min(peak / 2e8, 819e9 / 1e5))
    assert bounds.pcie == pytest.approx(16e9 / 3200)


def test_without_a_count_of_hbm_there_is_no_bound_by_it():
    bounds = Bounds.of(report(hbm_bytes_per_token=None), parse_topology("v5e:2x2"), "bfloat16")
    assert bounds.hbm_roofline is None


def test_the_chip_is_bound_by_arithmetic_below_740_kb():
    """What BERT-base has on a v5e: 178 Mflop/token * 819 / 197,000."""
    topology = parse_topology("v5e:2x2")
    for kilobytes, by_arithmetic in [(735, True), (745, False)]:
        bounds = Bounds.of(
            report(flops_per_token=178e6, bytes_per_token=kilobytes * 1e3), topology, "bfloat16"
        )
        assert (bounds.arithmetic < bounds.memory) is by_arithmetic


@pytest.mark.parametrize("name", ["v9:2x2", "v5e", "v5e:0x2", "v5e:2", "v5e:2x2x2x2", "", "cpu"])
def test_unknown_topologies(name):
    with pytest.raises(ConfigError, match=r"unknown topology .* accepted: v2:2x2, .*tpu7x:2x2x1"):
        parse_topology(name)


def test_topologies():
    topology = parse_topology("v4:2x2x4")
    assert (topology.chips, topology.compiler_name) == (16, "v4:2x2x4")
    assert parse_topology("v4i:2x2").compiler_name == "v4 lite:2x2"


def plan(settings, **options):
    settings = ExtractConfig.of({"layers": [-1], **settings})
    return plan_job(settings, "v2:2x2", architecture="bert-tiny", **options)


def test_shapes_are_those_of_a_run():
    assert plan({"max_seq_length": 64}).shapes == ((2048, 16), (1024, 32), (512, 64))
    fixed = plan({"max_seq_length": 64, "buckets": [32], "batch_size": 64})
    assert fixed.shapes == ((16, 32), (16, 64))
    assert plan({"max_seq_length": 64, "buckets": [32]}, rows=6).shapes == ((6, 32), (6, 64))


@pytest.mark.parametrize(
    ("settings", "rows", "message"),
    [
        ({"batch_size": 20}, None, "20 rows are not a multiple of the 8 devices .* take 24"),
        ({}, 3, "12 rows are not a multiple of the 8 devices"),
        ({"batch_size": 16}, 2, "--batch stands beside --batch-size"),
        ({"max_seq_length": 600}, None, "max_seq_length is 600; bert-tiny has 512 positions"),
    ],
)
def test_shapes_that_cannot_be(settings, rows, message):
    with pytest.raises(ConfigError, match=message):
        plan(settings, rows=rows)


def test_a_config_file_needs_no_weights(tmp_path):
    path = tmp_path / "bert_config.json"
    path.write_text(json.dumps({"vocab_size": 50, "hidden_size": 24, "num_hidden_layers": 4}))
    job = plan_job(ExtractConfig.of({"config_file": str(path)}), "v5e:2x2")
    assert job.config == BertConfig(vocab_size=50, hidden_size=24, num_hidden_layers=4)


def test_outputs_are_those_of_the_device_step():
    """Sequences of windows are averaged, then scaled and cast, outside of it."""
    wanted = {"level": "sequence", "normalize": True, "dtype": "float16"}
    (whole,) = plan(wanted).outputs
    assert (whole.normalize, whole.dtype) == (True, "float16")
    (part,) = plan(wanted | {"long_text": "window"}).outputs
    assert (part.normalize, part.dtype) == (False, "float32")


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


@pytest.mark.parametrize("package", ["jax", "libtpu"])
def test_the_extra_is_missing(monkeypatch, package):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == package else find(name)
    )
    result = CliRunner().invoke(app, ["compile", "--topology", "v5e:2x2"])
    assert result.exit_code == 1
    assert f"{package} is not installed. Install it with: pip install" in result.stderr
    assert "bert_features[tpu-compile]" in result.stderr


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
    # So much at least is true by hand: the output alone is of 128 float32 for each token.
    assert fits * 16 * 128 * 4 < 15.75 * 2**30


STEPS = """
from bert_features.tpu_compile import compile_for_tpu, make_mesh, prepare_process

prepare_process()
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

from bert_features.tpu_chips import CHIPS, parse_topology
from bert_features.tpu_hlo import collectives, host_callbacks

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
    """And every chip of the table is one that the compiler knows, with so many devices."""
    result = run("-c", STEPS)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[:3] == ["pure [] []", "psum ['all-reduce'] []", "mean ['all-reduce'] []"]
    assert lines[3].startswith("callback ")
    assert lines[3].endswith("['recv', 'send']")
    assert lines[4:] == [f"{name} True" for name in CHIPS]
