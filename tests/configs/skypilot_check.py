"""Reads task files with SkyPilot's own parser; run by test_cloud_task.py in SkyPilot's environment.

    python skypilot_check.py CASES ANSWERS

CASES is a JSON list of task files, each as its text and a table of `--env` values. ANSWERS gets a
JSON list: for each what SkyPilot makes of it, or the error by which it refuses it.
"""

import json
import sys
from pathlib import Path

HEADER = (
    "InstanceType,vCPUs,MemoryGiB,AcceleratorName,AcceleratorCount,GpuInfo,"
    "Region,AvailabilityZone,Price,SpotPrice"
)


def write_catalog(names):
    """Writes the table of machines and prices that SkyPilot would download from the internet.

    The TPUs are those that SkyPilot itself names; place and prices do not matter here.
    """
    place = "us-central1,us-central1-a,2.0,1.0"
    rows = [f",,,{name},1,{name},{place}" for name in names]
    rows.append(f"n1-highmem-8,8.0,52.0,,,,{place}")  # the table holds machines without TPUs too
    folder = Path.home() / ".sky" / "catalogs" / "v8" / "gcp"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vms.csv").write_text("\n".join([HEADER, *rows]) + "\n")


def check(text, env):
    """What SkyPilot makes of a task file, as `sky launch --env` reads it."""
    import sky
    import yaml
    from sky.data.storage import Storage

    task = sky.Task.from_yaml_config(yaml.safe_load(text), env_overrides=list(env.items()))
    (resources,) = task.resources
    resources.validate()
    launchable = sky.clouds.GCP().get_feasible_launchable_resources(resources).resources_list
    if not launchable:
        raise ValueError(f"Google Cloud has no {resources.accelerators}")
    for storage in task.storage_mounts.values():
        Storage._validate_source(storage.source, storage.mode, False)
    return {
        "resources": resources.to_yaml_config(),
        "instance_type": launchable[0].instance_type,
        "mounts": {
            path: [storage.source, storage.mode.value]
            for path, storage in task.storage_mounts.items()
        },
        "envs": task.envs,
        "workdir": task.workdir,
        "setup": task.setup,
        "run": task.run,
    }


def main():
    """Checks every case; an error is an answer."""
    from sky import catalog

    cases, answers = map(Path, sys.argv[1:])
    write_catalog(catalog.get_tpus())
    found = []
    for text, env in json.loads(cases.read_text()):
        try:
            found.append(check(text, env))
        except Exception as error:
            found.append({"error": f"{type(error).__name__}: {error}"})
    answers.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
