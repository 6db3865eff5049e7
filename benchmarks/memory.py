"""Peak memory of `extract`: for each kind of output at two numbers of texts, or of usual jobs.

    .venv/bin/python benchmarks/memory.py [--texts 12 48] [--length 250] [--kinds masked_lm]
    .venv/bin/python benchmarks/memory.py --jobs ud_ewt.txt [--checkpoint DIR] [--precision P]

A random BERT of two layers with a masked-LM head and a vocabulary of 8,000 computes outputs that
are as wide as they can be, so that features are nearly all the memory. Each run is a process of its
own. Prints for each run the megabytes of its features and its peak, as the system counts it, and
by how much the peak grows: it should be flat.

With `--jobs` the texts are the first 3 and 1,000 lines of a file, all lines, 60 documents of 400
words of it, and 200 lines beside five documents; one vector each, of rows of up to 512 tokens where
there are documents. Prints for each the peak and the CPU seconds of the command.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

VOCAB, HIDDEN, LAYERS, LENGTH = 8000, 64, 2, 512
SETTINGS = {
    "layers": ["--layers", "-1,-2"],
    "attention": ["--kind", "attention", "--heads", "all", "--layers", "0,1"],
    "masked_lm": ["--kind", "masked_lm", "--top-k", str(VOCAB)],
    "score": ["--kind", "score"],
}
# Texts for each one of --texts: the features of these kinds are smaller.
TIMES = {"layers": 100, "attention": 8, "masked_lm": 1, "score": 1}


def main() -> None:
    """Prints a line for each kind and number of texts, and the growth."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--texts", type=int, nargs=2, default=(12, 48))
    parser.add_argument("--length", type=int, default=250, help="words of a text")
    parser.add_argument("--kinds", nargs="+", default=list(SETTINGS), choices=list(SETTINGS))
    parser.add_argument("--jobs", type=Path, metavar="FILE", help="measure usual jobs instead")
    parser.add_argument("--checkpoint", default="minilm", help="that of --jobs")
    parser.add_argument("--precision", default="float32", help="that of --jobs")
    arguments = parser.parse_args()
    if arguments.jobs is not None:
        measure_jobs(arguments.jobs, arguments.checkpoint, arguments.precision)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_checkpoint(folder / "toy")
        for kind in arguments.kinds:
            runs = [
                run(folder, kind, TIMES[kind] * count, arguments.length)
                for count in arguments.texts
            ]
            (small, first), (large, second) = runs
            grown, more = second - first, large - small
            row = f"{kind:<10} peak grows by {grown:.0f} MB for {more:.0f} MB of features"
            print(row, flush=True)


def run(folder: Path, kind: str, texts: int, length: int) -> tuple[float, float]:
    """Megabytes of the features of a run, and of its peak."""
    rng = np.random.default_rng(texts)
    lines = rng.integers(5, VOCAB, (texts, length))
    (folder / "in.txt").write_text("".join(f"{' '.join(f'w{i}' for i in row)}\n" for row in lines))
    output = folder / "out.npz"
    command = [
        *(sys.executable, "-m", "bert_features", "extract", str(folder / "in.txt")),
        *("--output", str(output), "--overwrite", "--checkpoint", str(folder / "toy")),
        *("--max-seq-length", str(LENGTH), "--uncased", "--buffer-mb", "16", *SETTINGS[kind]),
    ]
    peak, _ = measured(command)
    size = output.stat().st_size / 1e6
    print(
        f"{kind:<10} {texts:6} texts  {size:7.0f} MB of features  peak {peak:6.0f} MB", flush=True
    )
    return size, peak


def measure_jobs(path: Path, checkpoint: str, precision: str) -> None:
    """Prints the peak and the CPU seconds of usual jobs."""
    lines = path.read_text(encoding="utf-8").splitlines()
    words = " ".join(lines).split()
    documents = [" ".join(words[i * 400 : (i + 1) * 400]) for i in range(60)]
    long = ("--max-seq-length", "512")
    jobs: dict[str, tuple[list[str], tuple[str, ...]]] = {
        "3 lines": (lines[:3], ()),
        "1,000 lines": (lines[:1000], ()),
        f"{len(lines):,} lines": (lines, ()),
        "60 documents": (documents, long),
        "200 lines and 5 documents": (lines[:200] + documents[:5], long),
    }
    with tempfile.TemporaryDirectory() as name:
        texts, output = Path(name, "in.txt"), Path(name, "out.npz")
        for job, (chosen, settings) in jobs.items():
            texts.write_text("".join(f"{line}\n" for line in chosen), encoding="utf-8")
            command = [
                *(sys.executable, "-m", "bert_features", "extract", str(texts), "--overwrite"),
                *("--output", str(output), "--checkpoint", checkpoint, "--precision", precision),
                *("--layers=-1", "--level", "sequence", *settings),
            ]
            peak, seconds = measured(command)
            print(f"{job:<26} peak {peak:6.0f} MB  {seconds:6.1f} CPU seconds", flush=True)


def measured(command: list[str]) -> tuple[float, float]:
    """The peak of a command in megabytes, and its CPU seconds."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit("the run failed")
    return usage.ru_maxrss * 1024 / 1e6, usage.ru_utime + usage.ru_stime


def write_checkpoint(folder: Path) -> None:
    """A random BERT with its masked-LM head, as Hugging Face names it."""
    folder.mkdir()
    words = [f"w{i}" for i in range(VOCAB)]
    words[:5] = "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"
    (folder / "vocab.txt").write_text("\n".join(words) + "\n")
    config = {
        "model_type": "bert", "vocab_size": VOCAB, "hidden_size": HIDDEN, "hidden_act": "gelu",
        "num_hidden_layers": LAYERS, "num_attention_heads": 4, "intermediate_size": HIDDEN,
        "max_position_embeddings": LENGTH, "type_vocab_size": 2,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    shapes: dict[str, tuple[int, ...]] = {
        f"bert.embeddings.{name}_embeddings.weight": (count, HIDDEN)
        for name, count in (("word", VOCAB), ("position", LENGTH), ("token_type", 2))
    }
    dense = [
        f"bert.encoder.layer.{layer}.{part}"
        for layer in range(LAYERS)
        for part in (
            *(f"attention.self.{name}" for name in ("query", "key", "value")),
            *("attention.output.dense", "intermediate.dense", "output.dense"),
        )
    ]
    norms = [
        f"bert.encoder.layer.{layer}.{part}"
        for layer in range(LAYERS)
        for part in ("attention.output.LayerNorm", "output.LayerNorm")
    ]
    head = "cls.predictions.transform"
    for name in (*dense, f"{head}.dense"):
        shapes |= {f"{name}.weight": (HIDDEN, HIDDEN), f"{name}.bias": (HIDDEN,)}
    for name in (*norms, "bert.embeddings.LayerNorm", f"{head}.LayerNorm"):
        shapes |= {f"{name}.weight": (HIDDEN,), f"{name}.bias": (HIDDEN,)}
    rng = np.random.default_rng(0)
    weights = {name: rng.normal(0, 0.2, shape) for name, shape in shapes.items()}
    weights["cls.predictions.bias"] = np.zeros(VOCAB)
    save_file(
        {name: values.astype(np.float32) for name, values in weights.items()},
        folder / "model.safetensors",
    )


if __name__ == "__main__":
    main()
