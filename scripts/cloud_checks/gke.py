"""Checks that the schemas of Kubernetes accept the job for each TPU, and refuse broken copies.

    python gke.py configs/cloud/gke.yaml

It runs in the environment that scripts/check_cloud.sh makes. Schemas know fields and types;
the rows of the file's own table say which values are Google's.
"""

import re
import sys
from pathlib import Path

import kubernetes_validate
import yaml

# The first version with all fields of the job, and the newest that has schemas.
VERSIONS = ("1.33", kubernetes_validate.latest_version())
# What stands in the file, and what breaks it.
BROKEN = {
    "completionMode: Indexed": "completionsMode: Indexed",
    "completions: 4": "completions: four",
    "action: Ignore": "actions: Ignore",
    "restartPolicy: Never": "restart: Never",
    "nodeSelector:": "nodeSelectors:",
    '- name: HOSTS\n              value: "4"': "- name: HOSTS\n              value: 4",
    "runAsUser: 0": "runAsUser: root",
    "requests:": "request:",
}
ROW = re.compile(r"^#   (?:v\w+|TPU\w+) +(\S+-(\d+)t) +(\S+) +(\S+) +(\d+)$", re.MULTILINE)


def variants(text: str) -> dict[str, str]:
    """The job for each row of the table in its comments, by machine type."""
    rows = ROW.findall(text)
    here = rows[0]
    found = {}
    for machine, chips, accelerator, topology, count in rows:
        assert chips == count, machine
        job = text
        for name, old, new in (
            ("cloud.google.com/gke-tpu-accelerator", here[2], accelerator),
            ("cloud.google.com/gke-tpu-topology", here[3], topology),
            ("google.com/tpu", here[4], count),
        ):
            job, changed = re.subn(rf"^( +{name}: ){old}$", rf"\g<1>{new}", job, flags=re.MULTILINE)
            assert changed == (2 if name == "google.com/tpu" else 1), (machine, name)
        found[machine] = job
    return found


def is_valid(text: str, version: str) -> bool:
    """Whether a schema accepts the job; unknown fields are refused."""
    try:
        kubernetes_validate.validate(yaml.safe_load(text), version, strict=True)
    except kubernetes_validate.ValidationError:
        return False
    return True


def main() -> None:
    """Checks the job; an AssertionError names what the schemas do otherwise."""
    text = Path(sys.argv[1]).read_text(encoding="utf-8")
    jobs = variants(text)
    for version in VERSIONS:
        for machine, job in jobs.items():
            assert is_valid(job, version), (machine, version)
        for right, wrong in BROKEN.items():
            assert text.count(right) == 1, right
            assert not is_valid(text.replace(right, wrong), version), (wrong, version)
    print(
        f"Kubernetes {' and '.join(VERSIONS)} accept the job for {', '.join(jobs)} "
        f"and refuse {len(BROKEN)} broken copies"
    )


if __name__ == "__main__":
    main()
