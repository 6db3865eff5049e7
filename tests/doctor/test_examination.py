"""All checks together: on nothing, on a made-up TPU, on this environment, and on a broken one."""

import importlib.metadata
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from bert_features.doctor import examination
from bert_features.doctor.machine import Accelerators

ROOT = Path(__file__).parents[2]
# The interpreter of an environment made in the plain order, for the reproduction at the end:
#   python -m venv V && V/bin/pip install tensorflow-tpu==2.20.0 && V/bin/pip install --no-deps .
#   V/bin/pip install typer pydantic platformdirs
BROKEN_PYTHON = "BERT_FEATURES_TEST_PLAIN_ORDER_PYTHON"
ABORTS = "ConfigureDistributedTpuOp_DoWork not available in this library."


def test_nothing_is_installed(world, doctor):
    status, findings = doctor()
    assert status == 1
    for name in ("tensorflow", "keras"):
        assert findings[name]["found"].startswith(f"{name} is not installed")
    assert not [name for name in findings if name.startswith("import")]


@pytest.mark.parametrize(
    ("resolver", "status", "part"),
    [
        ("lambda tpu: tpu", "ok", "2 TPU:0 by TensorFlow"),
        ("None", "warning", "neither runtime can use (TensorFlow: TypeError: "),
    ],
)
def test_tensorflow_is_asked_for_the_tpu_of_this_machine(
    world, doctor, monkeypatch, resolver, status, part
):
    """The TPU is made up, and TensorFlow as well: what is shown is that it is asked."""
    chip = Accelerators(tpus=("/dev/accel0",))
    monkeypatch.setattr(examination, "find_accelerators", lambda: chip)
    world.install_tensorflow(
        "tensorflow-tpu",
        f"""
        from types import SimpleNamespace as N
        __version__ = "2.20.0"
        config = N(
            list_physical_devices=lambda kind: [],
            list_logical_devices=lambda kind: [N(name=f"{{kind}}:0")] * 2,
            experimental_connect_to_cluster=lambda resolver: None,
        )
        distribute = N(cluster_resolver=N(TPUClusterResolver={resolver}))
        tpu = N(experimental=N(initialize_tpu_system=lambda resolver: None))
        """,
    )
    _, findings = doctor()
    assert findings["tpu"]["status"] == status
    assert part in findings["tpu"]["found"]


def run(python, program, **variables):
    return subprocess.run(
        [python, *program],
        env=os.environ | {"PYTHONPATH": str(ROOT)} | variables,
        capture_output=True,
        text=True,
        timeout=600,
    )


@pytest.mark.slow
def test_this_environment_is_healthy_and_nothing_heavy_is_imported():
    program = """
        import dataclasses, json, sys
        from pathlib import Path
        from bert_features.doctor.examination import examine
        findings = examine(Path(sys.argv[1]))
        heavy = {"tensorflow", "jax", "keras"} & sys.modules.keys()
        print(json.dumps([sorted(heavy), [dataclasses.asdict(f) for f in findings]]))
    """
    result = run(sys.executable, ["-c", textwrap.dedent(program), str(ROOT)])
    heavy, findings = json.loads(result.stdout)
    assert heavy == []
    assert [f for f in findings if f["status"] == "broken"] == []
    found = {finding["check"]: finding["found"] for finding in findings}
    for package in ("tensorflow", "tensorflow_text", "keras"):
        assert found[f"import {package}"] == importlib.metadata.version(package)


@pytest.mark.skipif(
    not os.environ.get(BROKEN_PYTHON),
    reason=f"{BROKEN_PYTHON} names no Python with tensorflow-tpu 2.20.0 and the newest libtpu",
)
def test_the_plain_order_for_real():
    python = os.environ[BROKEN_PYTHON]
    # Without it nothing is loaded, and nothing aborts, while another process has libtpu.
    load = {"TPU_LOAD_LIBRARY": "1"}
    imported = run(python, ["-c", "import tensorflow"], **load)
    assert (imported.returncode, ABORTS in imported.stderr) == (-6, True)
    result = run(python, ["-m", "bert_features", "doctor", "--json"], **load)
    assert result.returncode == 1
    findings = {finding["check"]: finding for finding in json.loads(result.stdout)["findings"]}
    assert findings["libtpu"]["remedy"] == "pip install 'libtpu<0.0.31,>=0.0.14'"
    assert findings["import tensorflow"]["found"] == f"the process died of SIGABRT: {ABORTS}"
