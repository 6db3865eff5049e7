"""A features folder against a small model of it, in any order of what may happen to one.

Runs end well, are stopped or killed at any call that changes a file; inputs and shards change. The
model knows the texts of the run in the folder and whether it is finished. The features are the
lengths of the texts (`tests.corpus.quick`).
"""

import contextlib
import itertools
import json
import os
import shutil

import filelock
import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from bert_features import extract, read_features
from bert_features.corpus import folder as folders
from bert_features.corpus.job import repair
from bert_features.corpus.status import read_status
from bert_features.errors import BertFeaturesError, OutputError
from bert_features.files import staging
from bert_features.formats.manifest import MANIFEST
from tests.corpus import quick as quick_model
from tests.corpus.runs import StopRun

_CALLS = ("link", "mkdir", "open", "remove", "rename", "replace", "rmdir", "unlink")
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_TEXTS = ["", "a\n" * 3, "a b\n\nthe jacksonville is not\n", "it is\nno\n" * 5]
_ENDS = st.one_of(
    st.just(("well", 0)),
    st.tuples(st.just("stopped"), st.integers(0, 12)),
    st.tuples(st.just("killed"), st.integers(0, 100)),
)


class Killed(BaseException):
    """Nothing catches it, and what would tidy up changes no file, as in a process that is gone."""


class Killer:
    """Ends a block at one of its calls that change a file, and fails all later ones."""

    def __init__(self, patch):
        self._left, self._locks = None, []
        for name in _CALLS:
            patch.setattr(os, name, self._wrap(getattr(os, name)))
        patch.setattr(os, "fsync", lambda descriptor: None)  # takes longer than the rest
        patch.setattr(filelock.FileLock, "acquire", self._noting(filelock.FileLock.acquire))

    @contextlib.contextmanager
    def after(self, calls):
        self._left = calls
        try:
            yield
        finally:
            was_killed, self._left = self._left < 0, None
            while self._locks:  # the system frees them
                if was_killed:
                    self._locks[-1].release(force=True)
                self._locks.pop()

    def _wrap(self, call):
        def counted(*arguments, **keywords):
            if self._left is not None and (call is not os.open or arguments[1] & _WRITING):
                self._left -= 1
                if self._left < 0:
                    raise Killed
            return call(*arguments, **keywords)

        return counted

    def _noting(self, acquire):
        def noted(lock, *arguments, **keywords):
            self._locks.append(lock)
            return acquire(lock, *arguments, **keywords)

        return noted


class Folder(RuleBasedStateMachine):
    """The folder, and the model.

    Attributes:
      inputs: the texts of each input file now.
      run: the inputs of the run in the folder, as path, content and time; None if there is none.
      state: `stopped` or `finished`; None if there is no run.
    """

    def __init__(self, config, home, killer, whole):
        super().__init__()
        self.home, self.killer, self.config_of, self.whole = home, killer, config, whole
        for folder in home.iterdir():
            shutil.rmtree(folder)
        self.texts, self.out = home / "texts", home / "out"
        self.texts.mkdir()
        self.run, self.state = None, None

    @initialize(format=st.sampled_from(["parquet", "jsonl"]), content=st.sampled_from(_TEXTS))
    def begin(self, format, content):
        self.config = self.config_of(format=format, shard_examples=3)
        self.write_input("a", content)

    # What happens.

    @rule(name=st.sampled_from("abc"), content=st.sampled_from(_TEXTS))
    def write_input(self, name, content):
        (self.texts / f"{name}.txt").write_text(content)

    @precondition(lambda self: len(list(self.texts.iterdir())) > 1)
    @rule(data=st.data())
    def remove_input(self, data):
        data.draw(st.sampled_from(sorted(self.texts.iterdir()))).unlink()

    @precondition(lambda self: any(self.out.glob("part-*")))
    @rule(data=st.data(), how=st.sampled_from(["flip", "cut", "remove"]))
    def damage(self, data, how):
        path = data.draw(st.sampled_from(sorted(self.out.glob("part-*"))))
        content = path.read_bytes()
        if how == "remove" or not content:
            path.unlink()
        else:
            path.write_bytes(content[:-1] + (bytes([content[-1] ^ 1]) if how == "flip" else b""))

    @rule(end=_ENDS, overwrite=st.booleans())
    def extract(self, end, overwrite):
        now, before = self.inputs_now(), self.visible()
        is_same = self.run is None or _contents(self.run) == _contents(now)
        has_examples = any(content for _, content, _ in now)
        try:
            is_over = self.until(end, extract, self.config, self.texts, f"{self.out}/", overwrite)
        except BertFeaturesError:
            assert not has_examples or (is_same, overwrite) == (False, False)
            assert self.visible() == before
            return
        assert not is_over or (has_examples and (is_same or overwrite))
        self.note(is_over, [self.run, now] if overwrite or self.run is None else [self.run])
        if is_over:
            # It compares sizes, not bytes.
            there = self.visible()
            assert all(before[name] == there[name] for name in self.damaged())
            assert not self.of_other_size()

    @precondition(lambda self: self.run is not None)
    @rule(end=_ENDS)
    def repair(self, end):
        before, is_whole = self.visible(), self.state == "finished" and not self.damaged()
        is_same = _contents(self.inputs_now(self.run)) == _contents(self.run)
        try:
            is_over = self.until(end, repair, self.out)
        except BertFeaturesError:
            assert (is_same, is_whole) == (False, False)
            assert self.visible() == before
            return
        self.note(is_over, [self.run])
        if is_over:
            assert not self.damaged()

    def until(self, end, call, *arguments):
        """Calls it until this end; whether it came to its own."""
        how, count = end

        def progress(counts, total):
            with pytest.raises(OutputError, match="another run is writing"):
                extract(self.config, self.texts, f"{self.out}/")
            assert read_status(self.out).state == "running"
            if how == "stopped" and counts.examples >= count:
                raise StopRun

        keywords = {"progress": progress}
        if call is extract:
            *arguments, keywords["overwrite"] = arguments
        with self.killer.after(count) if how == "killed" else contextlib.nullcontext():
            try:
                call(*arguments, **keywords)
            except (StopRun, Killed):
                return False
        return True

    # What is true then.

    def note(self, is_over, possible):
        """Takes down the run that is in the folder now, which is one of these."""
        if is_over:
            self.run, self.state = possible[-1], "finished"
            assert self.files().keys() == {MANIFEST, *self.expected()}
            return
        earlier = self.state
        try:
            manifest = json.loads((self.out / MANIFEST).read_text())
        except FileNotFoundError:
            self.run = self.state = None
            assert None in possible or len(possible) > 1
            assert not list(self.out.glob("part-*"))
            return
        there = [(entry["path"], entry["modified_ns"]) for entry in manifest["inputs"]]
        self.run = next(run for run in possible if run and [each[::2] for each in run] == there)
        self.state = read_status(self.out).state
        assert self.state == "finished" or len(possible) > 1 or earlier != "finished"

    @invariant()
    def status_is_true(self):
        if self.run is None:
            with pytest.raises(OutputError, match=r"has no _manifest.json|No such file"):
                read_status(self.out)
            return
        status = read_status(self.out)
        assert (status.state, status.holders) == (self.state, ())
        lines = [content.count("\n") for _, content, _ in self.run]
        assert status.examples == sum(lines)
        assert status.shards == sum(name.endswith(self.config.format) for name in self.expected())
        missing = {path.name for path in status.missing}
        assert missing <= self.of_other_size()
        assert status.finished_shards <= status.shards - len(missing)
        if self.state == "finished":
            assert missing == self.of_other_size()
            assert status.finished_shards == status.shards - len(missing)
        now = {each[0]: each for each in self.inputs_now(self.run)}
        assert status.changed_inputs == tuple(
            each[0] for each in self.run if now.get(each[0]) != each
        )

    @invariant()
    def reading_is_true(self):
        try:
            with read_features(self.out, verify=True) as folder:
                found = [(r.unique_id, r.features["length"].tolist()) for r in folder]
        except OutputError:
            assert self.run is None or self.state != "finished" or self.damaged()
            return
        assert self.state == "finished"
        assert not self.damaged()
        texts = "".join(content for _, content, _ in self.run).splitlines()
        assert found == [(number, [len(text)]) for number, text in enumerate(texts)]

    def inputs_now(self, run=None):
        """Path, content and time of each input, or of those of a run that are there."""
        paths = sorted(self.texts.iterdir())
        known = [each[0] for each in run or ()]
        return [
            (str(path), path.read_text(), path.stat().st_mtime_ns)
            for path in paths
            if run is None or str(path) in known
        ]

    def files(self):
        """The bytes of what is in the folder, by name; of a folder in it None."""
        paths = self.out.iterdir() if self.out.exists() else ()
        return {path.name: path.read_bytes() if path.is_file() else None for path in paths}

    def visible(self):
        """The same without hidden ones, which the next run that is not refused removes."""
        return {name: text for name, text in self.files().items() if not name.startswith(".")}

    def expected(self):
        """The files of the shards of the run as a run writes them that nothing disturbs."""
        return self.whole(self.config, _contents(self.run))

    def damaged(self):
        """The names of those whose bytes are others now."""
        there = self.files()
        return {name for name, content in self.expected().items() if there.get(name) != content}

    def of_other_size(self):
        """The features files that are gone or have another size, or whose sidecar is gone."""
        there = {name: len(content or b"") for name, content in self.files().items()}
        of_shards = f".{self.config.format}"  # the size of a sidecar is not recorded
        found = {
            name
            for name, content in self.expected().items()
            if name not in there or (name.endswith(of_shards) and there[name] != len(content))
        }
        return {name.removesuffix(".metadata.json") for name in found}


def _contents(run):
    return tuple((path.rpartition("/")[2], content) for path, content, _ in run)


@pytest.mark.slow
@pytest.mark.release
@pytest.mark.usefixtures("quick")
def test_what_may_happen_to_a_folder(config, tmp_path, monkeypatch):
    monkeypatch.setattr(quick_model, "STEP_SECONDS", 0)
    monkeypatch.setattr(staging, "_open", set())
    monkeypatch.setattr(folders, "_PATIENCE_SECONDS", 0)  # the run that is refused would wait
    numbers, known = itertools.count(), {}

    def whole(config, contents):
        key = config.format, contents
        if key not in known:
            home = tmp_path / "whole" / str(next(numbers))
            (home / "texts").mkdir(parents=True)
            for name, content in contents:
                (home / "texts" / name).write_text(content)
            extract(config, home / "texts", f"{home}/out/")
            known[key] = {path.name: path.read_bytes() for path in home.glob("out/part-*")}
        return known[key]

    (tmp_path / "home").mkdir()
    killer = Killer(monkeypatch)
    run_state_machine_as_test(
        lambda: Folder(config, tmp_path / "home", killer, whole),
        settings=settings(
            max_examples=15,
            stateful_step_count=12,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
