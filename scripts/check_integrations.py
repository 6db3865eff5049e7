"""Runs the Python of docs/integrations.md with the real libraries, and compares the vectors.

    bash scripts/check_integrations.sh [SECTION…]

Each block runs as a program of its own, after the `texts` and `query` of the page's beginning that
it uses, in a folder that has `texts.txt` and the features file, and with the service, both made by
the commands of the page. It leaves `vectors`, a row for each of its `texts` (without them, for each
line of the file). These are compared with those of
`FeatureExtractor.encode`. If it has a `query`, then `found` is the nearest text. Prints a row for
each section; exit status 1 if a block fails, or a value is beyond 1e-5.
"""

import argparse
import ast
import contextlib
import csv
import functools
import importlib.metadata
import os
import re
import shlex
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bert_features import FeatureExtractor

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "integrations.md"
TEXTS = ROOT / "tests" / "data" / "topics.csv"
TOLERANCE = 1e-5
ADDRESS = "127.0.0.1:8000"  # of the page
PROGRAM = Path(sys.executable).with_name("bert-features")

# Some libraries send usage data, or download tables at their import, unless these are set.
ENVIRONMENT = {
    "ANONYMIZED_TELEMETRY": "False",
    "HAYSTACK_TELEMETRY_ENABLED": "False",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
}

SAVE = """
import numpy
names = {"texts", "vectors", "query", "found"} & globals().keys()
numpy.savez("result.npz", **{name: numpy.asarray(globals()[name]) for name in names})
"""


@dataclass(frozen=True)
class Section:
    """A section of the page.

    Attributes:
      packages: what its `pip install` names.
      code: its Python.
      program: the same, after the lines of the page's beginning that it uses.
    """

    packages: tuple[str, ...]
    code: str
    program: str


def read_sections() -> dict[str, Section]:
    """Heading -> section, in the order of the page."""
    head, *parts = re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    examples = dict(line.split(" = ") for line in read_block(head).splitlines(keepends=True))
    return {part.partition("\n")[0]: read_section(part, examples) for part in parts}


def read_block(text: str) -> str:
    """The one block of Python in a part of the page."""
    (code,) = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return str(code)


def read_section(text: str, examples: dict[str, str]) -> Section:
    """A section of the page from its text, and the values of the names at the page's beginning."""
    code = read_block(text)
    used = {node.id for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name)}
    missing = [name for name in examples if name in used and f"\n{name} = " not in f"\n{code}"]
    lines = "".join(f"{name} = {examples[name]}" for name in missing)
    installs = re.findall(r"`pip install ([^`]+)`", text)
    return Section(tuple(name for names in installs for name in names.split()), code, lines + code)


def read_commands(name: str) -> list[list[str]]:
    """The arguments of each command of the page: `serve` or `extract`."""
    lines = re.findall(rf"^bert-features ({name} .*)$", PAGE.read_text("utf-8"), re.MULTILINE)
    return [shlex.split(line) for line in lines]


def write_files(folder: Path) -> list[str]:
    """Writes `texts.txt` and its features, as the page says; the texts."""
    with TEXTS.open(encoding="utf-8", newline="") as file:
        texts = [row["text"] for row in csv.DictReader(file)]
    (folder / "texts.txt").write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    for command in read_commands("extract"):
        subprocess.run([PROGRAM, *command], cwd=folder, check=True)
    return texts


@contextlib.contextmanager
def service() -> Iterator[str]:
    """Starts the page's service at a free port; its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (command,) = read_commands("serve")
    process = subprocess.Popen([PROGRAM, *command, "--port", str(port)])
    try:
        for _ in range(120):
            if process.poll() is not None:
                raise SystemExit(f"the service ended with status {process.returncode}")
            time.sleep(1)
            with (
                contextlib.suppress(urllib.error.URLError),
                urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=10),
            ):
                yield f"127.0.0.1:{port}"
                return
        raise SystemExit("the service did not answer within two minutes")
    finally:
        process.terminate()
        process.wait()


def run_block(code: str, folder: Path) -> dict[str, np.ndarray]:
    """Runs code as a program in a folder; its `texts`, `vectors`, `query` and `found`.

    Raises:
      CalledProcessError: it fails; `output` has what it printed.
    """
    (folder / "result.npz").unlink(missing_ok=True)
    (folder / "block.py").write_text(code + SAVE, encoding="utf-8")
    subprocess.run(
        [sys.executable, "block.py"],
        cwd=folder,
        env=os.environ | ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
        timeout=600,
    )
    with np.load(folder / "result.npz") as found:
        return dict(found)


@functools.cache
def make_extractor(**settings: object) -> FeatureExtractor:
    """The extractor of these settings, made once."""
    return FeatureExtractor.from_checkpoint("minilm", **settings)


def encode(texts: list[str]) -> np.ndarray:
    """float32 [N, D], what the blocks' vectors are compared with."""
    return np.asarray(make_extractor(level="sequence", pooling="auto").encode(texts))


def encode_words(texts: list[str]) -> np.ndarray:
    """float32 [words, D], each the mean over the characters of a word or a mark in its text."""
    extractor = make_extractor(level="span", layers=-1)
    spans = [[match.span() for match in re.finditer(r"\w+|[^\w\s]", text)] for text in texts]
    return np.asarray(extractor.encode(texts, spans=spans, ragged=True).values)


def compare(name: str, result: dict[str, np.ndarray], lines: list[str]) -> float:
    """The greatest difference between a block's vectors and those of `encode`.

    Raises ValueError if there are others, or another text was found.
    """
    texts = result["texts"].tolist() if "texts" in result else lines
    wanted = (encode_words if name == "spaCy" else encode)(texts)
    vectors = result["vectors"]
    if vectors.shape != wanted.shape:
        raise ValueError(f"vectors has shape {vectors.shape}; encode gives {wanted.shape}")
    if "query" in result:
        nearest = texts[int((wanted @ encode([result["query"].item()])[0]).argmax())]
        if result["found"].item() != nearest:
            raise ValueError(f"found {result['found'].item()!r}; the nearest is {nearest!r}")
    difference = float(np.abs(vectors - wanted).max())
    if not difference <= TOLERANCE:
        raise ValueError(f"vectors differ by {difference:.1e}")
    return difference


def main() -> int:
    """Runs the blocks; the exit status."""
    sections = read_sections()
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("sections", nargs="*", metavar="SECTION", help="a heading; by default all")
    names = parser.parse_args().sections or list(sections)
    if unknown := [name for name in names if name not in sections]:
        parser.error(f"no section is called {unknown[0]!r}; the sections are {list(sections)}")
    failed = 0
    with tempfile.TemporaryDirectory() as root, service() as address:
        folder = Path(root)
        lines = write_files(folder)
        for name in names:
            section, started = sections[name], time.monotonic()
            versions = [f"{each} {importlib.metadata.version(each)}" for each in section.packages]
            try:
                result = run_block(section.program.replace(ADDRESS, address), folder)
                said = f"{compare(name, result, lines):.1e}"
            except subprocess.CalledProcessError as error:
                said = f"failed\n{error.output}"
            except ValueError as error:
                said = f"failed: {error}"
            failed += said.startswith("failed")
            seconds = time.monotonic() - started
            print("|", name, "|", ", ".join(versions), "|", f"{seconds:.0f} s |", said, flush=True)
    print(f"{len(names) - failed} of {len(names)} have the vectors of encode within {TOLERANCE}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
