"""configs/cloud/ray_tpu.yaml: Ray's own parser accepts it, and its commands are what exists."""

import configparser
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from bert_features.cli import app

ROOT = Path(__file__).parents[2]
CLUSTER = ROOT / "configs" / "cloud" / "ray_tpu.yaml"

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray"),
    pytest.mark.filterwarnings("ignore::FutureWarning:ray"),
]


@pytest.fixture
def cluster() -> dict[str, Any]:
    return yaml.safe_load(CLUSTER.read_text())


def prepare(cluster: dict[str, Any]) -> dict[str, Any]:
    """What `ray up` makes of a cluster file before it asks the cloud."""
    from ray.autoscaler._private.util import prepare_config, validate_config

    config = prepare_config(cluster)
    validate_config(config)
    return config


def test_ray_accepts_the_cluster(cluster: dict[str, Any]) -> None:
    config = prepare(cluster)
    assert config["head_node_type"] == "head"
    tpu = config["available_node_types"]["tpu"]
    assert (tpu["min_workers"], tpu["max_workers"]) == (0, config["max_workers"])


def test_the_command_line_accepts_the_call_of_extract(cluster: dict[str, Any]) -> None:
    text = re.sub(r"^# ?", "", CLUSTER.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    (call,) = re.findall(r'^ +ray exec .* "bert-features (.*)"$', text, re.MULTILINE)
    name, *arguments = shlex.split(call)
    command = typer.main.get_command(app).commands[name]
    given = command.make_context(name, arguments).params  # exits at an unknown option or value
    assert given["checkpoint"] == "bert-base-uncased"
    chips = cluster["available_node_types"]["tpu"]["resources"]["TPU"]
    assert given["ray_resources"] == f"TPU={chips}"
    assert given["ray_actors"] == f"1:{cluster['max_workers']}"
    assert (given["ray"], given["runtime"], given["device"]) == ("auto", "jax", "tpu")


def test_its_commands_are_shell_and_name_extras_that_exist(cluster: dict[str, Any]) -> None:
    commands = [line for name in cluster if name.endswith("_commands") for line in cluster[name]]
    for line in commands:
        subprocess.run(["bash", "-n", "-c", line], check=True)
    (extras,) = re.findall(r"--extras (\S+)", " ".join(commands))
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    assert set(extras.split(",")) <= set(setup["options.extras_require"])
