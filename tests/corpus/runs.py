"""Runs in processes of their own, as tests watch them."""

import os
import time
from pathlib import Path


def wait_for_shards(out, process, count=2):
    while len(list((out / ".finished").glob("*.json"))) < count:
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)


def is_alive(process):
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def workers_of(parent=None):
    """The processes that compute for a process, by default for this one."""
    parent = parent or os.getpid()
    tasks = Path(f"/proc/{parent}/task").iterdir()
    children = [int(child) for task in tasks for child in (task / "children").read_text().split()]
    # Not the resource tracker, another child, whose start nobody waits for.
    return [child for child in children if "spawn_main" in title_of(child)]


def title_of(process):
    try:
        return Path(f"/proc/{process}/cmdline").read_text()
    except OSError:
        return ""
