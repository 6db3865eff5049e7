"""configs/cloud/gke.yaml: its command computes one folder on several machines.

`scripts/check_cloud.sh gke` shows the job to the schemas of Kubernetes.
"""

import math
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from bert_features.corpus.status import read_status
from tests.cli.command_line import program
from tests.corpus.runs import shards_of

TEXT = (Path(__file__).resolve().parents[2] / "configs" / "cloud" / "gke.yaml").read_text()
SPEC = yaml.safe_load(TEXT)["spec"]
POD = SPEC["template"]["spec"]
(CONTAINER,) = POD["containers"]
ENV = {each["name"]: each["value"] for each in CONTAINER["env"]}
# No TPU here; and shards for each machine.
HERE = ["--runtime", "tensorflow", "--device", "cpu", "--shard-examples", "2", "--layers=-1"]


def run_machine(index, **env):
    """The exit status of the command of one machine, as Kubernetes fills it in; and its errors."""
    values = ENV | {"JOB_COMPLETION_INDEX": str(index)} | env
    name, *line = (
        re.sub(r"\$\((\w+)\)", lambda match: values[match[1]], each)
        for each in CONTAINER["command"]
    )
    assert name == "bert-features"
    assert line[-4:] == ["--runtime", "jax", "--device", "tpu"]
    machine = program(*line[:-4], *HERE)
    _, errors = machine.communicate()
    return machine.returncode, errors


@pytest.mark.slow
def test_machines_of_which_one_is_late_write_the_folder_of_one(tmp_path, toy):
    (tmp_path / "in").mkdir()
    for name in ("a.txt", "b with space.txt", "c.txt"):
        (tmp_path / "in" / name).write_text("the is it\nno\n\na b\nthis\n")
    env = {"INPUT": f"{tmp_path}/in/", "OUTPUT": f"{tmp_path}/out/", "CHECKPOINT": toy}
    with ThreadPoolExecutor(3) as pool:
        ends = list(pool.map(lambda index: run_machine(index, **env), range(3)))
    assert [status for status, _ in ends] == [0, 0, 0], ends
    assert read_status(tmp_path / "out").left == (0, 0, 0, 2)
    # A file that arrives before the last one starts: it is refused, as wrong settings are.
    (tmp_path / "in" / "d.txt").write_text("is\n")
    status, errors = run_machine(3, **env)
    assert (status, "now added: " in errors) == (2, True)
    (tmp_path / "in" / "d.txt").unlink()
    assert run_machine(4, **env)[0] == 2  # of more machines than HOSTS
    assert run_machine(3, **env)[0] == 0
    assert run_machine(0, **env | {"HOSTS": "1", "OUTPUT": f"{tmp_path}/one/"})[0] == 0
    assert shards_of(tmp_path / "out") == shards_of(tmp_path / "one")


def test_its_numbers_agree() -> None:
    assert ENV["HOSTS"] == str(SPEC["completions"])
    assert CONTAINER["resources"]["requests"] == CONTAINER["resources"]["limits"]
    (rule,) = [rule for rule in SPEC["podFailurePolicy"]["rules"] if "onExitCodes" in rule]
    assert rule["onExitCodes"]["containerName"] == CONTAINER["name"]
    assert rule["onExitCodes"]["values"] == [2]
    rows = re.findall(r"^#   (?:v|TPU)\d\S* +\S+-(\d+)t +(\S+) +(\S+) +(\d+)$", TEXT, re.MULTILINE)
    assert len(rows) == 3
    for in_name, _, topology, count in rows:
        assert in_name == count == str(math.prod(map(int, topology.split("x"))))
    selector = [
        POD["nodeSelector"][f"cloud.google.com/gke-tpu-{k}"] for k in ("accelerator", "topology")
    ]
    assert [*selector, str(CONTAINER["resources"]["limits"]["google.com/tpu"])] == list(rows[0][1:])
