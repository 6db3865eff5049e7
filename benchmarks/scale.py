"""Whether a long run stays as it begins: its memory, its speed, and how soon it resumes.

    .venv/bin/python benchmarks/scale.py FOLDER [--lines 1000000 10000000] [--processes 1]
    .venv/bin/python benchmarks/scale.py FOLDER --steps --lines 100 10000 100000 1000000
    .venv/bin/python benchmarks/scale.py FOLDER --steps --lines 10 1000 10000 --words 100 500
    .venv/bin/python benchmarks/scale.py FOLDER --shuffle 1 10 [--buffer-mb 256]

For each number of lines, a file of short lines is made from a seed, and `bert-features extract`
writes a folder of shards from it: one vector for each line, of a toy encoder of two layers, so that
the pipeline is measured and not the encoder. Its memory and its finished shards are looked at twice
a second. The longest run is then repeated and killed at its half. The same command resumes it, and
the time until it computes again is taken; the shards must have the checksums of the first.

With `--steps` it asks instead whether each step grows in a straight line: the run, reading back
record by record, `check`, `neighbors` by an id, and the same with `--texts`. Each is a process of
its own. Prints its CPU seconds, its peak memory, and the CPU time of a text beyond the first size,
which is mostly start. `--words` makes documents, which the toy reads in windows; `--output` may
name one file instead of a folder, by its suffix.

With `--shuffle` features of these gigabytes, two layers of 384 float32 for each token, are shuffled
with `--buffer-mb` of memory. Prints for each size the seconds, the CPU seconds and the peak memory,
beside those of writing the same rows in the order of the source.

FOLDER needs 400 bytes for each line of the longest run, and 20 for each word of documents; four
times the gigabytes of `--shuffle`. All that is written there is removed.
"""

import argparse
import contextlib
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from bert_features import ExtractConfig, extract, read_features
from bert_features.checkpoints.find import find_checkpoint
from bert_features.checkpoints.weights.weight_names import stored_shapes, weights
from bert_features.config.bert_config import BertConfig
from bert_features.corpus.shards import describe_shard
from bert_features.corpus.status import read_status
from bert_features.extraction.counts import Counts
from bert_features.formats import open_writer
from bert_features.formats.manifest import Manifest
from bert_features.formats.records import FeatureBatch, Rows, splits_of

_SEED = 14
_SAMPLE_SECONDS = 0.5
_PEAK_SECONDS = 0.02  # between looks at the peak of a step
_WORDS = range(3, 18)  # words of a line, unless --words sets others
_BLOCK = 10_000  # lines that are made at a time
_VOCABULARY = 5000  # words that lines are made of: the first of the model's that are letters alone
_OPTIONS = ["--layers=-1", "--level=sequence", "--pooling=mean", "--dtype=float16"]


_READ_BACK = """
import sys
from bert_features import read_features
file = read_features(sys.argv[1])
count = sum(1 for record in file if record.features)
assert count == len(file), (count, len(file))
"""

_SHUFFLE = """
import sys
import numpy as np
from bert_features.corpus import shuffle
if sys.argv[1] == "plain":
    shuffle._scatter = lambda source, seed, paths: source.count()
    shuffle._sorted = lambda source, paths: source.rows()
shuffle.shuffle_features(*sys.argv[2:4], seed=_SEED, buffer_mb=int(sys.argv[4]))
""".replace("_SEED", str(_SEED))
_TEXTS_OF_SHARD, _TEXTS_OF_BATCH = 1000, 50
_WIDTH, _LENGTHS = 384, range(12, 60)


@dataclass(frozen=True)
class Sample:
    """What a run had come to after so many seconds.

    Attributes:
      seconds: since its start.
      megabytes: of memory of its processes that is in use.
      shards: that are finished.
    """

    seconds: float
    megabytes: float
    shards: int


def main() -> None:
    """Prints a table of runs, and what became of the one that was killed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="folder to write in")
    parser.add_argument("--lines", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--steps", action="store_true", help="measure each step at each size")
    parser.add_argument("--words", type=int, nargs=2, default=(_WORDS.start, _WORDS.stop))
    parser.add_argument("--output", default="out/", help="of --steps: out/ or out.SUFFIX")
    parser.add_argument("--shuffle", type=float, nargs="+", metavar="GB", help="sizes to shuffle")
    parser.add_argument("--buffer-mb", type=int, default=256)
    arguments = parser.parse_args()
    folder = arguments.folder / "benchmark_scale"
    folder.mkdir()
    try:
        checkpoint = write_checkpoint(folder / "uncased_toy")
        words = range(*arguments.words)
        if arguments.shuffle:
            measure_shuffles(checkpoint, arguments.shuffle, arguments.buffer_mb)
            return
        if arguments.steps:
            measure_steps(checkpoint, arguments.lines, words, arguments.output)
            return
        for count in arguments.lines:
            texts = write_lines(folder / f"{count}.txt", count, words)
            command = [sys.executable, "-m", "bert_features", "extract", str(texts)]
            command += ["--checkpoint", str(checkpoint), f"--processes={arguments.processes}"]
            describe_run(run(command, folder / "out"), folder / "out", count)
            if count == max(arguments.lines):
                describe_resuming(command, folder / "again", folder / "out")
            shutil.rmtree(folder / "out")
    finally:
        shutil.rmtree(folder)


def write_checkpoint(folder: Path) -> Path:
    """Writes a toy checkpoint with the vocabulary of all-MiniLM-L6-v2."""
    vocabulary = find_checkpoint("minilm").vocab_file
    assert vocabulary is not None
    folder.mkdir()
    shutil.copy(vocabulary, folder / "vocab.txt")
    config = BertConfig(
        vocab_size=len(vocabulary.read_text(encoding="utf-8").splitlines()),
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=128,
        max_position_embeddings=64,
    )
    (folder / "config.json").write_text(json.dumps(config.model_dump() | {"model_type": "bert"}))
    rng = np.random.default_rng(_SEED)
    values = {
        weight.huggingface: rng.normal(0, 0.1, stored_shapes(weight, config, "safetensors")[0])
        for weight in weights(config, pooler=False)
    }
    save_file(
        {name: value.astype(np.float32) for name, value in values.items()},
        folder / "model.safetensors",
    )
    return folder


def write_lines(path: Path, count: int, lengths_of_lines: range) -> Path:
    """Writes lines of words of the model's vocabulary."""
    vocabulary = path.parent / "uncased_toy" / "vocab.txt"
    known = vocabulary.read_text(encoding="utf-8").splitlines()
    words = np.array([word for word in known if word.isascii() and word.isalpha()][:_VOCABULARY])
    rng = np.random.default_rng(_SEED)
    with path.open("w", encoding="utf-8") as file:
        for begin in range(0, count, _BLOCK):
            bounds = lengths_of_lines.start, lengths_of_lines.stop
            lengths = rng.integers(*bounds, min(_BLOCK, count - begin))
            chosen = iter(words[rng.integers(0, len(words), lengths.sum())].tolist())
            for length in lengths.tolist():
                file.write(" ".join(itertools.islice(chosen, length)) + "\n")
    return path


def measure_steps(checkpoint: Path, counts: list[int], words: range, output: str) -> None:
    """Prints a row for each step at each size."""
    print(f"{'step':<20} {'texts':>9} {'CPU s':>8} {'us a text':>9} {'peak MB':>8}  MB of features")
    first: dict[str, tuple[int, float]] = {}
    for count in counts:
        texts = write_lines(checkpoint.parent / "texts.txt", count, words)
        out = checkpoint.parent / output
        ours = [sys.executable, "-m", "bert_features"]
        nearest = [*ours, "neighbors", str(out), "--query-id", "0"]
        steps = {
            "extract": [
                *(*ours, "extract", str(texts), "--checkpoint", str(checkpoint), *_OPTIONS),
                *("--output", f"{out}/" if output.endswith("/") else str(out)),
                *(["--long-text=window"] if words.stop > _WORDS.stop else []),
            ],
            "read back": [sys.executable, "-c", _READ_BACK, str(out)],
            "check": [*ours, "check", str(out)],
            "neighbors": nearest,
            "neighbors --texts": [*nearest, "--texts", str(texts)],
        }
        for step, command in steps.items():
            megabytes, seconds = measured(command)
            begun, base = first.setdefault(step, (count, seconds))
            more = f"{1e6 * (seconds - base) / (count - begun):.1f}" if count > begun else ""
            files = [out, *out.glob("*")] if out.is_dir() else [out]
            size = sum(file.stat().st_size for file in files if file.is_file()) / 1e6
            row = f"{step:<20} {count:>9} {seconds:>8.1f} {more:>9} {megabytes:>8.0f}  {size:.1f}"
            print(row, flush=True)
        shutil.rmtree(out) if out.is_dir() else out.unlink()


def measure_shuffles(checkpoint: Path, sizes: list[float], buffer_mb: int) -> None:
    """Prints a row for each size, written in its own order and shuffled."""
    folder = checkpoint.parent
    print(f"{'rows':<8} {'GB':>6} {'seconds':>8} {'MB/s':>6} {'CPU s':>6} {'peak MB':>8}")
    for size in sizes:
        source, out = write_features(checkpoint, folder / "source", size), folder / "store"
        for rows in ("plain", "shuffle"):
            begun = time.monotonic()
            command = [sys.executable, "-c", _SHUFFLE, rows, str(source), str(out), str(buffer_mb)]
            megabytes, cpu = measured(command)
            seconds = time.monotonic() - begun
            numbers = f"{size:>6.1f} {seconds:>8.1f} {1000 * size / seconds:>6.0f} {cpu:>6.1f}"
            print(f"{rows:<8} {numbers} {megabytes:>8.0f}", flush=True)
            shutil.rmtree(out)
        shutil.rmtree(source)


def write_features(checkpoint: Path, folder: Path, size: float) -> Path:
    """Writes a features folder of some gigabytes: random rows, with the recipe of a short run."""
    (folder.parent / "line.txt").write_text("a line\n")
    settings = ExtractConfig(checkpoint=str(checkpoint), layers=[-1, -2])
    extract(settings, folder.parent / "line.txt", f"{folder}/")
    manifest = Manifest.read(folder)
    first = read_features(folder)
    features = tuple(replace(feature, width=_WIDTH) for feature in first.features)
    rng = np.random.default_rng(_SEED)
    lengths = rng.integers(_LENGTHS.start, _LENGTHS.stop, _TEXTS_OF_SHARD)
    splits, values = splits_of(lengths), rng.normal(size=(lengths.sum(), _WIDTH)).astype(np.float32)
    ids = rng.integers(1000, 9000, len(values), np.int32)
    ids[splits[:-1]], ids[splits[1:] - 1] = 101, 102
    units = {"tokens": ids.astype(str).astype(object), "token_ids": ids}
    rows = Rows(splits, units, {feature.name: values for feature in features})
    count = round(size * 1e9 / (len(values) * len(features) * _WIDTH * values.itemsize))
    shards, finished = [], []
    whole = replace(manifest, shards=manifest.shards * count)
    for number in range(count):
        begin = number * _TEXTS_OF_SHARD
        batch = FeatureBatch(np.arange(begin, begin + _TEXTS_OF_SHARD), {}, {"token": rows})
        path = Path(whole.path(number))
        metadata = {"recipe": manifest.recipe.to_json()}
        with open_writer(path, format="parquet", features=features, metadata=metadata) as writer:
            for start in range(0, len(batch), _TEXTS_OF_BATCH):
                writer.write(batch.part(start, start + _TEXTS_OF_BATCH))
        entry = {"first": begin, "records": len(batch)}
        shards.append(manifest.shards[0].model_copy(update=entry))
        finished.append(describe_shard(path, "parquet", Counts(len(batch), len(values)), None))
    replace(whole, shards=tuple(shards), finished=tuple(finished)).write()
    return folder


def measured(command: list[str]) -> tuple[float, float]:
    """The peak of a command in megabytes, and its CPU seconds."""
    peak, ended = 0.0, (0, 0)
    with tempfile.TemporaryFile("w+") as messages:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=messages)
        while not ended[0]:
            # Not the peak of rusage, which counts what this process had when it forked.
            status = Path(f"/proc/{process.pid}/status").read_text()
            if found := re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE):
                peak = float(found[1]) * 1024 / 1e6
            time.sleep(_PEAK_SECONDS)
            *ended, usage = os.wait4(process.pid, os.WNOHANG)
        if ended[1]:
            messages.seek(0)
            raise SystemExit(messages.read())
    return peak, usage.ru_utime + usage.ru_stime


def run(command: list[str], out: Path) -> list[Sample]:
    """Runs the command to its end; what it had come to, twice a second."""
    with started(command, out) as process:
        return list(watch(process, out))


@contextlib.contextmanager
def started(command: list[str], out: Path) -> Iterator[subprocess.Popen[str]]:
    """The command, running; it is killed if it has not ended with the block."""
    process = subprocess.Popen(
        [*command, "--output", f"{out}/", *_OPTIONS],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def watch(process: subprocess.Popen[str], out: Path) -> Iterator[Sample]:
    """Looks at a run until it ends.

    Raises:
      SystemExit: it failed.
    """
    began = time.monotonic()
    while process.poll() is None:
        with contextlib.suppress(FileNotFoundError):  # not yet there, or not any more
            finished = sum(1 for _ in (out / ".finished").iterdir())
            yield Sample(time.monotonic() - began, megabytes_of(process.pid), finished)
        time.sleep(_SAMPLE_SECONDS)
    if process.returncode:
        assert process.stderr is not None
        raise SystemExit(process.stderr.read())
    yield Sample(time.monotonic() - began, 0.0, read_status(out).finished_shards)


def megabytes_of(process: int) -> float:
    """The memory of a process and of those it has started."""
    pages = 0
    for each in [str(process), *children_of(process)]:
        with contextlib.suppress(OSError, IndexError):
            pages += int(Path(f"/proc/{each}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def children_of(process: int) -> list[str]:
    """The processes that a process has started."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return []


def describe_run(samples: list[Sample], out: Path, lines: int) -> None:
    """Prints the speed and the memory of a run, whole and in its tenths."""
    status = read_status(out)
    *during, end = samples
    computing = end.seconds - during[0].seconds
    print(f"\n{lines:,} lines, {status.finished_tokens:,} tokens, {status.shards:,} shards")
    print(f"  before the first shard  {during[0].seconds:.1f} s: start, plan and model")
    print(
        f"  computing               {computing:.1f} s, {lines / computing:,.0f} lines/s, ", end=""
    )
    print(f"{status.finished_tokens / computing:,.0f} tokens/s")
    bounds = [status.shards * tenth // 10 for tenth in range(11)]
    for tenth, (first, last) in enumerate(itertools.pairwise(bounds), start=1):
        part = [s for s in samples if first <= s.shards <= last]
        if first == last or len(part) < 2:
            continue
        seconds = reached(samples, last) - reached(samples, first)
        speed = lines * (last - first) / status.shards / seconds
        memory = max(sample.megabytes for sample in part)
        print(f"  tenth {tenth:>2}  {speed:>9,.0f} lines/s  {memory:>7,.0f} MB")
    begun = time.monotonic()
    folder = read_features(out)
    print(f"  read_features           {time.monotonic() - begun:.2f} s, {len(folder):,} records")


def reached(samples: list[Sample], shards: int) -> float:
    """When so many shards were finished, in seconds."""
    return next(sample.seconds for sample in samples if sample.shards >= shards)


def describe_resuming(command: list[str], out: Path, whole: Path) -> None:
    """Kills a run at its half and resumes it; prints how long it took to compute again."""
    half = read_status(whole).shards // 2
    with started(command, out) as process:
        for sample in watch(process, out):
            if sample.shards >= half:
                break
    begun, finished = time.monotonic(), read_status(out).finished_shards
    print(f"\nkilled after {finished:,} of {2 * half:,} shards")
    print(f"  status                  {time.monotonic() - begun:.2f} s")
    left = set(out.glob(".part-*"))
    with started(command, out) as process:
        begun = time.monotonic()
        while process.poll() is None and not set(out.glob(".part-*")) - left:
            time.sleep(0.02)
        print(f"  computes again after    {time.monotonic() - begun:.1f} s")
        for _ in watch(process, out):
            pass
    same = checksums(out) == checksums(whole)
    print(f"  the bytes of all shards are {'' if same else 'NOT '}those of the first run")


def checksums(folder: Path) -> list[str]:
    """The checksum of each shard."""
    finished = Manifest.read(folder).finished
    assert finished is not None
    return [entry.crc32c for entry in finished]


if __name__ == "__main__":
    main()
