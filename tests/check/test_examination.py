"""All checks together: on nothing, on a made-up TPU, and on this environment."""

import importlib.metadata
import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from bert_features.check import examination
from bert_features.check.machine import Accelerators
from tests.cli.command_line import run

ROOT = Path(__file__).parents[2]


def test_nothing_is_installed(world, doctor):
    status, findings = doctor()
    assert status == 1
    for name in ("tensorflow", "keras"):
        assert findings[name]["found"].startswith(f"{name} is not installed")
    assert not [name for name in findings if name.startswith("import")]


def test_the_table_is_a_line_for_each_check_and_one_for_each_command(world):
    world.install("bert_features", "0.1.0", requires=["keras>=3.10"]).install("keras", "2.15.0")
    result = run("doctor")
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    place = next(i for i, line in enumerate(lines) if line.split()[1] == "keras")
    assert re.fullmatch(r"broken +keras +keras is 2\.15\.0 \(required: >=3\.10\)", lines[place])
    assert lines[place + 1].strip() == "pip install 'keras>=3.10'"
    assert re.fullmatch(r"\d+ broken, \d+ warnings", lines[-1])


@pytest.mark.parametrize(
    ("resolver", "status", "part"),
    [
        ("lambda tpu: N(cluster_spec=lambda: N(as_dict=dict))", "ok", "2 TPU:0 by TensorFlow"),
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


@pytest.mark.slow
@pytest.mark.release
def test_this_environment_is_healthy_and_nothing_heavy_is_imported():
    program = """
        import dataclasses, json, sys
        from pathlib import Path
        from bert_features.cli.doctor import examine
        findings = examine(Path(sys.argv[1]))
        heavy = {"tensorflow", "jax", "keras"} & sys.modules.keys()
        print(json.dumps([sorted(heavy), [dataclasses.asdict(f) for f in findings]]))
    """
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), str(ROOT)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    heavy, findings = json.loads(result.stdout)
    assert heavy == []
    assert [f for f in findings if f["status"] == "broken"] == []
    found = {finding["check"]: finding["found"] for finding in findings}
    for package in ("tensorflow", "tensorflow_text", "keras"):
        assert found[f"import {package}"] == importlib.metadata.version(package)
