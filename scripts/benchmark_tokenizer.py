"""Compares the speed of the graph tokenizer with that of Hugging Face `tokenizers`.

    .venv/bin/python scripts/benchmark_tokenizer.py [FILE …]

Both take the same lines and the same vocabulary (of the embedded all-MiniLM-L6-v2) on two threads:
ours in a parallel map of tf.data over batches of 1,024 lines, theirs in `encode_batch`. Runs are
interleaved; prints the medians and their ratio. The ids are compared first; if they differ, nothing
is timed.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("RAYON_NUM_THREADS", "2")

import tensorflow as tf
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from bert_features.checkpoints.find import find_checkpoint
from bert_features.text.tokenization import FullTokenizer

DATA = Path(__file__).resolve().parents[1].parent / "shared" / "data"
THREADS = 2
LINES_PER_BATCH = 1024


def seconds(function: Callable[[], int]) -> tuple[float, int]:
    """Wall seconds of one call, and the number of tokens it made."""
    start = time.perf_counter()
    tokens = function()
    return time.perf_counter() - start, tokens


def _huggingface(vocab: str) -> Tokenizer:
    """BERT's tokenizer in Hugging Face `tokenizers`."""
    tokenizer = Tokenizer(
        models.WordPiece.from_file(vocab, unk_token="[UNK]", max_input_chars_per_word=200)
    )
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


def compare(path: Path, repeats: int, min_tokens: int) -> None:
    """Prints one row of the table."""
    vocab = str(find_checkpoint("minilm").vocab_file)
    ours, theirs = FullTokenizer(vocab, do_lower_case=True), _huggingface(vocab)
    lines = path.read_text(encoding="utf-8").split("\n")
    expected = [e.ids for e in theirs.encode_batch(lines, add_special_tokens=False)]
    texts = tf.constant([line.encode() for line in lines])
    different = sum(a != b for a, b in zip(ours(texts).to_list(), expected, strict=True))
    if different:
        raise SystemExit(f"{path.name}: the ids of {different} lines differ; nothing was timed")
    copies = -(-min_tokens // sum(map(len, expected)))
    lines, texts = lines * copies, tf.tile(texts, [copies])
    dataset = (
        tf.data.Dataset.from_tensor_slices(texts)
        .batch(LINES_PER_BATCH)
        .cache()
        .map(ours, num_parallel_calls=THREADS)
        .map(lambda ids: tf.size(ids.values))
    )

    def run_ours() -> int:
        return sum(int(count) for count in dataset)

    def run_theirs() -> int:
        encodings = theirs.encode_batch_fast(lines, add_special_tokens=False)
        return sum(len(e.ids) for e in encodings)

    run_ours()
    run_theirs()
    rates: dict[str, list[float]] = {"ours": [], "theirs": []}
    for _ in range(repeats):
        for name, run in (("ours", run_ours), ("theirs", run_theirs)):
            took, tokens = seconds(run)
            rates[name].append(tokens / took / 1e6)
    mine, other = (statistics.median(rates[name]) for name in ("ours", "theirs"))
    print(f"| {path.name} | {tokens:,} | {mine:.2f} | {other:.2f} | {mine / other:.1f} |")


def main() -> None:
    """Runs the comparison on every file."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("files", nargs="*", type=Path, help="UTF-8 files with one text per line")
    parser.add_argument("--repeats", type=int, default=7, help="number of timed runs")
    parser.add_argument(
        "--min-tokens", type=int, default=1_000_000, help="repeat the lines up to this many tokens"
    )
    arguments = parser.parse_args()
    files = arguments.files or [DATA / "ud_ewt.txt", DATA / "udhr.txt"]
    print("| texts | tokens | bert_features, M tokens/s | tokenizers, M tokens/s | ratio |")
    print("|---|---|---|---|---|")
    for path in files:
        compare(path, arguments.repeats, arguments.min_tokens)


if __name__ == "__main__":
    main()
