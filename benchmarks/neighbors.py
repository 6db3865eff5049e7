"""How long `bert_features.nearest` takes, and how much memory.

    .venv/bin/python benchmarks/neighbors.py FOLDER [--vectors 1000000] [--width 384]
        [--formats npz arrow parquet] [--dtype float32] [--queries 1 100] [--rounds 3] [--keep]
        [--faiss .venv-benchmark-faiss/bin/python]

Writes random vectors to FOLDER, one file of each format, and searches each for the ten
nearest vectors of some queries. Each search runs in a process of its own. It prints the seconds of
the search alone, then the largest resident memory of that process: all of it, and the part that is
no page of a file, looked up every few milliseconds. The system takes pages of a file back when it
needs room. The prediction is the time to read the bytes once, measured with plain
reads, plus the time of the matrix product, measured in NumPy.

With --faiss, the Python of an environment with faiss: searches of an open file, each beside one of
a flat index of the same vectors in memory, by turns; the lowest and the median of the times.
"""

import argparse
import multiprocessing
import resource
import subprocess
import threading
import time
from pathlib import Path
from statistics import median

import numpy as np

from bert_features.formats import open_writer, read_features
from bert_features.formats.records import Feature, FeatureBatch
from bert_features.formats.small_vectors import quantize
from bert_features.neighbors.nearest import nearest

BATCH = 1024
BLOCK_BYTES = 16 << 20
FAISS = """
import sys, time, faiss, numpy as np
vectors, queries = (np.load(path) for path in sys.argv[1:])
faiss.normalize_L2(vectors)
index = faiss.IndexFlatIP(vectors.shape[1])
index.add(vectors)
del vectors
for _ in sys.stdin:
    begin = time.perf_counter()
    rows = index.search(queries, 10)[1]
    print(time.perf_counter() - begin, *rows[0], flush=True)
"""


def main() -> None:
    """Prints a line for each format and number of queries."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--vectors", type=int, default=1_000_000)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--formats", nargs="+", default=["npz", "arrow", "parquet"])
    parser.add_argument("--dtype", choices=["float32", "int8", "binary"], default="float32")
    parser.add_argument("--queries", nargs="+", type=int, default=[1, 100])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--faiss", help="Python of an environment with faiss-cpu")
    parser.add_argument("--keep", action="store_true", help="keep the files for another run")
    arguments = parser.parse_args()
    for format in arguments.formats:
        path = arguments.folder / f"{arguments.dtype}.{format}"
        if not path.exists():
            write(path, format, arguments.vectors, arguments.width, arguments.dtype)
        for queries in arguments.queries:
            if arguments.faiss:
                beside_faiss(arguments.faiss, path, arguments.width, queries, arguments.rounds)
                continue
            predicted = seconds_to_read(path) + seconds_to_multiply(
                arguments.vectors, arguments.width, queries
            )
            runs = [run(path, arguments.width, queries) for _ in range(arguments.rounds)]
            seconds, peak, own = (median(values) for values in zip(*runs, strict=True))
            print(
                f"{format:<8} {queries:>4} queries: predicted {predicted:6.2f} s, "
                f"took {seconds:6.2f} s; peak {peak:6.0f} MB, "
                f"{own:5.0f} MB without pages of files",
                flush=True,
            )
        if not arguments.keep:
            path.unlink()


def write(path: Path, format: str, count: int, width: int, dtype: str) -> None:
    """Writes random vectors of level sequence."""
    scale = ((-5.0,) * width, (5.0,) * width) if dtype == "int8" else ()
    feature = Feature("text", (-1,), "none", width, dtype, "sequence", "mean", scale=scale)
    rng = np.random.default_rng(0)
    with open_writer(path, format=format, features=[feature], metadata={}) as writer:
        for start in range(0, count, BATCH):
            ids = np.arange(start, min(start + BATCH, count))
            vectors = rng.standard_normal((len(ids), width), np.float32)
            writer.write(quantize(FeatureBatch(ids, {"text": vectors}), [feature]))


def seconds_to_read(path: Path) -> float:
    """The time to read a file once."""
    begin = time.perf_counter()
    with path.open("rb", buffering=0) as file:
        while file.read(BLOCK_BYTES):
            pass
    return time.perf_counter() - begin


def seconds_to_multiply(count: int, width: int, queries: int) -> float:
    """The time of the matrix product, by blocks that fit the processor's cache."""
    rng = np.random.default_rng(0)
    block = rng.standard_normal((BATCH, width), np.float32)
    wanted = rng.standard_normal((width, queries), np.float32)
    begin = time.perf_counter()
    for _ in range(0, count, BATCH):
        block @ wanted
    return time.perf_counter() - begin


def run(path: Path, width: int, queries: int) -> tuple[float, float, float]:
    """Seconds of a search in a process of its own, its peak memory, and that without files, MB."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_search, (path, width, queries))


def beside_faiss(python: str, path: Path, width: int, queries: int, rounds: int) -> None:
    """Prints the milliseconds of searches of an open file and of faiss, which find the same."""
    wanted = np.random.default_rng(1).standard_normal((queries, width)).astype(np.float32)
    inputs = [path.with_suffix(suffix) for suffix in (".vectors.npy", ".queries.npy")]
    times: dict[str, list[float]] = {"bert_features": [], "faiss": []}
    with read_features(path) as file:
        for each, values in zip(inputs, (file.ragged("text")[0], wanted), strict=True):
            np.save(each, values.astype(np.float32))
        command = [python, "-c", FAISS, *map(str, inputs)]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
            assert process.stdin
            assert process.stdout
            for _ in range(rounds):
                begin = time.perf_counter()
                found = nearest(file, wanted)
                times["bert_features"].append(1e3 * (time.perf_counter() - begin))
                process.stdin.write("\n")
                process.stdin.flush()
                seconds, *rows = process.stdout.readline().split()
                times["faiss"].append(1e3 * float(seconds))
                assert [hit.record for hit in found[0]] == list(map(int, rows))
            process.stdin.close()
    for name, each in times.items():
        print(
            f"{path.suffix[1:]:<8} {queries:>4} queries: {name:<13} {min(each):7.1f} ms at ", end=""
        )
        print(f"least, median {median(each):7.1f}", flush=True)
    for each in inputs:
        each.unlink()


def _search(path: Path, width: int, queries: int) -> tuple[float, float, float]:
    wanted = np.random.default_rng(1).standard_normal((queries, width))
    own: list[float] = []
    ended = threading.Event()
    watch = threading.Thread(target=_watch, args=(own, ended))
    watch.start()
    begin = time.perf_counter()
    found = nearest(path, wanted)
    seconds = time.perf_counter() - begin
    ended.set()
    watch.join()
    assert [len(hits) for hits in found] == [10] * queries
    return seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3, max(own)


def _watch(own: list[float], ended: threading.Event) -> None:
    """Notes the resident memory that is no page of a file, in MB."""
    while not ended.wait(0.005):
        status = Path("/proc/self/status").read_text(encoding="utf-8")
        sizes = dict(line.split(":", 1) for line in status.splitlines())
        own.append(int(sizes["RssAnon"].split()[0]) / 1e3)


if __name__ == "__main__":
    main()
