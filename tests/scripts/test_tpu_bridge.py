"""The device step, lowered by TensorFlow's TPU bridge, in an environment with tensorflow-tpu."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def environment() -> Path:
    folder = Path(os.environ.get("BERT_FEATURES_TPU_VENV") or ROOT / ".venv-tpu")
    if not (folder / "bin" / "python").exists():
        pytest.skip("no environment with tensorflow-tpu is here: bash scripts/setup_tpu.sh")
    return folder


def check(environment: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", str(ROOT / "scripts" / "check_tpu_bridge.sh"), *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "BERT_FEATURES_TPU_VENV": str(environment)},
        cwd="/",
        timeout=600,
    )


def test_every_output_kind_has_tpu_kernels_and_float32_is_float32(environment):
    """At one length of rows; the script by itself takes all."""
    result = check(environment, "--buckets", "32")
    assert result.returncode == 0, result.stdout + result.stderr
    for kind in ("token, weighted", "word, max", "sequence, mean_max, no special tokens", "MiniLM"):
        assert kind in result.stdout
    assert "steps lowered by the TPU bridge" in result.stdout
    assert "tokenizes beside tensorflow-tpu 2.20.0" in result.stdout


def test_an_operation_without_a_kernel_is_named(environment):
    result = check(environment, "--self-test")
    assert result.returncode == 0, result.stdout + result.stderr
    for name in ("EagerPyFunc", "AsString"):
        assert f"with {name} in the step: no TPU kernel for {name}\n" in result.stdout
    assert "float32 products round their factors" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--buckets", "16,x"], 2, "'16,x'; allowed: lengths of 3 to 512"),
        (["--kinds", "paragraph"], 2, "no kind has 'paragraph' in its name"),
    ],
)
def test_what_it_refuses(environment, arguments, status, message):
    result = check(environment, *arguments)
    assert result.returncode == status
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_an_environment_that_is_not_there():
    result = check(Path("/nowhere"))
    assert result.returncode == 1
    assert result.stderr == "error: BERT_FEATURES_TPU_VENV is /nowhere, which has no bin/python\n"


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--runtime", "torch"], 2, "bash scripts/setup_tpu.sh --runtime jax"),
        (["--python"], 2, "bash scripts/setup_tpu.sh --python PATH"),
        (["--python", "/nowhere"], 1, "error: there is no /nowhere; pass --python the path of"),
        (
            ["--python", sys.executable, "--extras", "demo,tpus"],
            1,
            "has no extra tpus; it has demo",
        ),
    ],
)
def test_what_the_set_up_refuses_before_it_changes_anything(arguments, status, message):
    result = subprocess.run(
        ["bash", str(ROOT / "scripts" / "setup_tpu.sh"), *arguments],
        capture_output=True,
        text=True,
        cwd="/",
        timeout=600,
    )
    assert result.returncode == status
    assert message in result.stderr
