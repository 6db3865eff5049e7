"""scripts/cloud_tpu_batch.sh against stand-ins of gcloud and gsutil (cloud_stand_ins.py).

What the stand-ins' ssh is given really runs, in a folder for each host, and so do the scripts that
are copied there. That Google's own programs do as the stand-ins do is not tested here.
"""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest

from bert_features import read_features
from bert_features.config import ExtractConfig

SCRIPTS = Path(__file__).resolve().parents[1] / "scripts"
STAND_INS = Path(__file__).with_name("cloud_stand_ins.py")
REQUIRED = {
    "--project": "my-project",
    "--zone": "us-west4-a",
    "--accelerator-type": "v5litepod-8",
    "--input": "gs://b/in/*.txt",
    "--output": "gs://b/out",
    "--name": "job",
    "--poll-seconds": "0",
}
# What the script needs beside gcloud and gsutil.
NEEDED = [
    *("bash", "cat", "cut", "date", "dirname", "grep", "gzip", "mktemp", "rm", "sed", "sleep"),
    *("sort", "tar", "tr", "wc"),
]
DELETE = (
    "gcloud compute tpus queued-resources delete job --project=my-project --zone=us-west4-a "
    "--force --quiet"
)

pytestmark = pytest.mark.skipif(
    shutil.which("flock") is None, reason="the hosts' script needs flock (util-linux)"
)


class Cloud:
    """A folder that stands in for Google Cloud, and the script run against it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.bin = root / "bin"
        self.bin.mkdir()
        self.path = os.environ["PATH"]
        self.plan()
        for program in ("gcloud", "gsutil", "curl", "python3"):
            self._add_program(self.bin / program, program)
        # Not on PATH: where the installation takes it from.
        self._add_program(root / "bert-features", "bert-features")
        (root / "tmp").mkdir()
        self._add_tree(root / "tree")

    def _add_tree(self, tree: Path) -> None:
        """A tree with the files that are packed, whose setup_tpu.sh installs a stand-in."""
        for folder in ("bert_features", "scripts"):
            (tree / folder).mkdir(parents=True)
        for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
            (tree / name).touch()
        self._add_program(tree / "scripts/setup_tpu.sh", "setup_tpu")

    def _add_program(self, path: Path, name: str) -> None:
        words = shlex.join([sys.executable, "-I", "-S", str(STAND_INS), name])
        path.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        path.chmod(0o755)

    def plan(self, **plan: Any) -> None:
        (self.root / "plan.json").write_text(json.dumps(plan))

    def put(self, *names: str, text: str = "some text") -> None:
        for name in names:
            path = self.root / "gs/b/in" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def start(self, *arguments: str, **options: str) -> subprocess.Popen[str]:
        required = REQUIRED | {"--source": str(self.root / "tree")}
        changed = {f"--{name.replace('_', '-')}": value for name, value in options.items()}
        words = [word for pair in (required | changed).items() for word in pair]
        environment = os.environ | {
            "PATH": f"{self.bin}:{self.path}",
            "CLOUD": str(self.root),
            "TMPDIR": str(self.root / "tmp"),
        }
        return subprocess.Popen(
            ["bash", str(SCRIPTS / "cloud_tpu_batch.sh"), *words, *arguments],
            env=environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def take_away(self, *programs: str) -> None:
        """Leaves a PATH without these, theirs or Google's own."""
        tools = self.root / "tools"
        tools.mkdir()
        for tool in NEEDED:
            (tools / tool).symlink_to(shutil.which(tool) or "")
        self.path = str(tools)
        for program in programs:
            (self.bin / program).unlink()

    def run(self, *arguments: str, **options: str) -> subprocess.CompletedProcess[str]:
        before = set((self.root / "tmp").iterdir())
        process = self.start(*arguments, **options)
        stdout, stderr = process.communicate(timeout=60)
        if "--dry-run" not in arguments:
            assert set((self.root / "tmp").iterdir()) == before, "temporary files are left"
        return subprocess.CompletedProcess([], process.returncode, stdout, stderr)

    def calls(self) -> list[dict[str, Any]]:
        path = self.root / "calls"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def commands(self) -> list[list[str]]:
        """Those of the user's machine."""
        return [call["command"] for call in self.calls() if call["host"] == ""]

    def verbs(self) -> list[str]:
        """What was done to the resource, in order."""
        resource = ("queued-resources", "create"), ("queued-resources", "delete")
        return [c[4] for c in self.commands() if tuple(c[3:5]) in resource]

    def extracted(self) -> dict[str, list[str]]:
        """The inputs that each host computed, in its order."""
        by_host: dict[str, list[str]] = {}
        for call in self.calls():
            if call["command"][:2] == ["bert-features", "extract"]:
                by_host.setdefault(call["host"], []).append(Path(call["command"][2]).name)
        return by_host

    def results(self) -> dict[str, str]:
        out = self.root / "gs/b/out"
        files = (path for path in sorted(out.rglob("*")) if path.is_file())
        return {
            str(path.relative_to(out)): path.read_text()
            for path in files
            if path.suffix != ".done" and path.name != "_settings.txt"
        }

    def resource_is_left(self) -> bool:
        return (self.root / "resource").exists()


@pytest.fixture
def cloud(tmp_path: Path) -> Cloud:
    return Cloud(tmp_path)


# --- all goes well ----------------------------------------------------------------------------


@pytest.mark.parametrize("hosts", [2, 4])
def test_each_input_is_computed_once_by_its_host(cloud: Cloud, hosts: int):
    cloud.plan(hosts=hosts, states=["WAITING_FOR_RESOURCES", "PROVISIONING", "ACTIVE"])
    sizes = {"a.txt": 2, "b.txt": 5, "c.txt": 3, "d.txt": 4, "e.txt": 1, "f.txt": 1}
    for name, size in sizes.items():
        cloud.put(name, text="x" * size)
    result = cloud.run()
    assert result.returncode == 0, result.stderr
    largest_first = ["b.txt", "d.txt", "c.txt", "a.txt", "e.txt", "f.txt"]
    assert cloud.extracted() == {str(i): largest_first[i::hosts] for i in range(hosts)}
    assert cloud.results() == {f"{name}.parquet": "X" * size for name, size in sizes.items()}
    assert cloud.verbs() == ["create", "delete"]
    assert not cloud.resource_is_left()
    assert "job is WAITING_FOR_RESOURCES" in result.stderr
    assert "all 6 results are at gs://b/out" in result.stderr


def test_hosts_of_a_slice_compute_apart(cloud: Cloud):
    cloud.plan(hosts=2)
    cloud.put("a.txt", "b.txt")
    assert cloud.run().returncode == 0
    assert {
        c["bounds"] for c in cloud.calls() if c["command"][:2] == ["bert-features", "extract"]
    } == {"2,2,1"}


def test_folders_spaces_and_second_files(cloud: Cloud):
    cloud.put("x/my texts.txt", "y/my texts.txt", "y/it's $HOME.txt")
    result = cloud.run("--", "--layers=-1", input="gs://b/in/**.txt", format="jsonl")
    assert result.returncode == 0, result.stderr
    names = ["x/my texts.txt", "y/it's $HOME.txt", "y/my texts.txt"]
    assert sorted(cloud.results()) == sorted(
        f"{name}.jsonl{more}" for name in names for more in ("", ".metadata.json")
    )


def test_options_reach_gcloud_and_extract(cloud: Cloud):
    cloud.put("a.txt")
    config = cloud.root / "my config.toml"
    config.write_text("layers = [-1]\n")
    result = cloud.run(
        *("--spot", "--create-option=--network=my net", "--file", str(config)),
        *("--", "--config", config.name, "--output-spec", 'name = "x", layers = [-1, -2]'),
        accelerator_type="v6e-8",
    )
    assert result.returncode == 0, result.stderr
    (create,) = [c for c in cloud.commands() if c[4:5] == ["create"]]
    assert {"--spot", "--network=my net", "--runtime-version=v2-alpha-tpuv6e"} <= set(create)
    (extract,) = [c for c in cloud.calls() if c["command"][:2] == ["bert-features", "extract"]]
    assert extract["command"][5:] == [
        *("--runtime", "jax", "--device", "tpu"),
        *("--config", "my config.toml", "--output-spec", 'name = "x", layers = [-1, -2]'),
    ]


def test_a_finished_job_asks_for_no_tpu_again(cloud: Cloud):
    cloud.put("a.txt", "b.txt")
    assert cloud.run().returncode == 0
    result = cloud.run()
    assert result.returncode == 0
    assert "all 2 results are at gs://b/out already" in result.stderr
    assert cloud.verbs() == ["create", "delete"]


def test_an_input_that_changed_is_computed_again(cloud: Cloud):
    cloud.put("a.txt", "b.txt")
    assert cloud.run().returncode == 0
    cloud.put("b.txt", text="other words")
    assert cloud.run().returncode == 0
    assert cloud.extracted() == {"0": ["a.txt", "b.txt", "b.txt"]}
    assert cloud.results()["b.txt.parquet"] == "OTHER WORDS"


@pytest.mark.parametrize("runtime", ["jax", "tensorflow"])
def test_a_tree_is_installed_by_its_own_script(cloud: Cloud, runtime: str):
    cloud.put("a.txt")
    assert cloud.run(runtime=runtime).returncode == 0
    (words,) = [c["command"] for c in cloud.calls() if c["command"][0] == "setup_tpu"]
    assert words[3:] == ["--runtime", runtime, "--extras", "demo,hub"]


def test_the_trees_script_takes_these_options():
    script = SCRIPTS / "setup_tpu.sh"
    options = ["--python", "/nowhere/python", "--runtime", "jax", "--extras", "demo,hub"]
    result = subprocess.run(["bash", str(script), *options], capture_output=True, text=True)
    assert (result.returncode, "/nowhere/python" in result.stderr) == (1, True)


@pytest.mark.parametrize("source", ["bert_features-1-py3-none-any.whl", "git+https://host/x"])
def test_wheels_and_urls(cloud: Cloud, source: str):
    cloud.put("a.txt")
    is_file = "://" not in source
    if is_file:
        (cloud.root / source).touch()
    result = cloud.run(source=str(cloud.root / source) if is_file else source)
    assert result.returncode == 0, result.stderr
    (words,) = [c["command"] for c in cloud.calls() if c["command"][2:4] == ["uv", "pip"]]
    package, jax = words[-2:]
    home = cloud.root / "hosts/0/bert_features_batch"
    location = f"file://{home}/{source}" if is_file else source
    assert package == f"bert_features[jax,demo,hub] @ {location}"
    assert jax == "jax[tpu]"


# --- a dry run --------------------------------------------------------------------------------


def without_temporary_folder(commands: list[list[str]]) -> list[list[str]]:
    return [[re.sub(r"^/.*/tmp/tmp\.\w+/", "TMP/", w) for w in words] for words in commands]


def test_a_dry_run_prints_what_a_run_does(cloud: Cloud):
    arguments = ("--spot", "--", "--output-spec", 'name = "x", layers = [-1]')
    dry = cloud.run("--dry-run", *arguments)
    assert (dry.returncode, dry.stderr) == (0, "")
    assert cloud.calls() == []
    printed = [shlex.split(line) for line in dry.stdout.splitlines()]
    cloud.put("a.txt")
    assert cloud.run(*arguments).returncode == 0
    assert without_temporary_folder(printed) == without_temporary_folder(cloud.commands())
    assert shlex.join(printed[-1]) == DELETE


def test_a_dry_run_needs_no_google_programs(cloud: Cloud):
    cloud.take_away("gcloud", "gsutil")
    result = cloud.run("--dry-run")
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("\n") > 10


def test_this_tree_is_packed(cloud: Cloud):
    result = cloud.run("--dry-run", source=str(SCRIPTS.parent))
    archive = re.search(r"\S+/source\.tar\.gz", result.stdout)
    assert archive is not None
    with tarfile.open(archive[0]) as file:
        names = file.getnames()
    assert {"setup.cfg", "bert_features/cli/extract.py", "scripts/constraints.txt"} <= set(names)
    assert not [name for name in names if "__pycache__" in name or "venv-" in name]


def options_of(command: str, home: Path) -> str:
    environment = os.environ | {"CLOUDSDK_CONFIG": str(home), "CLOUDSDK_CORE_DISABLE_PROMPTS": "1"}
    result = subprocess.run(
        ["gcloud", *command.split(), "--help"], env=environment, capture_output=True, text=True
    )
    return re.sub(r"\x1b\[\d*m", "", result.stdout)


@pytest.mark.skipif(shutil.which("gcloud") is None, reason="gcloud is not installed")
def test_googles_gcloud_knows_the_commands_and_options(cloud: Cloud, tmp_path: Path):
    wide = {"--project", "--quiet", "--format"}  # every command has them; help only refers to them
    used: dict[str, set[str]] = {}
    for line in cloud.run("--dry-run", "--spot").stdout.splitlines():
        words = shlex.split(line)
        if words[:3] == ["gcloud", "compute", "tpus"]:
            options = {word.partition("=")[0] for word in words if word.startswith("--")}
            used.setdefault(" ".join(words[1:5]), set()).update(options - wide)
    assert len(used) == 5
    for command, options in used.items():
        known = set(re.findall(r"--[a-z-]+", options_of(command, tmp_path / "gcloud")))
        assert options <= known, command


# --- taken away -------------------------------------------------------------------------------


def test_after_preemption_only_the_rest_is_computed(cloud: Cloud):
    cloud.plan(interruptions=[[3, "SUSPENDED"], [1, "SUSPENDING"]])
    cloud.put("a.txt", "b.txt", "c.txt", "d.txt", "e.txt")
    result = cloud.run("--spot")
    assert result.returncode == 0, result.stderr
    # c was computed, but its result not yet marked as whole: first when taken away, then again.
    assert cloud.extracted() == {
        "0": ["a.txt", "b.txt", "c.txt", "c.txt", "c.txt", "d.txt", "e.txt"]
    }
    assert len(cloud.results()) == 5
    assert cloud.verbs() == ["create", "delete"] * 3
    assert "job was taken away (SUSPENDED)" in result.stderr


def test_preempted_on_every_host(cloud: Cloud):
    cloud.plan(hosts=4, interruptions=[[3, "SUSPENDED"]])
    cloud.put(*(f"{i}.txt" for i in range(8)))
    result = cloud.run("--spot")
    assert result.returncode == 0, result.stderr
    assert len(cloud.results()) == 8
    assert cloud.verbs() == ["create", "delete"] * 2


def test_preempted_while_it_waits(cloud: Cloud):
    cloud.plan(states=["PROVISIONING", "SUSPENDED", "ACTIVE"])
    cloud.put("a.txt")
    result = cloud.run("--spot")
    assert result.returncode == 0, result.stderr
    assert cloud.verbs() == ["create", "delete"] * 2


def test_preempted_too_often(cloud: Cloud):
    cloud.plan(interruptions=[[2, "SUSPENDED"]] * 3)
    cloud.put("a.txt", "b.txt", "c.txt", "d.txt")
    result = cloud.run("--spot", max_attempts="2")
    assert result.returncode == 1
    assert "2 of 4 inputs are left after 2 attempts (--max-attempts)" in result.stderr
    assert cloud.verbs() == ["create", "delete"] * 2
    assert not cloud.resource_is_left()


def test_a_lost_connection_does_not_cost_the_tpu(cloud: Cloud):
    cloud.plan(interruptions=[[2, "ACTIVE"]])
    cloud.put("a.txt", "b.txt", "c.txt")
    result = cloud.run()
    assert result.returncode == 0, result.stderr
    assert cloud.extracted() == {"0": ["a.txt", "b.txt", "b.txt", "c.txt"]}
    assert cloud.verbs() == ["create", "delete"]


def test_ssh_that_is_not_ready_yet_is_waited_for(cloud: Cloud):
    cloud.plan(ssh_failures=2)
    cloud.put("a.txt")
    result = cloud.run()
    assert result.returncode == 0, result.stderr


# --- failures ---------------------------------------------------------------------------------


def test_one_bad_input_does_not_stop_the_others(cloud: Cloud):
    cloud.plan(hosts=2)
    cloud.put("a.txt", "b.txt", "d.txt")
    cloud.put("c.txt", text="BAD text")
    result = cloud.run()
    assert result.returncode == 1
    assert "1 of 4 inputs failed; their logs:\ngs://b/out/c.txt.parquet.error.txt" in result.stderr
    assert cloud.results() == {
        **{f"{name}.txt.parquet": "SOME TEXT" for name in "abd"},
        "c.txt.parquet.error.txt": "bert-features: line 1 is bad\n",
    }
    computed = [name for names in cloud.extracted().values() for name in names]
    assert sorted(computed) == ["a.txt", "b.txt", "c.txt", "d.txt"]
    assert not cloud.resource_is_left()

    cloud.put("c.txt", text="good text")
    assert cloud.run().returncode == 0
    assert cloud.results() == {
        **{f"{name}.txt.parquet": "SOME TEXT" for name in "abd"},
        "c.txt.parquet": "GOOD TEXT",
    }


def test_no_quota(cloud: Cloud):
    message = "RESOURCE_EXHAUSTED: Quota limit 'TPUV5sLitepodPerProjectPerZone' has been exceeded."
    cloud.plan(create_error=message)
    cloud.put("a.txt")
    result = cloud.run()
    assert result.returncode == 1
    (line,) = [line for line in result.stderr.splitlines() if "error:" in line]
    assert message in line
    assert cloud.verbs() == ["create", "delete"]  # in case that something came of it
    assert not cloud.resource_is_left()


def test_a_request_that_the_service_fails(cloud: Cloud):
    cloud.plan(states=["WAITING_FOR_RESOURCES", "FAILED"])
    cloud.put("a.txt")
    result = cloud.run()
    assert result.returncode == 1
    assert "the TPU was not granted: capacity is exhausted" in result.stderr
    assert not cloud.resource_is_left()


def test_an_installation_that_fails(cloud: Cloud):
    cloud.plan(install_fails=True)
    cloud.put("a.txt")
    result = cloud.run()
    assert result.returncode == 1
    assert "no solution found" in result.stderr
    assert "the TPU could not be set up" in result.stderr
    assert not cloud.resource_is_left()


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_somebody_elses_resource_is_left_alone(cloud: Cloud, when: str):
    cloud.put("a.txt")
    if when == "before":
        (cloud.root / "resource").write_text("ACTIVE")
    else:
        cloud.plan(create_error="ALREADY_EXISTS: Resource 'job' already exists")
    result = cloud.run()
    assert result.returncode == 1
    assert "exists" in result.stderr
    assert "delete" not in cloud.verbs()
    assert cloud.resource_is_left() == (when == "before")


def test_deleting_is_tried_again(cloud: Cloud):
    cloud.plan(delete_failures=2)
    cloud.put("a.txt")
    result = cloud.run()
    assert result.returncode == 0, result.stderr
    assert cloud.verbs() == ["create", "delete", "delete", "delete"]
    assert not cloud.resource_is_left()


def test_a_resource_that_cannot_be_deleted_is_not_kept_quiet(cloud: Cloud):
    cloud.plan(delete_failures=1000)
    cloud.put("a.txt")
    result = cloud.run()
    assert result.returncode == 3
    assert len(cloud.results()) == 1
    assert "COULD NOT BE DELETED AND MAY GO ON COSTING MONEY" in result.stderr
    assert f"cloud_tpu_batch: {DELETE}\n" in result.stderr.partition("COULD NOT BE DELETED")[2]
    assert "the service is currently unavailable" in result.stderr


# --- ended from outside -----------------------------------------------------------------------


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 30
    while not path.exists():
        assert time.monotonic() < deadline, f"{path.name} did not come"
        time.sleep(0.02)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_ends_the_job_and_the_resource(cloud: Cloud, name: str):
    cloud.put("a.txt", text="SLOW")
    process = cloud.start()
    wait_for(cloud.root / "slow")
    process.send_signal(signal.Signals[name])
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)  # an impatient second one does not stop the deletion
    _, stderr = process.communicate(timeout=20)
    assert process.returncode == 128 + signal.Signals[name], stderr
    assert cloud.verbs() == ["create", "delete"]
    assert not cloud.resource_is_left()
    assert not is_running(int((cloud.root / "slow").read_text()))


def test_a_signal_during_the_request_deletes_what_comes_of_it(cloud: Cloud):
    cloud.plan(create_hangs=True)
    cloud.put("a.txt")
    process = cloud.start()
    wait_for(cloud.root / "resource")
    process.terminate()
    process.communicate(timeout=20)
    assert process.returncode == 128 + signal.SIGTERM
    assert not cloud.resource_is_left()


def test_a_reader_that_goes_away_ends_the_resource(cloud: Cloud):
    cloud.put("a.txt", text="SLOW")
    process = cloud.start()
    assert process.stderr is not None
    process.stderr.readline()
    process.stderr.close()  # as in `cloud_tpu_batch.sh … 2>&1 | head -1`
    assert process.stdout is not None
    with process.stdout:
        process.stdout.read()
    process.wait(timeout=20)
    assert process.returncode == 128 + signal.SIGPIPE
    assert not cloud.resource_is_left()


def test_the_timeout_ends_the_job_and_the_resource(cloud: Cloud):
    cloud.put("a.txt", text="SLOW")
    result = cloud.run(timeout="3")
    assert result.returncode == 1
    assert "not finished after 3 seconds (--timeout)" in result.stderr
    assert not cloud.resource_is_left()


# --- refused before anything costs ------------------------------------------------------------


@pytest.mark.parametrize("missing", ["gcloud", "gsutil"])
def test_missing_programs(cloud: Cloud, missing: str):
    cloud.take_away(missing)
    result = cloud.run()
    assert result.returncode == 1
    assert f"{missing} is not on PATH; install the Google Cloud CLI" in result.stderr
    assert cloud.calls() == []


def test_an_output_of_other_settings(cloud: Cloud):
    cloud.put("a.txt")
    assert cloud.run("--", "--layers=-1").returncode == 0
    cloud.put("b.txt")
    result = cloud.run("--", "--layers=-2")
    assert result.returncode == 1
    assert "holds results of other settings (--format=parquet --layers=-1)" in result.stderr
    assert cloud.verbs() == ["create", "delete"]


@pytest.mark.parametrize(
    ("plan", "options", "message"),
    [
        ({}, {"input": "gs://b/in/*.csv"}, "the inputs cannot be listed"),
        ({}, {"input": "gs://b/**.txt"}, "--output lies where --input would find the results"),
        ({"account": ""}, {}, "gcloud is not logged in; run: gcloud auth login"),
        ({"read_only": True}, {}, "--output gs://b/out cannot be written"),
        ({}, {"source": "nowhere"}, "--source nowhere is no tree of bert_features, wheel or URL"),
        ({}, {"file": "nowhere.toml"}, "--file nowhere.toml is not there"),
        (
            {},
            {"runtime": "tensorflow", "source": "git+https://host/repository"},
            "--runtime tensorflow needs a tree as --source",
        ),
    ],
)
def test_errors(cloud: Cloud, plan: dict[str, Any], options: dict[str, str], message: str):
    cloud.plan(**plan)
    cloud.put("a.txt")
    result = cloud.run(**options)
    assert result.returncode == 1
    assert message in result.stderr
    assert cloud.verbs() == []


def test_a_name_with_wildcards(cloud: Cloud):
    cloud.put("a[1].txt")
    result = cloud.run()
    assert result.returncode == 1
    assert "which gsutil takes for wildcards; rename it" in result.stderr


@pytest.mark.parametrize(
    ("options", "more", "message"),
    [
        ({"zone": ""}, [], "--zone is missing"),
        ({"input": "texts/*.txt"}, [], "--input is 'texts/*.txt'; allowed: gs://bucket/"),
        ({"format": "csv"}, [], "--format is 'csv'; allowed: parquet jsonl npz hdf5 tfrecord"),
        ({"runtime": "torch"}, [], "--runtime is 'torch'; allowed: jax tensorflow"),
        ({"name": "My_Job"}, [], "--name is 'My_Job'; allowed:"),
        ({"max_attempts": "0"}, [], "--max-attempts is 0; allowed: at least 1"),
        ({"timeout": "1h"}, [], "--timeout is '1h'; allowed: an integer"),
        ({"accelerator_type": "h100-8"}, [], "no image is known for h100-8"),
        ({}, ["--layers=-1"], "unknown option --layers"),
        ({}, ["--spot", "--zone"], "--zone takes a value"),
        ({}, ["--", "--output", "x"], "--output is this script's to say"),
    ],
)
def test_bad_usage(cloud: Cloud, options: dict[str, str], more: list[str], message: str):
    result = cloud.run(*more, **options)
    assert result.returncode == 2
    assert message in result.stderr
    assert cloud.calls() == []


def test_help_names_every_option():
    script = SCRIPTS / "cloud_tpu_batch.sh"
    result = subprocess.run(["bash", str(script), "--help"], capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")
    parser = script.read_text().partition("\nparse_options() {")[2].partition("\n}")[0]
    options = set(re.findall(r"--[a-z][a-z-]+", parser))
    assert len(options) > 15
    assert {option for option in options if f"  {option}" not in result.stdout} == {"--help"}


# --- the real program -------------------------------------------------------------------------


@pytest.mark.skipif(
    "runtime" not in ExtractConfig.model_fields, reason="extract has no --runtime here"
)
def test_the_real_extract(cloud: Cloud, minilm_dir: Path):
    texts = {"a.txt": "A bank of the river.\n", "b.txt": "One text.\nAnother text.\n"}
    for name, text in texts.items():
        cloud.put(name, text=text)
    words = shlex.join([sys.executable, "-m", "bert_features"])
    (cloud.root / "bert-features").write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    options = [
        "--device",
        "cpu",
        "--checkpoint",
        str(minilm_dir),
        "--layers=-1",
        "--combine",
        "sum",
    ]
    result = cloud.run("--", *options, format="npz")
    assert result.returncode == 0, result.stderr
    for name, text in texts.items():
        file = read_features(cloud.root / "gs/b/out" / f"{name}.npz")
        assert len(file) == text.count("\n")
        assert file[0].features["features"].shape == (len(file[0].tokens), 384)
