"""What tests/runtime/test_jax.py runs in a process of its own, where Keras runs on JAX.

The job comes as JSON on standard input; the results go to the folder it names.
"""

import importlib.metadata
import json
import os
import sys
from pathlib import Path
from unittest.mock import patch

import jax
import keras
import numpy as np
import pytest

from bert_features import FeatureExtractor
from bert_features.config.output_specs import plan_outputs
from bert_features.config.outputs import OutputConfig
from bert_features.encoder.step import DeviceStep
from bert_features.errors import ConfigError
from bert_features.machine import jax_on_cpus
from bert_features.runtime import jax as runtime_of_jax
from bert_features.runtime.jax import JaxRuntime
from tests import families
from tests.check.number_reports import check_toy, leave_checks, statuses
from tests.cli.command_line import run
from tests.encoder import gradients
from tests.layers import saving, training
from tests.toy import TOY, random_batch, random_weights


def features(job):
    """The features of texts, under `<number of the text>/<name of the output>`."""
    extractor = FeatureExtractor.from_checkpoint(job["checkpoint"], **job["settings"])
    return {
        f"{i}/{name}": np.asarray(values, np.float32)
        for i, record in enumerate(extractor(job["texts"]))
        for name, values in record.features.items()
    }


def step():
    """What becomes of the weights, of a batch's rows and of traces, on all devices."""
    outputs = plan_outputs([OutputConfig.of({"name": "x", "layers": [-1]})], TOY)
    model_fn = DeviceStep(TOY, random_weights(TOY), outputs)
    runtime = JaxRuntime("cpu")
    compiled = runtime.compile(model_fn.step, model_fn.weights)
    lengths = [5, 3, 4, 2, 6, 1, 2, 3]
    batch = random_batch(TOY, lengths, 6)
    started = [compiled(batch) for _ in range(2)]
    arrays = {f"x{i}": results()["x"] for i, results in enumerate(started)}
    done = started[-1].done()
    compiled(random_batch(TOY, [5] * 16, 6))()
    weights = [variable.value for variable in model_fn.weights]
    try:
        compiled(random_batch(TOY, [5] * 12, 6))
        refusal = ""
    except Exception as error:
        refusal = f"{type(error).__name__}: {error}"
    facts = {
        "devices": runtime.devices.count,
        "process": runtime.process,
        "numbered": _numbered(),
        "any_shape": runtime.any_shape,
        "described": runtime.devices.describe(),
        "done": done,
        "traces": compiled.traces,
        "refusal": refusal,
        "placed_on": sorted({len(value.sharding.device_set) for value in weights}),
        "replicated": all(value.sharding.is_fully_replicated for value in weights),
        # The model has no second copy.
        "same": all(a is b for a, b in zip(compiled._weights, weights, strict=True)),
        "numbers_right": [_probed(wide=False), _probed(wide=True)],
        "numbers_refused": _refusals(),
        "fusions": _compiled(compiled, batch).count("ynn_fusion"),
        "timed": _timed(runtime),
        "kept": _kept(),
        "backend": keras.backend.backend(),
        "visible_to_tensorflow": _accelerators_of_tensorflow(),
        "rounded_products": _rounded_products(compiled, batch),
        "rounded_products_of_bfloat16": _rounded_products(_in_bfloat16(runtime, outputs), batch),
    }
    return arrays, facts


def _probed(*, wide):
    """Whether the numbers are found right, with JAX_ENABLE_X64=1 and without."""
    device = jax.devices()[0]
    jax.config.update("jax_enable_x64", wide)
    try:
        return jax_on_cpus.computes_right(device, jax_on_cpus.compiler_options(device))
    finally:
        jax.config.update("jax_enable_x64", False)


def _numbered():
    """The place among the processes where the environment gives each a number."""
    numbers = {"JAX_NUM_PROCESSES": "2", "JAX_PROCESS_ID": "1"}
    os.environ.update(numbers)
    place = JaxRuntime("cpu").process
    for name in numbers:
        del os.environ[name]
    return place


def _refusals():
    """What is said of a jaxlib that is wrong with any options, and of one that is known to be."""
    messages = []
    for change in (
        patch.object(jax_on_cpus, "computes_right", lambda device, options: False),
        patch.object(jax_on_cpus, "_REFUSED", (importlib.metadata.version("jaxlib"),)),
    ):
        try:
            jax_on_cpus.compiler_options.cache_clear()
            with change:
                JaxRuntime("cpu")
        except ConfigError as error:
            messages.append(str(error))
    return messages


def _compiled(compiled, batch):
    with runtime_of_jax.traced_for_jax("cpu"):
        return compiled._run.lower(compiled._weights, batch).compile().as_text()


def _in_bfloat16(runtime, outputs):
    model = DeviceStep(TOY, random_weights(TOY), outputs, precision="bfloat16")
    return runtime.compile(model.step, model.weights)


def _rounded_products(compiled, batch):
    """How many products of the step there are, and of how many the factors may be rounded."""
    text = compiled._run.lower(compiled._weights, batch).as_text()
    products = [line for line in text.splitlines() if "stablehlo.dot_general" in line]
    exact = [line for line in products if "precision = [HIGHEST, HIGHEST]" in line]
    return len(products), len(products) - len(exact)


def _timed(runtime):
    """The dtypes and one value of the products that the runtime would time."""
    measure = runtime_of_jax.slowdown
    results = []

    def products(product, convert):
        arrays = np.full((2, 3), 2.0, np.float32), np.full((3, 2), 0.5, np.float32)
        for dtype in ("float32", "bfloat16"):
            result = product(*(convert(array, dtype) for array in arrays))
            results.append([str(result.dtype), float(result[0, 0])])
        return 0.0

    runtime_of_jax.slowdown = products
    runtime.bfloat16_slowdown()
    runtime_of_jax.slowdown = measure
    return results


def _kept():
    """Where compiled steps are kept: by default, and where that was chosen before."""
    chosen = []
    for before in (None, "/chosen"):
        jax.config.update("jax_compilation_cache_dir", before)
        runtime_of_jax._keep_compiled_steps()
        chosen.append(jax.config.jax_compilation_cache_dir)
    jax.config.update("jax_compilation_cache_dir", None)
    return chosen


def _accelerators_of_tensorflow():
    import tensorflow as tf

    return len(tf.config.list_logical_devices("GPU") + tf.config.list_logical_devices("TPU"))


def refused(folder, cases):
    """The status and the errors of runs that are refused."""
    results = []
    for options, changes in cases:
        with patch.dict(os.environ, changes):
            paths = (folder / "in.txt", "-o", folder / "out.jsonl")
            result = run("extract", *paths, "--runtime=jax", *options)
        results.append((result.exit_code, result.stderr))
    return results


def verified(folder):
    """What numbers are right of a small checkpoint of each family, in one shape."""
    found = {}
    for name in families.RELATIVES:
        with pytest.MonkeyPatch.context() as monkeypatch:
            leave_checks(monkeypatch, "reference")
            findings = check_toy(
                families.folder(name, folder), runtime="jax", device="cpu", buckets=[24]
            )
        found[name] = [findings[0].details["runtime"], *statuses(findings)["ok"]]
    return found


def main():
    wanted = json.load(sys.stdin)
    folder = Path(wanted["folder"])
    facts = {"refused": refused(folder, wanted["refused"])}
    if wanted["of_release"]:
        facts["verified"] = verified(folder)
        facts["saved"] = {
            kind: saving.differences(kind, saving.IDS, folder)
            for kind in ("subclassed", "functional", "subclassed around custom")
        }
    for name, job in wanted["jobs"].items():
        np.savez(folder / f"{name}.npz", **features(job))
    np.savez(folder / "gradients.npz", *gradients.gradients())
    facts["recomputed"] = [
        [loss, kernel.tolist()]
        for loss, kernel in map(training.recomputed, [["layer_0"], ["mine"], []])
    ]
    arrays, of_step = step()
    np.savez(folder / "step.npz", **arrays)
    (folder / "facts.json").write_text(json.dumps(facts | of_step))


if __name__ == "__main__":
    main()
