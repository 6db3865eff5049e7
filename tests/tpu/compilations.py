"""What tests/tpu/test_compile.py has compiled, in one process of its own.

Keras' backend and libtpu's environment belong to a process. The jobs come as JSON on standard
input: commands, and settings whose programs are wanted. The answers are on standard output.
"""

import json
import sys

from typer.testing import CliRunner

from bert_features.cli import app
from bert_features.tpu.compile import TpuCompiler, compile_for_tpu, make_mesh, prepare_process

prepare_process()

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
from jax.sharding import NamedSharding, PartitionSpec  # noqa: E402

from bert_features.config.extract_config import ExtractConfig  # noqa: E402
from bert_features.tpu import hlo  # noqa: E402
from bert_features.tpu.chips import parse_topology  # noqa: E402
from bert_features.tpu.job import plan_job  # noqa: E402


def command(*arguments):
    """The status and the two streams of `bert-features compile`."""
    result = CliRunner().invoke(app, ["compile", *arguments])
    return result.exit_code, result.stdout, result.stderr


def programs(topology, settings):
    """What is in the programs of a job, for 8 rows of each length.

    `arrays` are the dimensions of everything that is written.
    """
    job = plan_job(ExtractConfig.of(settings), topology, rows=8)
    compiler = TpuCompiler(job)
    found = {}
    for rows, length in job.shapes:
        if length in found:  # with fewer rows, at the end of a window
            continue
        text = compiler.compile(rows, length).as_text()
        written = [one for one in hlo.instructions(hlo.entry(text)) if one.opcode != "parameter"]
        found[length] = {
            "kernels": text.count('custom_call_target="tpu_custom_call"'),
            "by_index": text.count(" gather(") + text.count(" scatter("),
            "exchanged": hlo.collectives(text) + hlo.host_callbacks(text),
            "arrays": sorted({x["dims"] for one in written for x in hlo._ARRAY.finditer(one.type)}),
        }
    return found


def steps():
    """What is found in steps that wait for another chip or for the host, and in a pure one."""
    mesh = make_mesh(parse_topology("v5e:2x2"))
    everywhere, by_rows = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in [(), ("data",)])
    w = jax.ShapeDtypeStruct((128, 128), jnp.float32, sharding=everywhere)
    x = jax.ShapeDtypeStruct((32, 128), jnp.float32, sharding=by_rows)

    def psum(w, x):
        spec = PartitionSpec("data")
        return jax.shard_map(
            lambda x: x + jax.lax.psum(x, "data"), mesh=mesh, in_specs=spec, out_specs=spec
        )(x)

    def callback(w, x):
        return jax.pure_callback(lambda x: x, jax.ShapeDtypeStruct(x.shape, x.dtype), x @ w)

    found = {}
    for name, step in {
        "pure": lambda w, x: x @ w,
        "psum": psum,
        "mean": lambda w, x: x - x.mean(0),
        "callback": callback,
    }.items():
        text = compile_for_tpu(step, w, x, by_rows).as_text()
        found[name] = hlo.collectives(text), hlo.host_callbacks(text)
    return found


if __name__ == "__main__":
    jobs = json.load(sys.stdin)
    answers = {name: command(*arguments) for name, arguments in jobs["commands"].items()}
    answers |= {name: programs(*job) for name, job in jobs["programs"].items()}
    print(json.dumps(answers | {"steps": steps()}))
