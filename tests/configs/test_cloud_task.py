"""configs/cloud/: SkyPilot accepts its tasks; the commands of tpu.yaml do what its comments say."""

import configparser
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest
import typer

from bert_features import ExtractConfig, read_features
from bert_features.cli import app
from tests.configs.tasks import FOLDER_TASK, ROOT, TASK, block, default_envs

ENV = {"BUCKET": "gs://my-bucket"}


def skypilot_requirement() -> str:
    """The version that the file's own comments say to install."""
    match = re.search(r"pip install 'skypilot\[gcp\](==[\d.]+)'", TASK.read_text())
    assert match
    return f"skypilot{match[1]}"


class Machine:
    """A folder as a TPU VM's home, with the bucket where SkyPilot mounts it."""

    def __init__(self, home: Path, program: str) -> None:
        self.home = home
        self.input = home / "bucket" / "texts"
        self.output = home / "bucket" / "features"
        self.input.mkdir(parents=True)
        bin_folder = home / "environment" / "bin"
        bin_folder.mkdir(parents=True)
        (bin_folder / "bert-features").write_text(program)
        (bin_folder / "bert-features").chmod(0o755)

    def run(self, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", block("run")],
            cwd=ROOT,
            env=os.environ | ENV | default_envs() | {"HOME": str(self.home)} | env,
            text=True,
            capture_output=True,
        )

    def results(self) -> list[str]:
        return sorted(path.name for path in self.output.iterdir())

    def calls(self) -> list[list[str]]:
        """The arguments of each call of `bert-features`."""
        return [shlex.split(line) for line in (self.home / "calls").read_text().splitlines()]


# Writes down how it was called, and a result, with the second file that jsonl has; fails for
# an input named bad.txt.
STAND_IN = """#!/usr/bin/env bash
printf '%q ' "$@" >>~/calls
echo >>~/calls
while [ "$1" != --output ]; do case $1 in */bad.txt) exit 1 ;; esac; shift; done
echo features >"$2"
case $2 in *.jsonl) echo settings >"$2.metadata.json" ;; esac
"""


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "home", STAND_IN)


def test_each_file_of_the_folder_gets_a_result(machine: Machine) -> None:
    for name in ("a.txt", "with space.jsonl"):
        (machine.input / name).write_text("text\n")
    (machine.input / "folder").mkdir()
    ran = machine.run()
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.endswith("2 done, 0 there already, 0 failed\n")
    assert machine.results() == ["a.txt.parquet", "with space.jsonl.parquet"]
    assert not list((machine.home / "result").iterdir())


def test_after_a_preemption_only_missing_results_are_computed(machine: Machine) -> None:
    for name in ("a.txt", "b.txt"):
        (machine.input / name).write_text("text\n")
    machine.output.mkdir()
    (machine.output / "a.txt.parquet").write_text("of the first machine")
    (machine.output / ".part-b.txt.parquet").write_text("half of")  # left by the first machine
    ran = machine.run()
    assert ran.stdout.endswith("1 done, 1 there already, 0 failed\n")
    assert machine.results() == ["a.txt.parquet", "b.txt.parquet"]
    assert (machine.output / "a.txt.parquet").read_text() == "of the first machine"
    assert (machine.output / "b.txt.parquet").read_text() == "features\n"


def test_a_bad_input_fails_the_job_but_not_the_others(machine: Machine) -> None:
    for name in ("a.txt", "bad.txt", "c.txt"):
        (machine.input / name).write_text("text\n")
    ran = machine.run()
    assert ran.returncode == 1
    assert "bad.txt failed" in ran.stderr
    assert ran.stdout.endswith("2 done, 0 there already, 1 failed\n")
    assert machine.results() == ["a.txt.parquet", "c.txt.parquet"]


def test_the_second_file_of_a_result_is_kept(machine: Machine) -> None:
    (machine.input / "a.txt").write_text("text\n")
    assert machine.run(FORMAT="jsonl").returncode == 0
    assert machine.results() == ["a.txt.jsonl", "a.txt.jsonl.metadata.json"]


def test_an_empty_folder_is_an_error(machine: Machine) -> None:
    ran = machine.run(INPUT="typo")
    assert ran.returncode == 1
    assert ran.stderr == "error: there are no files in gs://my-bucket/typo\n"


def test_a_tpu_of_several_hosts_is_refused(machine: Machine) -> None:
    (machine.input / "a.txt").write_text("text\n")
    ran = machine.run(SKYPILOT_NUM_NODES="2")
    assert ran.returncode == 1
    assert "this TPU has 2 hosts" in ran.stderr
    assert not machine.output.exists()


def test_the_command_line_accepts_the_call_of_extract(machine: Machine) -> None:
    (machine.input / "a.txt").write_text("text\n")
    machine.run()
    ((name, *arguments),) = machine.calls()
    command = typer.main.get_command(app).commands[name]
    given = command.make_context(name, arguments).params  # exits at an unknown option or value
    settings = ExtractConfig.load(given["config"], format=given["format"])
    assert settings.format == "parquet"
    assert given["device"] == "tpu"
    assert given["runtime"] == "jax"


def test_setup_calls_the_script_by_options_that_it_has() -> None:
    (line,) = re.findall(r"^bash (scripts/\S+) (.+)$", block("setup"), re.MULTILINE)
    script, arguments = ROOT / line[0], shlex.split(line[1])
    options = {word for word in arguments if word.startswith("--")}
    known = set(re.findall(r"--[a-z]+", script.read_text().split("set -euo pipefail")[0]))
    assert options <= known
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    extras = arguments[arguments.index("--extras") + 1].split(",")
    assert set(extras) <= set(setup["options.extras_require"])


@pytest.mark.parametrize("name", ["setup", "run"])
def test_commands_are_bash(name: str) -> None:
    subprocess.run(["bash", "-n", "-c", block(name)], check=True)


# `extract` itself, on the CPU: there is no TPU to run on.
ON_CPU = f"""#!/usr/bin/env bash
exec {shlex.quote(sys.executable)} -m bert_features "${{@/#tpu/cpu}}"
"""


@pytest.mark.slow
def test_the_job_runs_extract(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "home", ON_CPU)
    (machine.input / "a.txt").write_text("The cat sat.\nOn the mat.\n")
    ran = machine.run(CONFIG="minilm")
    assert ran.returncode == 0, ran.stderr
    assert machine.results() == ["a.txt.parquet"]
    assert len(read_features(machine.output / "a.txt.parquet")) == 2


@pytest.fixture(scope="module")
def skypilot(request: pytest.FixtureRequest) -> Path:
    """The Python of an environment with SkyPilot, made once and kept in pytest's cache."""
    requirement = skypilot_requirement()
    folder = request.config.cache.mkdir(requirement.replace("==", "-"))
    python, ready = folder / "bin" / "python", folder / "ready"
    if ready.exists():
        return python
    shutil.rmtree(folder)
    venv.create(folder)
    # Half of the time would go to compiling modules that no test imports.
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check"]
    install = [*pip, "install", "--quiet", "--no-compile", requirement]
    installed = subprocess.run(install, text=True, capture_output=True)
    if "from versions: none" in installed.stderr:
        pytest.skip(f"no package registry to install {requirement} from")
    assert installed.returncode == 0, installed.stderr
    ready.touch()
    return python


def ask_skypilot(
    python: Path, home: Path, cases: list[tuple[str, dict[str, str]]]
) -> list[dict[str, object]]:
    """What SkyPilot makes of each task file, by `skypilot_check.py`."""
    (home / "cases").write_text(json.dumps(cases))
    checked = subprocess.run(
        [python, Path(__file__).with_name("skypilot_check.py"), home / "cases", home / "answers"],
        env=os.environ | {"HOME": str(home), "SKYPILOT_DISABLE_USAGE_COLLECTION": "1"},
        text=True,
        capture_output=True,
    )
    assert checked.returncode == 0, checked.stderr
    return json.loads((home / "answers").read_text())


@pytest.mark.slow
def test_skypilot_accepts_the_tasks(skypilot: Path, tmp_path: Path) -> None:
    answer, of_folder = ask_skypilot(
        skypilot, tmp_path, [(TASK.read_text(), ENV), (FOLDER_TASK.read_text(), ENV)]
    )
    assert "error" not in answer, answer
    assert "error" not in of_folder, of_folder
    mounted = {"_requires_fuse": True}  # the other has no mounted bucket
    assert of_folder["resources"] | mounted == answer["resources"]
    assert of_folder["mounts"] == {}
    assert of_folder["envs"] == ENV | default_envs(FOLDER_TASK)
    assert [of_folder["setup"], of_folder["run"]] == [
        block("setup", FOLDER_TASK),
        block("run", FOLDER_TASK),
    ]
    assert answer["instance_type"] == "TPU-VM"
    resources = answer["resources"]
    assert isinstance(resources, dict)
    assert resources["use_spot"] is True
    assert resources["autostop"] == {"idle_minutes": 10, "down": True}
    assert resources["job_recovery"]["strategy"] == "EAGER_NEXT_REGION"
    assert answer["mounts"] == {"~/bucket": ["gs://my-bucket", "MOUNT"]}
    assert answer["workdir"] == "."
    # The tests above ran what SkyPilot runs.
    assert answer["envs"] == ENV | default_envs()
    assert [answer["setup"], answer["run"]] == [block("setup"), block("run")]


BROKEN = {
    "unknown field": ("workdir: .", "workdirs: .", "did you mean 'workdir'"),
    "unknown resource": ("use_spot: true", "spot: true", "did you mean 'use_spot'"),
    "unknown TPU": ("accelerators: tpu-v5litepod-8", "accelerators: tpu-v5litepod-9", "has no"),
    "not a TPU's argument": (
        "runtime_version: v2-alpha-tpuv5-lite",
        "runtime: v2",
        "'runtime_version'",
    ),
    "unknown cloud": ("infra: gcp", "infra: gpc", "'gpc' does not match"),
    "cloud without TPUs": ("infra: gcp", "infra: aws", "must be GCP or Kubernetes"),
    "unknown strategy": ("strategy: EAGER_NEXT_REGION", "strategy: EAGER", "not a valid"),
    "unknown mode": ("mode: MOUNT", "mode: MOUNTED", "'MOUNTED' is not one of"),
    "autostop": ("    down: true", "    delete: true", "$.autostop"),
    "a folder mounted": ("source: ${BUCKET}", "source: ${BUCKET}/texts", "only the bucket name"),
}


def _broken(text: str, right: str, wrong: str) -> str:
    """The task file with `wrong` instead of `right`, outside comments."""
    broken, count = re.subn(
        rf"^(?!\s*#)(.*){re.escape(right)}$", rf"\g<1>{wrong}", text, flags=re.MULTILINE
    )
    assert count == 1, right
    return broken


@pytest.mark.slow
def test_skypilot_refuses_broken_copies(skypilot: Path, tmp_path: Path) -> None:
    text = TASK.read_text()
    cases = [(_broken(text, right, wrong), ENV) for right, wrong, _ in BROKEN.values()]
    answers = ask_skypilot(skypilot, tmp_path, [*cases, (text, {})])
    for (name, (_, _, reason)), answer in zip(BROKEN.items(), answers, strict=False):
        assert reason in str(answer.get("error")), (name, answer)
    assert "Environment variable 'BUCKET' is None" in str(answers[-1].get("error"))
