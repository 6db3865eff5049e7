"""What GitHub and pre-commit read: it runs scripts that exist, with few rights.

`scripts/check_repository.sh` asks actionlint and cffconvert about the same files.
"""

import configparser
import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
SETUP = configparser.ConfigParser()
SETUP.read(ROOT / "setup.cfg", encoding="utf-8")
PUBLISHES = {"release.yml": "pypi", "docs.yml": "github-pages"}


def load(path):
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def steps(workflow):
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_each_step_names_scripts_that_exist(path):
    workflow = load(path)
    runs = "\n".join(step.get("run", "") for step in steps(workflow))
    named = re.findall(r"(?<!\S)[\w.]+/[\w./-]+", runs)
    assert named
    for step in steps(workflow):
        named += step.get("with", {}).get("cache-dependency-path", "").split()
    assert [name for name in sorted(named) if not (ROOT / name).is_file()] == []


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_has_few_rights_and_a_time_limit(path):
    workflow = load(path)
    assert workflow["permissions"] == {"contents": "read"}
    assert "group" in workflow["concurrency"]
    for name, job in workflow["jobs"].items():
        assert 0 < job["timeout-minutes"] < 360, name
        if "permissions" not in job:
            continue
        # The right to publish: nothing of this repository runs beside it.
        environment = job["environment"]
        environment = environment["name"] if isinstance(environment, dict) else environment
        assert environment == PUBLISHES[path.name]
        assert set(job["permissions"].items()) <= {("id-token", "write"), ("pages", "write")}
        assert [step for step in job["steps"] if "run" in step] == []
    for step in steps(workflow):
        assert re.fullmatch(r"[\w-]+/[\w-]+@(v\d+|release/v\d+)", step.get("uses", "a/b@v1"))
        if step.get("uses", "").startswith("actions/checkout"):
            assert step["with"]["persist-credentials"] is False


def test_the_tests_run_on_each_python_of_the_metadata():
    workflow = load(ROOT / ".github" / "workflows" / "tests.yml")
    classifiers = SETUP["metadata"]["classifiers"]
    pythons = re.findall(r"Python :: (3\.\d+)", classifiers)
    assert workflow["jobs"]["tests"]["strategy"]["matrix"]["python"] == pythons
    runs = {step["run"]: step["if"] for step in steps(workflow) if "run" in step}
    events = {run: set(re.findall(r"'(\w+)'", condition)) for run, condition in runs.items()}
    assert events == {
        "bash scripts/test.sh --fast": {"push", "pull_request"},
        "bash scripts/test.sh --all": {"schedule", "workflow_dispatch"},
    }
    assert set(workflow[True]) == set.union(*events.values())  # YAML reads `on` as true


def test_a_release_needs_a_tag_and_the_checks_of_the_script():
    workflow = load(ROOT / ".github" / "workflows" / "release.yml")
    assert workflow[True] == {"push": {"tags": ["v*"]}}
    assert workflow["jobs"]["publish"]["needs"] == "build"
    assert "bash scripts/release.sh dist" in [step.get("run") for step in steps(workflow)]
