"""Measures one part of the package at a time; each sub-command is one measurement.

    .venv/bin/python benchmarks/parts.py outputs TEXTS      three outputs from one pass, and words
    .venv/bin/python benchmarks/parts.py together TEXTS     one pass with all kinds for search
    .venv/bin/python benchmarks/parts.py dedupe TEXTS       what `dedupe` costs and gains
    .venv/bin/python benchmarks/parts.py precision TEXTS    how close bfloat16 or int8 is to float32
    .venv/bin/python benchmarks/parts.py tokenizer TEXTS…   the tokenizer and Hugging Face's
    .venv/bin/python benchmarks/parts.py formats FOLDER     how fast each format writes
    .venv/bin/python benchmarks/parts.py roofline           the encoder and a product of NumPy's

TEXTS is a file with one text per line (`../shared/data/ud_ewt.txt`). The model is the embedded
all-MiniLM-L6-v2 (not Google's BERT). What is compared runs in turns, and medians are printed: read
the ratios, not the speeds. CPU seconds are disturbed less by other programs on the machine.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
from safetensors.numpy import load_file, save_file

from bert_features import ExtractConfig, FeatureExtractor, InputExample, find_checkpoint
from bert_features.checkpoints.convert import convert
from bert_features.config.bert_config import BertConfig
from bert_features.config.kinds import KINDS
from bert_features.config.levels import LEVELS


class Seconds(NamedTuple):
    """Medians of a case: elapsed seconds and CPU seconds of the process."""

    elapsed: float
    cpu: float


def in_turns(cases: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, Seconds]:
    """Runs the cases in turns and measures them; the first run of each does not count."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in cases}
    for turn in range(rounds + 1):
        for name, run in cases.items():
            started, cpu = time.perf_counter(), time.process_time()
            run()
            if turn:  # the first imports libraries and compiles
                times[name].append((time.perf_counter() - started, time.process_time() - cpu))
    return {name: Seconds(*map(median, zip(*pairs, strict=True))) for name, pairs in times.items()}


def outputs(options: argparse.Namespace) -> None:
    """Three outputs from one pass with each alone, and words with tokens: the whole job."""
    tokens = {"name": "tokens", "layers": [-1]}
    words = {"name": "words", "layers": [-1], "level": "word"}
    text = {"name": "text", "layers": [-2], "level": "sequence", "special_tokens": False}
    combined = {"name": "combined", "layers": [-1, -2, -3, -4], "combine": "sum"}
    lines = read_lines(options)
    texts = [InputExample(i, line) for i, line in enumerate(lines)]
    given = [
        InputExample(i, " ".join(line.split()), None, tuple(line.split()))
        for i, line in enumerate(lines)
    ]
    three = [combined, words, text]
    print(f"{len(lines)} texts, medians of {options.rounds} interleaved runs, seconds")
    for examples, cases in (
        (texts, {f"{one['name']} alone": [one] for one in three} | {"all three": three}),
        (given, {"tokens": [tokens], "words": [words]}),
    ):
        runs = {name: _job(examples, outputs=wanted) for name, wanted in cases.items()}
        seconds = {name: one.elapsed for name, one in in_turns(runs, options.rounds).items()}
        for name, value in seconds.items():
            print(f"  {name:<14} {value:6.2f}")
        *others, last = seconds
        slowest = max(others, key=seconds.__getitem__)
        print(f"  {last} / {slowest}: {seconds[last] / seconds[slowest]:.3f}\n")


def _job(
    examples: list[InputExample], checkpoint: str = "minilm", **settings: Any
) -> Callable[[], None]:
    extractor = FeatureExtractor.from_checkpoint(checkpoint, batch_size=32, **settings)

    def run() -> None:
        for _ in extractor.batches(lambda: examples):
            pass

    return run


def together(options: argparse.Namespace) -> None:
    """One pass with the outputs for search and one pass for each: a dense vector, a multi-vector.

    And sparse vectors and spans, if this version has them. The encoder is MiniLM; the projection to
    128 values and the masked-LM head are random.
    """
    wanted: dict[str, dict[str, Any]] = {
        "dense": {"level": "sequence", "pooling": "mean", "layers": [-1]},
        "multi_vector": {"kind": "multi_vector"},
    }
    if "sparse" in KINDS:
        wanted["sparse"] = {"kind": "sparse"}
    if "span" in LEVELS:
        wanted["spans"] = {"level": "span", "layers": [-1]}
    examples = [InputExample(i, line) for i, line in enumerate(read_lines(options))]
    outputs_of = {name: [{"name": name, **own}] for name, own in wanted.items()}
    outputs_of["together"] = [one for own in outputs_of.values() for one in own]
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = _late_interaction(Path(folder, "model"))
        runs = {}
        for name, own in outputs_of.items():
            spans = {"spans": "16"} if any(one.get("level") == "span" for one in own) else {}
            runs[name] = _job(examples, checkpoint, outputs=own, **spans)
        seconds = in_turns(runs, options.rounds)
    print(f"{len(examples)} texts, medians of {options.rounds} interleaved runs, seconds (CPU)")
    for name, (elapsed, cpu) in seconds.items():
        print(f"  {name:<14} {elapsed:6.2f} ({cpu:6.2f})")
    apart = sum(one.elapsed for name, one in seconds.items() if name != "together")
    print(f"  {len(wanted)} passes / one pass: {apart / seconds['together'].elapsed:.2f}\n")


def _late_interaction(folder: Path) -> str:
    """MiniLM as a ColBERT of Stanford, with a masked-LM head; both parts are random."""
    convert(find_checkpoint("minilm"), folder, to="safetensors")
    (folder / "modules.json").unlink()  # of sentence-transformers, whose pooling it has no more
    config = json.loads((folder / "config.json").read_text())
    width, words, rng = config["hidden_size"], config["vocab_size"], np.random.default_rng(0)
    head = "cls.predictions"
    shapes = {
        "linear.weight": (128, width),
        f"{head}.transform.dense.weight": (width, width),
        f"{head}.transform.dense.bias": (width,),
        f"{head}.transform.LayerNorm.weight": (width,),
        f"{head}.transform.LayerNorm.bias": (width,),
        f"{head}.bias": (words,),
    }
    random = {n: rng.normal(size=s, scale=0.1).astype(np.float32) for n, s in shapes.items()}
    own = {f"bert.{name}": array for name, array in load_file(folder / "model.safetensors").items()}
    save_file(own | random, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config | {"architectures": ["HF_ColBERT"]}))
    return str(folder)


def dedupe(options: argparse.Namespace) -> None:
    """What `dedupe` costs where no text repeats, and what it gains where half of them do."""
    from bert_features.extraction.feature_store import open_store, store_place
    from bert_features.extraction.writing import write_behind
    from bert_features.formats import open_writer

    texts, count = list(dict.fromkeys(read_lines(options))), options.lines
    fixed: dict[str, Any] = {"level": "sequence", "layers": (-1,), "pooling": "mean"}
    settings: dict[str, dict[str, Any]] = {
        "plain": {},
        "dedupe": {"dedupe": True},
    }
    extractors = {
        name: FeatureExtractor(ExtractConfig.of(fixed | own)) for name, own in settings.items()
    }
    print("| distinct texts | run | seconds | CPU seconds | padding | reused |")
    print("|---|---|---|---|---|---|")
    counts: dict[str, Any] = {}

    def job(name: str, distinct: int, output: Path) -> None:
        extractor = extractors[name]
        numbers = islice(cycle(range(distinct)), count)
        examples = [
            InputExample(i, f"{texts[n % len(texts)]} {n // len(texts) or ''}".rstrip())
            for i, n in enumerate(numbers)
        ]
        facts = {"features": extractor.features(), "metadata": extractor.metadata()}
        with (
            open_writer(output, format="npz", id_type="int", overwrite=True, **facts) as writer,
            store_place(extractor.config, output) as place,
            open_store(place, extractor.preparation, {}) as store,
        ):
            found = extractor.batches(
                lambda: iter(examples),
                progress=lambda latest: counts.__setitem__(name, latest),
                warn=False,
                store=store,
            )
            write_behind(found, writer.write, max_bytes=256 << 20)

    with tempfile.TemporaryDirectory() as folder:
        for distinct in (count, count // 2):
            runs = {
                name: lambda name=name, distinct=distinct: job(
                    name, distinct, Path(folder) / "out.npz"
                )
                for name in settings
            }
            for name, (elapsed, cpu) in in_turns(runs, options.rounds).items():
                done = counts[name]
                print(
                    f"| {distinct:,} of {count:,} | {name} | {elapsed:.1f} | {cpu:.1f} "
                    f"| {done.pad_waste:.1%} | {done.examples_reused:,} |",
                    flush=True,
                )


def precision(options: argparse.Namespace) -> None:
    """The cosine of a precision and float32, per token and layer, and the ranking of all pairs.

    The ranking is Spearman's correlation of the cosine similarities of all pairs of texts.
    """
    wanted = [
        {"name": "layers", "layers": ["embeddings", 0, 1, 2, 3, 4, 5]},
        {"name": "text", "layers": [-1], "level": "sequence", "pooling": "mean"},
    ]
    lines = read_lines(options)
    examples = [InputExample(i, line) for i, line in enumerate(lines)]

    def features(precision: str) -> dict[str, np.ndarray]:
        extractor = FeatureExtractor.from_checkpoint("minilm", outputs=wanted, precision=precision)
        batches = [batch.features for batch in extractor.batches(lambda: examples)]
        return {
            name: np.concatenate([batch[name] for batch in batches]).astype(np.float64)
            for name in batches[0]
        }

    exact, rounded = features("float32"), features(options.precision)
    print(f"{len(lines)} texts, {options.precision} against float32, cosine per token\n")
    print("| output | mean | 1st percentile | lowest |\n|---|---|---|---|")
    for name, values in exact.items():
        cosines = np.einsum("ij,ij->i", _unit(values), _unit(rounded[name]))
        low = np.percentile(cosines, 1)
        print(f"| {name} | {cosines.mean():.6f} | {low:.6f} | {cosines.min():.6f} |")
    ranks = [
        np.argsort(np.argsort((unit @ unit.T)[np.triu_indices(len(unit), 1)]))
        for unit in (_unit(result["text"]) for result in (exact, rounded))
    ]
    print(f"\nranking of all pairs of texts: {np.corrcoef(*ranks)[0, 1]:.6f} (Spearman)")


def _unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def tokenizer(options: argparse.Namespace) -> None:
    """The graph tokenizer and Hugging Face's `tokenizers`, two threads and one vocabulary.

    Ours runs in a parallel map of tf.data over batches of 1,024 lines, theirs in `encode_batch`.
    The ids are compared first; if they differ, nothing is timed.
    """
    os.environ.setdefault("RAYON_NUM_THREADS", "2")
    print("| texts | tokens | bert_features, M tokens/s | tokenizers, M tokens/s | ratio |")
    print("|---|---|---|---|---|")
    for path in options.files:
        _compare_tokenizers(path, options)


def _compare_tokenizers(path: Path, options: argparse.Namespace) -> None:
    import tensorflow as tf
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    from bert_features import FullTokenizer, find_checkpoint

    vocab = str(find_checkpoint("minilm").vocab_file)
    ours = FullTokenizer(vocab, do_lower_case=True)
    pieces = models.WordPiece.from_file(vocab, unk_token="[UNK]", max_input_chars_per_word=200)
    theirs = Tokenizer(pieces)
    theirs.normalizer = normalizers.BertNormalizer(lowercase=True)
    theirs.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    lines = path.read_text(encoding="utf-8").split("\n")
    expected = [e.ids for e in theirs.encode_batch(lines, add_special_tokens=False)]
    texts = tf.constant([line.encode() for line in lines])
    different = sum(a != b for a, b in zip(ours(texts).to_list(), expected, strict=True))
    if different:
        raise SystemExit(f"{path.name}: the ids of {different} lines differ; nothing was timed")
    copies = -(-options.min_tokens // sum(map(len, expected)))
    tokens, lines = copies * sum(map(len, expected)), lines * copies
    batches = tf.data.Dataset.from_tensor_slices(tf.tile(texts, [copies])).batch(1024).cache()
    dataset = batches.map(ours, num_parallel_calls=2).map(lambda ids: tf.size(ids.values))
    seconds = in_turns(
        {
            "ours": lambda: sum(int(count) for count in dataset),
            "theirs": lambda: theirs.encode_batch_fast(lines, add_special_tokens=False),
        },
        options.rounds,
    )
    mine, other = (tokens / seconds[name].elapsed / 1e6 for name in ("ours", "theirs"))
    print(f"| {path.name} | {tokens:,} | {mine:.2f} | {other:.2f} | {mine / other:.1f} |")


def formats(options: argparse.Namespace) -> None:
    """How fast each format writes token features of four layers, and sequence vectors.

    The features are random float16 of width 768, in batches of 2,000 tokens or of 1,024 sequences.
    Prints megabytes of features per second of CPU time, and per elapsed second, which includes
    waiting for the disk.
    """
    from bert_features.formats import open_writer
    from bert_features.formats.records import Feature, FeatureBatch, Rows

    rng, width = np.random.default_rng(0), 768

    def vectors(count: int) -> np.ndarray:
        return rng.normal(0, 1, (count, width)).astype(np.float16)

    names = [f"layer_output_{i}" for i in range(4)]
    layers = [Feature(name, (-1 - i,), "none", width, "float16") for i, name in enumerate(names)]
    pieces = {"tokens": np.full(2000, "token", object), "token_ids": np.arange(2000, dtype="int32")}
    rows = Rows(np.arange(0, 2001, 20), pieces, {name: vectors(2000) for name in names})
    text = Feature("text", (-1,), "none", width, "float16", "sequence", "mean")
    for name, features, batch in (
        ("tokens", layers, FeatureBatch(np.arange(100), levels={"token": rows})),
        ("sequences", [text], FeatureBatch(np.arange(1024), {"text": vectors(1024)})),
    ):
        size = sum(values.nbytes for values in batch.features.values())
        batches = [batch] * max(options.megabytes * 10**6 // size, 1)
        megabytes = len(batches) * size / 1e6

        def write(format: str, features: Any = features, batches: Any = batches) -> None:
            path = options.folder / f"benchmark.{format}"
            with open_writer(path, format=format, features=features, metadata={}) as writer:
                for one in batches:
                    writer.write(one)
            for made in options.folder.glob(f"{path.name}*"):
                made.unlink()

        print(f"{name}, {megabytes:.0f} MB, medians of {options.rounds} interleaved runs, MB/s")
        runs = {format: lambda format=format: write(format) for format in options.formats}
        for format, (elapsed, cpu) in in_turns(runs, options.rounds).items():
            rates = megabytes / cpu, megabytes / elapsed
            print(f"  {format:<9} {rates[0]:6.0f} CPU  {rates[1]:6.0f} elapsed")


def roofline(options: argparse.Namespace) -> None:
    """The encoder's rate of arithmetic and that of a matrix product of NumPy's BLAS.

    Three shapes of the size of all-MiniLM-L6-v2, with random weights. diary.md keeps the ratios of
    releases.
    """
    from bert_features.config.output_specs import plan_outputs
    from bert_features.config.outputs import OutputConfig
    from bert_features.encoder.step import DeviceStep
    from bert_features.machine.hardware import cores
    from bert_features.runtime.tensorflow import TensorFlowRuntime

    config = BertConfig(
        vocab_size=30522,
        hidden_size=384,
        num_hidden_layers=6,
        num_attention_heads=12,
        intermediate_size=1536,
        hidden_act="gelu_erf",
    )
    device_step = DeviceStep(config, None, plan_outputs([OutputConfig(layers=(-1,))], config))
    step = TensorFlowRuntime("cpu").compile(device_step.step, device_step.weights)
    rng = np.random.default_rng(0)
    left, right = (
        rng.normal(size=shape).astype(np.float32) for shape in ((2048, 384), (384, 1536))
    )
    print(f"float32, {cores()} cores; medians of {options.rounds} interleaved runs")
    print("| rows x length | tokens/s | encoder, GFLOP/s | NumPy's product, GFLOP/s | ratio |")
    print("|---|---|---|---|---|")
    for rows, length in ((85, 24), (32, 64), (16, 128)):
        inputs = {
            "input_word_ids": rng.integers(0, config.vocab_size, (rows, length)),
            "input_mask": np.ones((rows, length)),
            "input_type_ids": np.zeros((rows, length)),
        }
        arrays = {name: np.asarray(value, np.int32) for name, value in inputs.items()}
        runs = {"encoder": lambda arrays=arrays: step(arrays)(), "product": lambda: left @ right}
        seconds = in_turns(runs, options.rounds)
        tokens = rows * length
        mine = tokens * flops_per_token(config, length) / seconds["encoder"].elapsed / 1e9
        roof = 2 * 2048 * 384 * 1536 / seconds["product"].elapsed / 1e9
        print(
            f"| {rows} x {length} | {tokens / seconds['encoder'].elapsed:,.0f} | {mine:.0f} "
            f"| {roof:.0f} | {mine / roof:.2f} |"
        )


def flops_per_token(config: BertConfig, length: int) -> int:
    """Operations per token in the matrix products; a multiply-add counts as two."""
    hidden, inner = config.hidden_size, config.intermediate_size
    dense = 4 * hidden * hidden + 2 * hidden * inner
    return 2 * config.num_hidden_layers * (dense + 2 * length * hidden)


def read_lines(options: argparse.Namespace) -> list[str]:
    """The first lines of the file of texts."""
    return options.texts.read_text(encoding="utf-8").splitlines()[: options.lines]


def main() -> None:
    """Runs one measurement."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    commands = parser.add_subparsers(required=True, metavar="PART")

    def command(run: Callable[[argparse.Namespace], None], rounds: int) -> Any:
        summary = (run.__doc__ or "").splitlines()[0]
        added = commands.add_parser(run.__name__, help=summary, description=run.__doc__)
        added.set_defaults(run=run)
        added.add_argument("--rounds", type=int, default=rounds, help="number of timed runs")
        return added

    for run, lines, rounds in (
        (outputs, 1500, 7),
        (together, 500, 3),
        (dedupe, 4000, 3),
        (precision, 1000, 1),
    ):
        of_texts = command(run, rounds)
        of_texts.add_argument("texts", type=Path, help="file with one text per line")
        of_texts.add_argument("--lines", type=int, default=lines, help="number of texts")
        if run is precision:
            of_texts.add_argument("--precision", choices=["bfloat16", "int8"], default="bfloat16")
    of_files = command(tokenizer, 7)
    of_files.add_argument("files", nargs="+", type=Path, help="UTF-8 files with a text per line")
    of_files.add_argument("--min-tokens", type=int, default=1_000_000, help="repeat up to these")
    of_formats = command(formats, 7)
    of_formats.add_argument("folder", type=Path, help="files are written here, and removed")
    of_formats.add_argument("--megabytes", type=int, default=200)
    # The other formats write a record at a time.
    of_formats.add_argument("--formats", nargs="*", default=["arrow", "parquet", "hdf5", "npz"])
    command(roofline, 9)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
