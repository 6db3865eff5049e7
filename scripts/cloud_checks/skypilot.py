"""Checks that SkyPilot accepts the task of a folder and refuses broken copies.

    HOME=EMPTY_FOLDER python skypilot.py configs/cloud

It runs in SkyPilot's environment, which scripts/check_cloud.sh makes, and writes to HOME the
catalog of machines that SkyPilot would download.
"""

import re
import sys
from pathlib import Path
from typing import Any

import sky
import yaml
from sky import catalog

ENV = {"BUCKET": "gs://my-bucket"}
HEADER = (
    "InstanceType,vCPUs,MemoryGiB,AcceleratorName,AcceleratorCount,GpuInfo,"
    "Region,AvailabilityZone,Price,SpotPrice"
)
# What is wrong: the text, what stands there instead, a part of SkyPilot's answer.
BROKEN = {
    "unknown field": ("workdir: .", "workdirs: .", "did you mean 'workdir'"),
    "unknown resource": ("use_spot: true", "spot: true", "did you mean 'use_spot'"),
    "unknown TPU": ("accelerators: tpu-v5litepod-8", "accelerators: tpu-v5litepod-9", "has no"),
    "unknown argument of a TPU": (
        "runtime_version: v2-alpha-tpuv5-lite",
        "runtime: v2",
        "'runtime_version'",
    ),
    "unknown cloud": ("infra: gcp", "infra: gpc", "'gpc' does not match"),
    "cloud without TPUs": ("infra: gcp", "infra: aws", "must be GCP or Kubernetes"),
    "unknown strategy": ("strategy: EAGER_NEXT_REGION", "strategy: EAGER", "not a valid"),
    "autostop": ("    down: true", "    delete: true", "$.autostop"),
}


def write_catalog() -> None:
    """Writes the table of machines and prices that SkyPilot would download from the internet.

    SkyPilot itself names the TPUs; place and prices do not matter here.
    """
    place = "us-central1,us-central1-a,2.0,1.0"
    rows = [f",,,{name},1,{name},{place}" for name in catalog.get_tpus()]
    rows.append(f"n1-highmem-8,8.0,52.0,,,,{place}")  # the table holds machines without TPUs too
    folder = Path.home() / ".sky" / "catalogs" / "v8" / "gcp"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vms.csv").write_text("\n".join([HEADER, *rows]) + "\n")


def read_task(text: str, env: dict[str, str]) -> tuple[Any, Any]:
    """The task as `sky launch --env` reads it, and the machine that SkyPilot finds for it."""
    task = sky.Task.from_yaml_config(yaml.safe_load(text), env_overrides=list(env.items()))
    (resources,) = task.resources
    resources.validate()
    machines = sky.clouds.GCP().get_feasible_launchable_resources(resources).resources_list
    if not machines:
        raise ValueError(f"Google Cloud has no {resources.accelerators}")
    return task, machines[0]


def check_accepted(text: str) -> None:
    """The task means what its file says: a spot TPU that is replaced, and deleted when idle."""
    task, machine = read_task(text, ENV)
    (resources,) = task.resources
    written, settings = yaml.safe_load(text), resources.to_yaml_config()
    assert (task.setup, task.run, task.workdir) == (written["setup"], written["run"], ".")
    assert task.envs == written["envs"] | ENV
    assert machine.instance_type == "TPU-VM"
    assert settings["use_spot"] is True
    assert settings["autostop"] == {"idle_minutes": 10, "down": True}
    assert settings["job_recovery"]["strategy"] == "EAGER_NEXT_REGION"


def check_refused(text: str, env: dict[str, str], reason: str) -> None:
    """SkyPilot names the fault of a broken task."""
    try:
        read_task(text, env)
    except Exception as error:
        answer = f"{type(error).__name__}: {error}"
    else:
        answer = "accepted"
    assert reason in answer, (reason, answer)


def broken(text: str, right: str, wrong: str) -> str:
    """The task with `wrong` instead of `right`, outside comments."""
    pattern = rf"^(?!\s*#)(.*){re.escape(right)}$"
    text, count = re.subn(pattern, rf"\g<1>{wrong}", text, flags=re.MULTILINE)
    assert count == 1, right
    return text


def main() -> None:
    """Checks the task; an AssertionError names what SkyPilot did otherwise."""
    write_catalog()
    text = (Path(sys.argv[1]) / "tpu.yaml").read_text(encoding="utf-8")
    check_accepted(text)
    for right, wrong, reason in BROKEN.values():
        check_refused(broken(text, right, wrong), ENV, reason)
    check_refused(text, {}, "Environment variable 'BUCKET' is None")
    print(f"SkyPilot accepts the task and refuses {len(BROKEN) + 1} broken copies")


if __name__ == "__main__":
    main()
