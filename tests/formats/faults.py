"""Writers that are killed, and writers on a full disk, in forks of one process.

    python -m tests.formats.faults FOLDER

It prints, as JSON, what came of each case: `{"kills": {"FORMAT SCENARIO": [calls, error]},
"full disks": {"FORMAT CASE": [outcome, error]}}`.
"""

import contextlib
import json
import os
import resource
import shutil
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py  # noqa: F401 - once, not in every fork
import pyarrow.dataset
import pyarrow.parquet  # noqa: F401
import pytest

from bert_features.errors import OutputError
from bert_features.formats import FORMATS, open_writer, read_features, tfrecord
from tests.formats.feature_files import ONE, SIDECARS, files_of, make_batch

BATCHES = {"old": make_batch(ONE, [3, 1], seed=1), "new": make_batch(ONE, [2, 5], seed=2)}

KILLS = [
    *((format, scenario) for format in FORMATS for scenario in ("nothing", "older")),
    *((format, "orphan") for format in sorted(SIDECARS)),
]
CALLS = ["replace", "rename", "link", "fsync", "unlink", "rmdir", "mkdir"]

# The largest size of a file in bytes, and how many batches are written.
FULL_DISKS = {"while writing": (300_000, 200), "while closing": (1000, 1), "nothing fits": (0, 0)}


class Example:
    """Stands in for TensorFlow's: its import takes seconds, and makes threads, which forks lose."""

    def __init__(self, record: Any) -> None:
        self.text = repr(record).encode()

    def SerializeToString(self, deterministic: bool) -> bytes:  # noqa: N802 - protobuf's name
        return self.text


def in_fork(errors: Path, function: Callable[..., None], *arguments: Any) -> int:
    """The exit status of a fork that calls the function; its standard error is in `errors`."""
    child = os.fork()
    if child == 0:
        os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
        status = 1
        try:
            function(*arguments)
            status = 0
        except BaseException:
            os.write(2, traceback.format_exc().encode())
        os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def write(path: Path, format: str, run: str, overwrite: bool) -> None:
    with open_writer(
        path, format=format, features=ONE, metadata={"run": run}, overwrite=overwrite
    ) as writer:
        writer.write(BATCHES[run])


class Kills:
    """Forks that write a file are killed at each of their calls of the system, the Nth before it
    is made. Each is followed by a fork that looks at what is there, and tries again.
    """

    def __init__(self, folder: Path, format: str, scenario: str) -> None:
        self.folder, self.format, self.scenario = folder, format, scenario
        folder.mkdir()
        self.errors = folder / "errors"
        self.reference = folder / "new" / "f"
        self.whole: dict[str, bytes] = {}
        self.sidecars: dict[str, bytes | None] = {}

    def run(self) -> tuple[int, str]:
        """The number of calls, and what went wrong."""
        for run in ("old", "new"):
            (self.folder / run).mkdir()
            path = self.folder / run / "f"
            if in_fork(self.errors, write, path, self.format, run, False):
                return 0, self.errors.read_text()
            self.whole[run], self.sidecars[run] = path.read_bytes(), sidecar(path)
        count = 0
        while True:
            path = self._prepare(self.folder / str(count))
            status = in_fork(self.errors, self._killed, path, count)
            if status not in (0, -signal.SIGKILL):
                return count, self.errors.read_text()
            if in_fork(self.errors, self._look_and_try_again, path):
                return count, f"{names(path)} of call {count}\n{self.errors.read_text()}"
            if status == 0:
                return count, ""
            count += 1

    def _prepare(self, folder: Path) -> Path:
        """What is there before the fork that is killed."""
        path = folder / "f"
        if self.scenario == "nothing":
            folder.mkdir()
        else:
            shutil.copytree(self.folder / "old", folder)
        if self.scenario == "orphan":
            path.unlink()
        return path

    def _killed(self, path: Path, count: int) -> None:
        kill_at(count)
        write(path, self.format, "new", self.scenario == "older")

    def _look_and_try_again(self, path: Path) -> None:
        if path.exists():
            run = next(run for run, whole in self.whole.items() if whole == path.read_bytes())
            # Killed between the renames of the sidecar and of the file, it leaves a false pair.
            false_pair = sidecar(path) is not None and sidecar(path) != self.sidecars[run]
            refused = pytest.raises(OutputError, match="does not belong to it")
            with refused if false_pair else contextlib.nullcontext():
                assert read_features(path, format=self.format).metadata["run"] == run
        else:
            assert self.scenario != "older", names(path)
        write(path, self.format, "new", path.exists())
        assert path.read_bytes() == self.whole["new"]
        with read_features(path, format=self.format) as file:
            assert file.metadata["run"] == "new"
        assert names(path) == names(self.reference), names(path)
        assert sidecar(path) == sidecar(self.reference)


def kill_at(count: int) -> None:
    """From now on the process is killed before the Nth of the calls."""
    left = count

    def wrap(call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **options: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments, **options)

        return counted

    for name in CALLS:
        setattr(os, name, wrap(getattr(os, name)))


def names(path: Path) -> list[str]:
    return sorted(each.name for each in path.parent.iterdir())


def sidecar(path: Path) -> bytes | None:
    found = path.with_name(path.name + ".metadata.json")
    return found.read_bytes() if found.exists() else None


def fill_disk(path: Path, format: str, limit: int, batches: int, outcome: Path) -> None:
    """Writes over an older file where no file may grow beyond the limit; notes the error."""
    batch = make_batch(ONE, [30] * 100)
    said = outcome.open("w")
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        with open_writer(path, format=format, features=ONE, metadata={}, overwrite=True) as writer:
            for _ in range(batches):
                writer.write(batch)
        message = "no error"
    except OutputError as error:
        message = str(error)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    said.write(message)
    said.close()


def run_full_disk(folder: Path, format: str, limit: int, batches: int) -> tuple[str, str]:
    """What was said of a full disk, without the path, and what went wrong."""
    (folder / "in").mkdir(parents=True)
    path, errors, outcome = folder / "in" / "f", folder / "errors", folder / "outcome"
    if in_fork(errors, write, path, format, "old", False):
        return "", errors.read_text()
    before = files_of(path.parent)
    in_fork(errors, fill_disk, path, format, limit, batches, outcome)
    wrong = errors.read_text()
    if files_of(path.parent) != before:
        wrong += f"{names(path)} differ from {sorted(before)}"
    return outcome.read_text().replace(str(path), "PATH"), wrong


def main(folder: Path) -> None:
    tfrecord.convert_to_example = Example  # type: ignore[assignment]
    kills = {
        f"{format} {scenario}": Kills(folder / f"{format}-{scenario}", format, scenario).run()
        for format, scenario in KILLS
    }
    full = {
        f"{format} {case}": run_full_disk(folder / "full" / f"{format}-{case}", format, *sizes)
        for format in FORMATS
        for case, sizes in FULL_DISKS.items()
    }
    print(json.dumps({"kills": kills, "full disks": full}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
