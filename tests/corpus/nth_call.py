"""Small runs whose n-th call of the file system fails, or kills the run, for every n.

A program, as a fork of it must not have loaded TensorFlow: it prints, as JSON, how many calls each
case has and what was wrong afterwards. Of a folder, every second call fails and the others kill.
It may be told to try one in STEP of these. See `test_nth_call.py`.
"""

import builtins
import contextlib
import errno
import functools
import io
import json
import os
import shutil
import sys
import traceback
from pathlib import Path

import numpy as np

from bert_features import extract
from bert_features.config.extract_config import ExtractConfig
from bert_features.corpus.job import repair
from bert_features.corpus.status import read_status
from bert_features.errors import BertFeaturesError
from bert_features.files import staging
from bert_features.formats import FORMATS, SUFFIXES, open_writer, read_features
from bert_features.formats.records import FeatureBatch
from tests.corpus import quick
from tests.corpus.quick import LENGTH
from tests.corpus.runs import SETTINGS

OS_CALLS = ["open", "fsync", "rename", "replace", "link", "unlink", "remove", "mkdir", "rmdir"]
OS_CALLS += ["truncate", "close"]
STORE_CALLS = ["pipe_file", "put_file", "rm", "cat_file", "info", "ls"]
KILLED, FAILED, BUG = 9, 1, 2


class Killed(BaseException):
    """Ends a run that cannot be killed: the store is in the memory of this process."""


class Calls:
    """Counts the calls of the file system below a folder, or of a store in memory.

    Args:
      root: the folder.
      wanted: the number of the call that fails, from 1; 0 for none.
      kill: whether that call ends the process instead.
    """

    def __init__(self, root, wanted=0, *, kill=False):
        self.root, self.wanted, self.kill, self.count = str(root), wanted, kill, 0

    def is_due(self):
        self.count += 1
        if self.count == self.wanted and self.kill:
            os._exit(KILLED)
        return self.count == self.wanted

    def fail(self):
        if self.is_due():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def is_below(self, place, dir_fd):
        if dir_fd is not None or isinstance(place, int):
            with contextlib.suppress(OSError):
                number = place if dir_fd is None else dir_fd
                return str(Path(f"/proc/self/fd/{number}").readlink()).startswith(self.root)
            return False
        return os.fspath(place).startswith(self.root)

    @contextlib.contextmanager
    def patched(self):
        """In the block, calls are counted."""
        with contextlib.ExitStack() as stack:

            def patch(owner, name, make):
                stack.callback(setattr, owner, name, getattr(owner, name))
                setattr(owner, name, make(getattr(owner, name)))

            for name in OS_CALLS:
                patch(os, name, functools.partial(self._wrapped, after=name == "close"))
            patch(io, "open", self._opening)
            patch(builtins, "open", self._opening)
            patch(staging._SteadyFile, "_attempt", self._writing)
            patch(staging._SteadyFile, "close", self._closing)
            yield self

    def _wrapped(self, call, *, after):
        def wrapped(place, *arguments, dir_fd=None, **options):
            options |= {} if dir_fd is None else {"dir_fd": dir_fd}
            below = self.is_below(place, dir_fd)
            if after:  # a file whose closing fails is closed
                call(place)
            if below:
                self.fail()
            return None if after else call(place, *arguments, **options)

        return wrapped

    def _opening(self, call):
        def wrapped(place, mode="r", *arguments, **options):
            if not isinstance(place, int) and self.is_below(place, None):
                self.fail()
                if set(mode) & set("wxa") and self.is_due():  # what is written to it
                    call(place, mode).close()
                    return call("/dev/full", mode.replace("x", "w"), *arguments, **options)
            return call(place, mode, *arguments, **options)

        return wrapped

    def _writing(self, call):
        def attempt(file, write, *arguments):
            def checked(data):
                self.fail()
                return write(data)

            return call(file, checked, *arguments)

        return attempt

    def _closing(self, call):
        def close(file):
            was_open = not file.closed
            call(file)
            if was_open:
                self.fail()

        return close


class StoreCalls(Calls):
    """The same of fsspec's store in memory; a kill ends the run, and no call works afterwards."""

    def fail(self):
        self.count += 1
        if self.kill and self.wanted and self.count >= self.wanted:
            raise Killed
        if self.count == self.wanted:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    @contextlib.contextmanager
    def patched(self):
        from fsspec.implementations.memory import MemoryFileSystem

        def make(call):
            def wrapped(*arguments, **options):
                self.fail()
                return call(*arguments, **options)

            return wrapped

        with contextlib.ExitStack() as stack:
            for name in STORE_CALLS:
                call = getattr(MemoryFileSystem, name)
                stack.callback(setattr, MemoryFileSystem, name, call)
                setattr(MemoryFileSystem, name, make(call))
            yield self


class FileCase:
    """A features file of one format, of two batches."""

    step = 1  # one in so many calls fails, and one kills

    def __init__(self, folder, format, texts, checkpoint):
        self.root, self.format = folder, format
        suffix = next(suffix for suffix, name in SUFFIXES.items() if name == format)
        self.path = folder / f"f{suffix}"
        folder.mkdir()

    def run(self):
        options = {"format": self.format, "features": (LENGTH,), "metadata": {}}
        with open_writer(self.path, overwrite=self.is_whole(), **options) as writer:
            for first in (0, 3):
                ids = np.arange(first, first + 3)
                values = np.ones((3, 1), np.float32)
                writer.write(FeatureBatch(ids, {"length": values}))

    def is_whole(self):
        return self.path.exists() and len(read_features(self.path)) == 6

    def contents(self):
        return {path.name: path.is_file() and path.read_bytes() for path in self.root.iterdir()}

    def clear(self):
        shutil.rmtree(self.root)
        self.root.mkdir()

    def call(self, calls):
        """A run, in a fork if it is killed; how it ended and what it said."""
        if not calls.kill:
            with calls.patched():
                return attempt(self.run)
        reading, writing = os.pipe()
        if process := os.fork():
            os.close(writing)
            with os.fdopen(reading) as pipe:
                said = pipe.read()
            return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), said
        status = BUG
        with os.fdopen(writing, "w") as pipe:
            try:
                with calls.patched():
                    status, said = attempt(self.run)
                pipe.write(said)
                pipe.flush()
            finally:
                os._exit(status)

    def calls(self, *arguments, **options):
        return Calls(self.root, *arguments, **options)


class FolderCase(FileCase):
    """A folder of two shards."""

    step = 2

    def __init__(self, folder, format, texts, checkpoint):
        self.root, self.texts = folder, texts
        self.config = ExtractConfig.of(
            {"checkpoint": checkpoint, **SETTINGS, "format": format, "shard_examples": 4}
        )

    def run(self):
        extract(self.config, self.texts, f"{self.root}/")

    def is_whole(self):
        with contextlib.suppress(BertFeaturesError):
            return read_status(self.root).is_whole and len(read_features(self.root)) == 8
        return False

    def contents(self):
        return super().contents() if self.root.exists() else {}

    def clear(self):
        shutil.rmtree(self.root, ignore_errors=True)


class RepairCase(FolderCase):
    """A folder of two shards, of which one is damaged."""

    def run(self):
        if self.root.exists():
            repair(self.root)
        else:
            super().run()
            self._whole = self.contents()

    def clear(self):
        super().clear()
        self.root.mkdir()
        for name, content in self._whole.items():
            (self.root / name).write_bytes(content)
        (damaged,) = self.root.glob("part-00001*.npz")
        damaged.write_bytes(b"damaged")

    def is_whole(self):
        return super().is_whole() and self.contents().get(".finished") is None


class MemoryCase(FolderCase):
    """The same folder in an object store."""

    step = 1

    def __init__(self, folder, format, texts, checkpoint):
        super().__init__(folder, format, texts, checkpoint)
        self.root = "memory://bucket/run"

    def contents(self):
        import fsspec

        return {
            name.removeprefix("/bucket/run/"): file.getvalue()
            for name, file in fsspec.filesystem("memory").store.items()
        }

    def clear(self):
        import fsspec

        fsspec.filesystem("memory").store.clear()

    def call(self, calls):
        with calls.patched():
            try:
                return attempt(self.run)
            except Killed:
                return KILLED, ""

    def calls(self, *arguments, **options):
        return StoreCalls(self.root, *arguments, **options)


def attempt(run):
    try:
        run()
    except BertFeaturesError as error:
        return FAILED, str(error)
    except Exception:
        return BUG, traceback.format_exc()
    return 0, ""


def visible(contents):
    return {name for name in contents if not name.startswith(".")}


def problems_of(case, step):
    """How many calls a run has, and what was wrong."""
    case.run()
    found = []
    whole = case.contents()
    case.clear()
    with (calls := case.calls()).patched():
        case.run()
    assert case.contents().keys() == whole.keys()
    for kill in (False, True):
        for number in range(1, calls.count + 1):
            if (number + kill) % (step * case.step):
                continue
            case.clear()
            before = case.contents()
            status, said = case.call(case.calls(number, kill=kill))
            for problem in judge(case, whole, before, status, said, kill):
                found.append(f"{'kill' if kill else 'fail'} at call {number}: {problem}")
    return calls.count, found


def judge(case, whole, before, status, said, kill):
    there = case.contents()
    # Well, if this run has fewer calls than the one that was counted, as with threads it may.
    if status not in (0, KILLED if kill else FAILED):
        yield f"it ended with {status}: {said}"
    if status == FAILED and (not said.isprintable() or len(said) > 300):
        yield f"its error is not a line: {said}"
    if status == 0 and not case.is_whole():
        yield "it ended well, and its output is not whole"
    is_new = not isinstance(case, FolderCase) and visible(there) - visible(before)
    if is_new and "nothing was left behind" in said:
        yield f"there is {visible(there)}, and it said: {said}"
    for name in visible(there):
        known = {whole.get(name), before.get(name)}
        if there[name] not in known and not name.endswith("manifest.json"):
            yield f"{name} has other bytes"
    try:
        case.run()
    except Exception as error:
        yield f"the next run failed: {error!r}, after: {said}, with {sorted(there)}"
        return
    after = case.contents()
    if after.keys() != whole.keys():
        yield f"after the next run there is {sorted(after.keys() ^ whole.keys())}, after: {said}"
    for name in after.keys() & whole.keys():
        if after[name] != whole[name] and not name.endswith("manifest.json"):
            yield f"{name} has other bytes after the next run"


def cases(folder, texts, checkpoint):
    """The cases, by name; the files of each are in a folder of its own."""
    kinds = {"folder": (FolderCase, "jsonl"), "repair": (RepairCase, "npz")}
    kinds |= {"memory": (MemoryCase, "jsonl")}
    # TFRecord is the last one, as it loads TensorFlow.
    kinds |= {format: (FileCase, format) for format in FORMATS}
    for name, (kind, format) in kinds.items():
        yield name, kind(folder / name, format, texts, checkpoint)


def main():
    folder, checkpoint, step, *names = sys.argv[1:]
    quick.install()
    quick.STEP_SECONDS = 0
    os.fsync = lambda file: None  # the power stays on
    texts = Path(folder, "in.txt")
    texts.write_text("".join(f"{'a ' * i}\n" for i in range(8)))
    found = {}
    for name, case in cases(Path(folder), texts, checkpoint):
        if names and name not in names:
            continue
        found[name] = problems_of(case, int(step))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
