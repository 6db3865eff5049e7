"""scripts/check_tpu_bridge.sh and setup_tpu.sh: what they refuse before they change anything."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def script(name: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", str(ROOT / "scripts" / name), *arguments],
        capture_output=True,
        text=True,
        env=os.environ | environment,
        cwd="/",
        timeout=600,
    )


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--runtime", "torch"], 2, "bash scripts/setup_tpu.sh --runtime jax"),
        (["--python"], 2, "bash scripts/setup_tpu.sh --python PATH"),
        (["--python", "/nowhere"], 1, "error: there is no /nowhere; pass --python the path of"),
        (["--constraints", "/nowhere"], 1, "error: --constraints is /nowhere, which is not a file"),
    ],
)
def test_what_the_set_up_refuses_before_it_changes_anything(arguments, status, message):
    result = script("setup_tpu.sh", *arguments)
    assert result.returncode == status
    assert message in result.stderr
