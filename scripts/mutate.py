"""Measures how many small faults in a room its tests notice.

    pip install coverage
    python scripts/mutate.py encoder --changes 40 --seed 1
    python scripts/mutate.py encoder --changes 40 --seed 1 --pick 3,17 --others runtime check

Draws changes of comparisons, signs, sums, products, `and`, `or`, `not` and whole numbers (off by
one) in bert_features/ROOM. Each meets the tests of tests/ROOM that executed its line, then the
other tests of the room, tests/test_messages.py, and the tests of the rooms `--others`. It is
noticed if a test fails, the process ends, or the tests take over four times as long. Types,
decorators, asserts, log messages, f-strings and `__repr__` are not drawn.

The tests run in copies of this checkout, in the folder `--work`, which also keeps the tests that
executed each line until the room changes. BERT_FEATURES_LARGE_DATA names the optional large files.

Why not mutmut or cosmic-ray: they start a process for each change, and importing TensorFlow takes
longer than most tests. Here each change has a process forked from one that imported TensorFlow.
"""

import argparse
import ast
import contextlib
import functools
import hashlib
import importlib
import itertools
import json
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
# What takes long to import. Nothing computes before the fork.
_HEAVY = ("tensorflow", "keras", "tensorflow_text", "jax", "pyarrow.parquet", "h5py")
_SWAPS = {
    **{ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">")},
    **{ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.Is: ("is", "is not")},
    **{ast.IsNot: ("is not", "is"), ast.In: ("in", "not in"), ast.NotIn: ("not in", "in")},
    **{ast.And: ("and", "or"), ast.Or: ("or", "and"), ast.Add: ("+", "-"), ast.Sub: ("-", "+")},
    **{ast.Mult: ("*", "+"), ast.FloorDiv: ("//", "*"), ast.Mod: ("%", "*")},
}
_FEW = 40  # tests of a quick run
_LOGS = {"log", "_log", "logger", "_logger", "logging", "warnings"}
_Span = tuple[int, int, str]  # first byte, byte behind the last, the text for them


class Change(NamedTuple):
    """A small fault: a module of the checkout, its line, and the bytes that differ."""

    path: str
    line: int
    span: _Span

    def apply(self, source: bytes) -> bytes:
        """The source of the module with the fault."""
        start, end, text = self.span
        return source[:start] + text.encode() + source[end:]


def find_changes(path: Path) -> list[Change]:
    """All changes of a module, in the order of its syntax tree."""
    source = path.read_bytes()
    starts = list(itertools.accumulate(map(len, source.splitlines(keepends=True)), initial=0))

    def begin(node: ast.expr) -> int:
        return starts[node.lineno - 1] + node.col_offset

    def end(node: ast.expr) -> int:
        return starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)

    def spans(node: ast.AST) -> Iterator[_Span]:
        for operator, left, right in _operators(node):
            old, new = _SWAPS.get(type(operator), ("", ""))
            start = source.find(old.encode(), end(left), begin(right))
            if old:
                yield start, start + len(old), new
        match node:
            case ast.UnaryOp(op=ast.Not() | ast.USub()):
                start, stop = begin(node), begin(node.operand)
                yield start, stop, " " + "(" * source.count(b"(", start, stop)
            case ast.Constant(value=int(value)) if not isinstance(value, bool):
                yield begin(node), end(node), str(value + 1)

    name = str(path.relative_to(ROOT))
    return [
        Change(name, source.count(b"\n", 0, span[0]) + 1, span)
        for node in _drawn(ast.parse(source))
        for span in spans(node)
    ]


def _operators(node: ast.AST) -> Iterator[tuple[ast.AST, ast.expr, ast.expr]]:
    """The binary operators of a node, each with its operands."""
    match node:
        case ast.Compare(left=left, ops=operators, comparators=others):
            yield from zip(operators, [left, *others], others, strict=False)
        case ast.BoolOp(op=operator, values=values):
            yield from ((operator, *pair) for pair in itertools.pairwise(values))
        case ast.BinOp(op=operator, left=left, right=right):
            texts = (ast.JoinedStr, ast.Constant)
            if not any(
                isinstance(getattr(o, "value", ""), str | bytes) and isinstance(o, texts)
                for o in (left, right)
            ):
                yield operator, left, right
        case ast.AugAssign(op=operator, target=left, value=right):
            yield operator, left, right


def _drawn(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a tree without types, decorators, asserts, log messages and texts."""
    match node:
        case ast.JoinedStr() | ast.Assert() | ast.FunctionDef(name="__repr__"):
            return
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name))) if name in _LOGS:
            return
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return
    yield node
    for field, value in ast.iter_fields(node):
        if field not in ("annotation", "returns", "decorator_list"):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from _drawn(child)


def in_child(checkout: Path, call: Callable[[], Any], result: Path, seconds: float) -> Any:
    """What `call` returns in a process forked for it, in `checkout`; None if it ends or is late."""
    result.unlink(missing_ok=True)
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            # A shell ignores it for what it starts with `&`, and tests send it to children.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            os.chdir(checkout)
            sys.path[0] = os.environ["PYTHONPATH"] = str(checkout)
            log = os.open(result.with_suffix(".log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(log, 1)
            os.dup2(log, 2)
            text = json.dumps(call())
            result.write_text(text)
        finally:
            os._exit(0)
    ends = time.monotonic() + seconds
    while not (ended := os.waitpid(pid, os.WNOHANG)[0]) and time.monotonic() < ends:
        time.sleep(0.05)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)  # the tests, or what they left behind
    if not ended:
        os.waitpid(pid, 0)
    return json.loads(result.read_text()) if result.exists() else None


class _Tests:
    """A plugin of pytest: chosen tests in their order, their seconds, and those that failed."""

    def __init__(
        self, order: list[str] | None = None, coverage: Any = None, room: str = ""
    ) -> None:
        self.room = room
        self.order = None if order is None else {name: place for place, name in enumerate(order)}
        self.coverage = coverage
        self.seconds: dict[str, float] = {}
        self.failed: list[str] = []

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if (order := self.order) is not None:
            items[:] = [item for item in items if item.nodeid in order]
            items.sort(key=lambda item: order[item.nodeid])

    def pytest_collection_finish(self) -> None:
        """Imports all modules, so that their lines outside functions are no single test's."""
        for path in Path(self.room).rglob("[!_]*.py") if self.coverage else ():
            with contextlib.suppress(Exception):  # needs another backend or extra
                importlib.import_module(".".join(path.with_suffix("").parts))

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        if self.coverage:
            self.coverage.switch_context(nodeid)
        self.seconds[nodeid] = time.monotonic()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self.seconds[nodeid] = time.monotonic() - self.seconds[nodeid]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid)


def run_tests(paths: list[str], order: list[str] | None = None) -> dict[str, Any]:
    """Runs tests until one fails; for a child. Returns pytest's status and the failed tests."""
    plugin, folder = _Tests(order), tempfile.mkdtemp(prefix="mutate")
    options = ["-xq", "-pno:cacheprovider", f"--basetemp={folder}/tests"]
    try:
        return {"status": pytest.main([*options, *paths], [plugin]), "failed": plugin.failed}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def record_tests(room: str) -> dict[str, Any]:
    """Runs the tests of a room: their seconds, those that failed, those that executed each line."""
    import coverage

    folder = f"bert_features/{room}"
    cover = coverage.Coverage(data_file=None, source=[folder], config_file=False)
    plugin = _Tests(coverage=cover, room=folder)
    cover.start()
    pytest.main(["-q", "-pno:cacheprovider", f"tests/{room}"], plugins=[plugin])
    cover.stop()
    data = cover.get_data()
    return {
        "seconds": {name: s for name, s in plugin.seconds.items() if name not in plugin.failed},
        "failed": plugin.failed,
        "lines": {os.path.relpath(f): data.contexts_by_lineno(f) for f in data.measured_files()},
    }


def _module(test: str) -> str:
    return test.partition("::")[0]


def _stages(tests: dict[str, Any], change: Change) -> Iterator[list[str]]:
    """The tests that executed the changed line, its module's and quick ones first; then others."""
    lines = tests["lines"].get(change.path, {})
    names = lines.get(str(change.line), [])
    if names == [""]:  # as the module is imported
        names = [name for each in lines.values() for name in each]
    covering = {name for name in names if name in tests["seconds"]}
    seconds: Counter[str] = Counter()
    for name in covering:
        seconds[_module(name)] += tests["seconds"][name]

    def key(name: str) -> tuple[bool, bool, float]:
        other = Path(_module(name)).stem != f"test_{Path(change.path).stem}"
        return other, _module(name) not in seconds, seconds[_module(name)]

    ordered = sorted(tests["seconds"], key=key)  # keeps the order within a module
    yield [name for name in ordered if name in covering]
    yield [name for name in ordered if name not in covering]


def judge(
    change: Change, tests: dict[str, Any], others: list[str], checkout: Path, quick: bool
) -> str:
    """The test that notices a change, or that it survives."""
    source, seconds = (checkout / change.path).read_bytes(), tests["seconds"]
    executed, rest = _stages(tests, change)
    stages = [
        ([*dict.fromkeys(map(_module, order))], order, 30 + 4 * sum(map(seconds.get, order)))
        for order in ([executed[:_FEW]] if quick else [executed, rest])
        if order
    ]
    stages += [([f"tests/{room}"], None, 1200) for room in ("test_messages.py", *others)]
    try:
        (checkout / change.path).write_bytes(change.apply(source))
        for paths, order, limit in stages:
            run = functools.partial(run_tests, paths, order)
            done = in_child(checkout, run, checkout.with_suffix(".json"), limit)
            if done is None:
                return f"ended early or late: {paths[0]}"
            if done["status"] not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
                return str((done["failed"] or [f"not importable: {paths[0]}"])[0])
        return f"survives {len(executed)} tests that execute the line"
    finally:
        (checkout / change.path).write_bytes(source)


def copy_checkout(folder: Path) -> Path:
    """Copies the files that git tracks or would; compiled by hash, as changes may keep the size."""
    shutil.rmtree(folder, ignore_errors=True)
    listed = ["git", "ls-files", "-co", "--exclude-standard"]
    for name in subprocess.check_output(listed, cwd=ROOT, text=True).splitlines():
        if os.path.lexists(ROOT / name):  # a link may be of a folder
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)
    compiling = ["compileall", "-q", "--invalidation-mode", "checked-hash"]
    subprocess.run([sys.executable, "-m", *compiling, folder], check=False)
    return folder


def import_heavy(checkout: Path) -> None:
    """Imports what children share. This package sets the environment first, and is forgotten."""
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(checkout))
    for name in ("bert_features", *_HEAVY):
        importlib.import_module(name)
    for name in [name for name in sys.modules if name.partition(".")[0] == "bert_features"]:
        del sys.modules[name]


def main() -> None:
    """Draws changes, judges them in parallel, and prints each with the test that noticed it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("room")
    parser.add_argument("--changes", type=int, default=40, help="changes to draw")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pick", default="", help="numbers of drawn changes to run, as 3,17")
    parser.add_argument(
        "--quick", action="store_true", help=f"at most {_FEW} tests that executed the line"
    )
    parser.add_argument("--others", nargs="*", default=[], help="rooms whose tests run too")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "mutate")
    options = parser.parse_args()
    modules = sorted((ROOT / "bert_features" / options.room).rglob("*.py"))
    changes = [change for path in modules for change in find_changes(path)]
    drawn = random.Random(options.seed).sample(changes, min(options.changes, len(changes)))
    numbers = [int(n) for n in options.pick.split(",") if n] or [*range(len(drawn))]
    code = [*modules, *sorted((ROOT / "tests" / options.room).rglob("*.py"))]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in code)).hexdigest()[:12]
    stored = options.work / f"{options.room}-{digest}.json"

    copies = [copy_checkout(options.work / f"{options.room}{n}") for n in range(options.jobs)]
    import_heavy(copies[0])
    if not stored.exists():
        importlib.import_module("coverage")
        if in_child(copies[0], lambda: record_tests(options.room), stored, 3600) is None:
            sys.exit(f"the tests of {options.room} ended early; see {stored.with_suffix('.log')}")
    tests = json.loads(stored.read_text())
    print(f"{len(changes)} changes, {len(tests['seconds'])} tests, without {tests['failed']}")

    context = multiprocessing.get_context("fork")
    results: Any = context.SimpleQueue()

    def work(job: int) -> None:
        for number in numbers[job :: options.jobs]:
            results.put(
                (number, judge(drawn[number], tests, options.others, copies[job], options.quick))
            )

    for job in range(options.jobs):
        context.Process(target=work, args=(job,)).start()
    survivors = 0
    for _ in numbers:
        number, verdict = results.get()
        survivors += verdict.startswith("survives")
        change = drawn[number]
        source = (ROOT / change.path).read_bytes()
        print(f"{number} {change.path}:{change.line} {verdict}")
        for sign, text in (("-", source), ("+", change.apply(source))):
            print(f"    {sign} {text.splitlines()[change.line - 1].decode().strip()}", flush=True)
    print(f"{len(numbers) - survivors} of {len(numbers)} changes noticed")


if __name__ == "__main__":
    main()
