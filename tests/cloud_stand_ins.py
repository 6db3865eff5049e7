"""Stand-ins for gcloud, gsutil and what a TPU's hosts have, for test_cloud_tpu_batch.py.

Each is a program on PATH that calls this file: `cloud_stand_ins.py PROGRAM ARGUMENT …`. What they
share lies in the folder $CLOUD: `calls` (a JSON list a line: where, then the command), `gs/` (the
buckets), `hosts/N/` (their home folders), `resource` (name and state), and `plan.json`, what is to
happen. They start often, so what few of them need is imported where it is used.
"""

import contextlib
import fcntl
import json
import os
import re
import signal
import sys
import time
from pathlib import Path

CLOUD = Path(os.environ["CLOUD"])
HERE = os.environ.get("HOST_NUMBER", "")  # empty on the user's machine
PLAN = json.loads((CLOUD / "plan.json").read_text())


@contextlib.contextmanager
def lock():
    with (CLOUD / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def count(name):
    """How often this was called with this name, this time included."""
    with lock():
        path = CLOUD / f"count.{name}"
        number = int(path.read_text()) + 1 if path.exists() else 1
        path.write_text(str(number))
    return number


def fail(message, status=1):
    print(message, file=sys.stderr)
    raise SystemExit(status)


# --- gsutil -----------------------------------------------------------------------------------


def local(url):
    return CLOUD / "gs" / url.removeprefix("gs://")


def matches(pattern):
    wild = {"**": ".*", "*": "[^/]*", "?": "[^/]"}
    parts = re.split(r"(\*\*|\*|\?)", pattern)
    expression = re.compile("".join(wild.get(part) or re.escape(part) for part in parts))
    files = sorted(path for path in (CLOUD / "gs").rglob("*") if path.is_file())
    urls = [f"gs://{path.relative_to(CLOUD / 'gs')}" for path in files]
    return [url for url in urls if expression.fullmatch(url)]


def gsutil(*arguments):
    verb, *rest = [argument for argument in arguments if argument != "-q"]
    if verb == "cp":
        return copy(*rest)
    long = rest[0] == "-l"
    urls = matches(rest[-1])
    if not urls and verb == "ls":
        fail("CommandException: One or more URLs matched no objects.")
    if not urls:
        fail(f"CommandException: No URLs matched: {rest[-1]}")
    for url in urls:
        if verb == "cat":
            sys.stdout.write(local(url).read_text())
        elif verb == "rm":
            local(url).unlink()
        else:
            print(list_line(url) if long else url)
    if long:
        print(f"TOTAL: {len(urls)} objects, 1 bytes (1 B)")
    return None


def list_line(url):
    status = local(url).stat()
    changed = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(status.st_mtime))
    return f"{status.st_size:10d}  {changed}  {url}"


def copy(source, target):
    if not target.startswith("gs://"):
        Path(target).write_bytes(local(source).read_bytes())
        return
    if PLAN.get("read_only"):
        fail("AccessDeniedException: 403 the caller does not have storage.objects.create access")
    content = sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
    if target.endswith(".done"):
        break_off_if_planned()
    path = local(target)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = CLOUD / f"part.{os.getpid()}"
    part.write_bytes(content)
    part.rename(path)  # an object appears whole


def break_off_if_planned():
    """Takes the TPU away, or only cuts the connection, before the n-th .done of an ssh."""
    run = (CLOUD / "count.worker_runs").read_text()
    for at, state in PLAN.get("interruptions", [])[int(run) - 1 : int(run)]:
        if count(f"done_in_run_{run}") == at:
            if state != "ACTIVE":
                set_state(state)
            (CLOUD / f"cut.{run}").touch()
        if (CLOUD / f"cut.{run}").exists():
            time.sleep(60)  # killed before


# --- gcloud -----------------------------------------------------------------------------------


def set_state(state):
    (CLOUD / "resource").write_text(state)


def gcloud(*arguments):
    if arguments[:2] == ("auth", "list"):
        print(PLAN.get("account", "someone@example.com"))
        return
    assert arguments[:2] == ("compute", "tpus"), arguments
    group, verb, name, *rest = arguments[2:]
    COMMANDS[group, verb](name, rest)


def create(name, options):
    if "create_error" in PLAN:
        fail(f"ERROR: (gcloud.compute.tpus.queued-resources.create) {PLAN['create_error']}")
    if (CLOUD / "resource").exists():
        fail(f"ERROR: ALREADY_EXISTS: {name}")
    set_state("ACTIVE")
    if PLAN.get("create_hangs"):
        time.sleep(60)


def describe(name, options):
    if not (CLOUD / "resource").exists():
        fail(f"ERROR: NOT_FOUND: Resource '{name}' was not found")
    if "failedData" in options[-1]:
        print("capacity is exhausted\tSERVICE")
        return
    states = PLAN.get("states", [])
    number = count("describe")
    if number <= len(states):
        set_state(states[number - 1])
    print((CLOUD / "resource").read_text())


def delete(name, options):
    assert "--force" in options
    if count("delete") <= PLAN.get("delete_failures", 0):
        fail("ERROR: UNAVAILABLE: the service is currently unavailable")
    if not (CLOUD / "resource").exists():
        fail(f"ERROR: NOT_FOUND: Resource '{name}' was not found")
    (CLOUD / "resource").unlink()
    import shutil

    shutil.rmtree(CLOUD / "hosts", ignore_errors=True)  # the disks go too


def hosts():
    for number in range(PLAN.get("hosts", 1)):
        home = CLOUD / "hosts" / str(number)
        home.mkdir(parents=True, exist_ok=True)
        yield number, home


def scp(name, options):
    import shutil

    *sources, target = [option for option in options if not option.startswith("--")]
    # The first file is where the name of the resource is for other commands.
    for _, home in hosts():
        for source in sources:
            path = home / target.partition(":")[2] / Path(source).name
            copy_one = shutil.copytree if Path(source).is_dir() else shutil.copy
            copy_one(source, path)


def ssh(name, options):
    if count("ssh") <= PLAN.get("ssh_failures", 0):
        fail("ssh: connect to host 10.0.0.1 port 22: Connection refused", 255)
    command = next(option for option in options if option.startswith("--command="))[10:]
    cut = CLOUD / "no cut"
    if "worker.sh" in command:
        cut = CLOUD / f"cut.{count('worker_runs')}"
    running = [start(command, number, home) for number, home in hosts()]

    def end(*_):
        for process in running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    signal.signal(signal.SIGTERM, lambda *_: (end(), os._exit(143)))
    while any(process.poll() is None for process in running):
        if cut.exists():
            end()
            fail("client_loop: send disconnect: Broken pipe", 255)
        time.sleep(0.02)
    raise SystemExit(max(process.returncode for process in running))


def start(command, number, home):
    import subprocess

    environment = os.environ | {"HOME": str(home), "HOST_NUMBER": str(number)}
    return subprocess.Popen(
        ["bash", "-c", command], cwd=home, env=environment, start_new_session=True
    )


COMMANDS = {
    ("queued-resources", "create"): create,
    ("queued-resources", "describe"): describe,
    ("queued-resources", "delete"): delete,
    ("tpu-vm", "ssh"): ssh,
    ("tpu-vm", "scp"): lambda name, options: scp(name, [name, *options]),
}

# --- on the hosts -----------------------------------------------------------------------------


def curl(*arguments):
    attribute = arguments[-1].rpartition("/")[2]
    number = PLAN.get("hosts", 1)
    print(
        {
            "agent-worker-number": HERE,
            "worker-network-endpoints": ",".join(
                f"unknown:unknown:10.0.0.{i}" for i in range(number)
            ),
            "tpu-env": "ACCELERATOR_TYPE: 'v5litepod-16'\nCHIPS_PER_HOST_BOUNDS: '2,2,1'\n",
        }[attribute]
    )


def python3(*arguments):
    """`python3 -m pip install … uv`, `python3 -m uv venv …` and `python3 -m uv pip install …`."""
    if arguments[:3] == ("-m", "uv", "venv"):
        Path("environment/bin").mkdir(parents=True)
        Path("environment/bin/python").touch(mode=0o755)
    elif arguments[:4] == ("-m", "uv", "pip", "install"):
        install(arguments[arguments.index("--python") + 1])


def install(python):
    """What brings bert-features, by `python3 -m uv` or the toy tree's setup_tpu.sh."""
    if PLAN.get("install_fails"):
        fail("error: no solution found")
    program = Path(python).with_name("bert-features")
    program.write_text((CLOUD / "bert-features").read_text())
    program.chmod(0o755)


def extract(*arguments):
    """`bert-features`: upper case in place of vectors; what it meets in the text, it does."""
    if arguments == ("--version",):
        print("bert-features 0")
        return
    verb, source, option, target, *_ = arguments
    assert (verb, option) == ("extract", "--output"), arguments
    text = Path(source).read_text()
    if "SLOW" in text:
        (CLOUD / "slow").write_text(str(os.getpid()))
        time.sleep(60)
    if "BAD" in text:
        fail("bert-features: line 1 is bad")
    Path(target).write_text(text.upper())
    if target.endswith(".jsonl"):
        Path(f"{target}.metadata.json").write_text("{}")


PROGRAMS = {
    "gcloud": gcloud,
    "gsutil": gsutil,
    "curl": curl,
    "python3": python3,
    "setup_tpu": lambda *arguments: install(arguments[arguments.index("--python") + 1]),
    "bert-features": extract,
}

if __name__ == "__main__":
    program, *given = sys.argv[1:]
    bounds = os.environ.get("TPU_CHIPS_PER_PROCESS_BOUNDS")
    with lock(), (CLOUD / "calls").open("a") as calls:
        calls.write(
            json.dumps({"host": HERE, "bounds": bounds, "command": [program, *given]}) + "\n"
        )
    PROGRAMS[program](*given)
