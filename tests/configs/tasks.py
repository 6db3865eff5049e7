"""The tasks of configs/cloud/ for SkyPilot, and their parts."""

import re
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[2]
TASK = ROOT / "configs" / "cloud" / "tpu.yaml"
FOLDER_TASK = TASK.with_name("tpu_folder.yaml")


def block(name: str, task: Path = TASK) -> str:
    """The commands of `setup` or `run`."""
    match = re.search(rf"^{name}: \|\n((?:  .*\n|\n)+)", task.read_text(), re.MULTILINE)
    assert match
    return textwrap.dedent(match[1]).rstrip("\n") + "\n"


def default_envs(task: Path = TASK) -> dict[str, str]:
    match = re.search(r"^envs:\n((?:  .*\n)+)", task.read_text(), re.MULTILINE)
    assert match
    return dict(re.findall(r"^  ([A-Z]+): (\S+)$", match[1], re.MULTILINE))
