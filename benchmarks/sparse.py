r"""Sparse vectors beside sentence-transformers' SparseEncoder and fastembed: speed and peak memory.

    python benchmarks/sparse.py --peer .venv-references/bin/python --texts FILE [--count 200]

`--peer` is the Python of an environment of its own with sentence-transformers 6.2, onnx, onnxscript
and fastembed 0.9; it also makes the model, a SPLADE folder with random weights at BERT-base's
shape, and exports it as ONNX. Each program runs in a process of its own, one after the other for
each round, in batches of 32 texts where it has batches. Ours and SparseEncoder keep the 256
heaviest terms of each text, fastembed all. The speed is from texts to vectors, without loading. The
first run checks that all give the same. With `--count` texts and with four times as many the memory
should be the same here.

    PYTHONPATH=. python benchmarks/sparse.py bge-m3 FILE [ROUNDS]

The three outputs of a bge-m3 from one pass beside the dense vector alone: medians of runs in turns.
The model is random, of XLM-R's base shape with MiniLM's vocabulary.
"""

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import cycle, islice
from pathlib import Path

import numpy as np

TOP_K = 256
ROOT = Path(__file__).resolve().parents[1]


def make_model(folder: str, vocabulary: str) -> None:
    """A SPLADE folder with random weights; runs in the peer's environment."""
    import torch
    import transformers
    from sentence_transformers import SparseEncoder
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sparse_encoder.modules import SpladePooling

    torch.manual_seed(0)
    bert = Path(folder) / "bert"
    model = transformers.BertForMaskedLM(transformers.BertConfig())
    model.save_pretrained(bert)
    tokenizer = transformers.BertTokenizer(vocabulary, model_max_length=128)
    tokenizer.save_pretrained(bert)
    transformer = Transformer(str(bert), transformer_task="fill-mask")
    SparseEncoder(modules=[transformer, SpladePooling()]).save(f"{folder}/splade")
    tokenizer.save_pretrained(onnx := f"{folder}/onnx")
    names = ["input_ids", "attention_mask", "token_type_ids"]
    rows = tokenizer(["a text", "another longer text"], padding=True, return_tensors="pt")
    shape = {0: torch.export.Dim("batch"), 1: torch.export.Dim("sequence")}
    torch.onnx.export(
        model.eval(),
        (),
        f"{onnx}/model.onnx",
        kwargs={name: rows[name] for name in names},
        input_names=names,
        output_names=["logits"],
        dynamic_shapes=dict.fromkeys(names, shape),
        dynamo=True,
    )


def ours(model: str, texts: list[str]) -> tuple[float, np.ndarray]:
    """Seconds, and the weights of the first texts."""
    from bert_features import FeatureExtractor

    extractor = FeatureExtractor.from_checkpoint(model, kind="sparse", top_k=TOP_K)
    extractor.encode(texts[:8])
    begin = time.perf_counter()
    found = extractor.encode(iter(texts))
    return time.perf_counter() - begin, found[:8].toarray()


def theirs(model: str, texts: list[str]) -> tuple[float, np.ndarray]:
    """As `ours`."""
    from sentence_transformers import SparseEncoder

    encoder = SparseEncoder(model, max_active_dims=TOP_K, device="cpu")
    encoder.encode_document(texts[:8])
    begin = time.perf_counter()
    found = encoder.encode_document(texts, batch_size=32)
    seconds = time.perf_counter() - begin
    return seconds, np.stack([row.to_dense().numpy() for row in list(found)[:8]])


def fastembed(model: str, texts: list[str]) -> tuple[float, np.ndarray]:
    """As `ours`."""
    from fastembed import SparseTextEmbedding

    folder = str(Path(model).with_name("onnx"))
    encoder = SparseTextEmbedding("prithivida/Splade_PP_en_v1", specific_model_path=folder)
    list(encoder.embed(texts[:8]))
    begin = time.perf_counter()
    found = list(encoder.embed(texts, batch_size=32))
    seconds = time.perf_counter() - begin
    return seconds, np.stack([np.sort(row.values)[::-1][:TOP_K] for row in found[:8]])


def make_bge_m3(folder: Path) -> None:
    """A random XLM-R of base size with the linear layers of a bge-m3, in half precision."""
    from bert_features.checkpoints.convert import TARGETS
    from bert_features.checkpoints.find import find_checkpoint
    from bert_features.checkpoints.weights.file_names import LINEARS
    from bert_features.config.bert_config import BertConfig
    from tests.reference import torch_file
    from tests.reference.sentence_transformers_folder import write_settings
    from tests.toy import random_weights

    minilm = find_checkpoint("minilm")
    assert minilm.vocab_file is not None
    values = {"model_type": "xlm-roberta", "pad_token_id": 0, "max_position_embeddings": 514}
    values |= {"type_vocab_size": 1, "vocab_size": minilm.config.vocab_size}
    config = BertConfig.from_dict(values, family="huggingface", source="benchmark")
    TARGETS["safetensors"](config, random_weights(config, scale=0.04), folder)
    shutil.copy(minilm.vocab_file, folder)
    rng, width = np.random.default_rng(0), config.hidden_size
    for name, rows in zip(LINEARS, (1, width), strict=True):
        layer = {"weight": rng.normal(size=(rows, width)) / 25, "bias": np.zeros(rows)}
        half = {key: value.astype(np.float16) for key, value in layer.items()}
        (folder / name).write_bytes(torch_file.zip_of(half))
    write_settings(folder, modes=("cls",), normalize=True, length=512)


def compare_bge_m3(texts: str, rounds: str = "7") -> None:
    """Prints the seconds of the dense vector alone and of all three outputs, and their ratio."""
    from parts import in_turns

    from bert_features import FeatureExtractor
    from bert_features.readers.input_example import InputExample

    lines = Path(texts).read_text(encoding="utf-8").splitlines()
    examples = [InputExample(i, line) for i, line in enumerate(lines)]
    dense = {"name": "dense", "level": "sequence", "pooling": "auto"}
    three = [dense, *({"name": kind, "kind": kind} for kind in ("sparse", "multi_vector"))]
    with tempfile.TemporaryDirectory() as folder:
        make_bge_m3(Path(folder))

        def job(outputs: list[dict[str, str]]) -> Callable[[], int]:
            make = FeatureExtractor.from_checkpoint
            extractor = make(folder, outputs=outputs, do_lower_case=True)
            return lambda: sum(map(len, extractor.batches(lambda: examples)))

        times = in_turns({"dense": job([dense]), "three": job(three)}, int(rounds))
    for part in ("elapsed", "cpu"):
        alone, all_three = (getattr(times[name], part) for name in ("dense", "three"))
        print(
            f"{part}: dense {alone:.2f} s, three {all_three:.2f} s, ratio {all_three / alone:.3f}"
        )


PROGRAMS = {"bert_features": ours, "SparseEncoder": theirs, "fastembed": fastembed}


def work(program: str, model: str, texts: str) -> None:
    """Prints the seconds, the peak memory in MB and a few weights of a program."""
    lines = Path(texts).read_text(encoding="utf-8").splitlines()
    seconds, found = PROGRAMS[program](model, lines)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": seconds, "peak": peak, "first": found.sum(axis=1).tolist()}))


def run(python: str, *arguments: str) -> str:
    """What this script prints in another process."""
    command = [python, __file__, *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT).stdout


def main() -> None:
    """Measures, and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", required=True)
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--vocabulary", required=True, help="vocab.txt of bert-base-uncased")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=2)
    chosen = parser.parse_args()
    pythons = dict.fromkeys(PROGRAMS, chosen.peer) | {"bert_features": sys.executable}
    lines = [text for text in chosen.texts.read_text(encoding="utf-8").splitlines() if text]
    with tempfile.TemporaryDirectory() as folder:
        run(chosen.peer, "make", folder, str(Path(chosen.vocabulary).resolve()))
        results: dict[tuple[str, int], list[dict[str, float]]] = {}
        for count in (chosen.count, 4 * chosen.count):
            path = Path(folder) / f"{count}.txt"
            path.write_text("\n".join(islice(cycle(lines), count)) + "\n", encoding="utf-8")
            for _ in range(chosen.rounds if count == chosen.count else 1):
                for program, python in pythons.items():
                    made = json.loads(run(python, "work", program, f"{folder}/splade", str(path)))
                    results.setdefault((program, count), []).append(made)
    own, *others = (results[program, chosen.count][0]["first"] for program in PROGRAMS)
    difference = max(np.abs(np.divide(own, other) - 1).max() for other in others)
    print(f"largest relative difference of the sums of weights: {difference:.1e}")
    print("| program | texts | texts/s | peak memory, MB |\n|---|---|---|---|")
    for (program, count), found in results.items():
        speed = count / min(each["seconds"] for each in found)
        print(f"| {program} | {count} | {speed:.1f} | {max(each['peak'] for each in found):.0f} |")


if __name__ == "__main__":
    if sys.argv[1:2] == ["work"]:
        work(*sys.argv[2:])
    elif sys.argv[1:2] == ["make"]:
        make_model(*sys.argv[2:])
    elif sys.argv[1:2] == ["bge-m3"]:
        compare_bge_m3(*sys.argv[2:])
    else:
        main()
