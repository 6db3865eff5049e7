"""Compares `FeatureExtractor.encode` with pooling `auto` with sentence-transformers itself.

    bash scripts/check_sentence_transformers.sh --texts FILE

For each case of `CASES` sentence-transformers makes a folder from the weights of the embedded
all-MiniLM-L6-v2 (not Google's BERT) and encodes the texts; then this package does the same from the
folder alone. Prints the greatest difference of each case; exit status 1 if one is beyond
1e-5 + 1e-5 * |value|. With `--save` the vectors of a few texts go to a file, for the test suite.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

DATA = Path(__file__).resolve().parents[1] / "tests" / "data"
TOLERANCE = 1e-5
SAVED_TEXTS = 8

# Arguments of sentence-transformers' modules; `length` is that of the Transformer.
CASES: dict[str, dict[str, Any]] = {
    "mean_unit": {"modes": ["mean"], "normalize": True, "length": 256},
    "cls": {"modes": ["cls"], "normalize": False, "length": 128},
    "max": {"modes": ["max"], "normalize": False, "length": 128},
    "sqrt_cut_at_16": {"modes": ["mean_sqrt_len_tokens"], "normalize": False, "length": 16},
    "three_unit_prompt": {
        "modes": ["cls", "max", "mean"],
        "normalize": True,
        "length": 64,
        "prompts": {"query": "query: ", "passage": "passage: "},
        "default_prompt_name": "query",
    },
}


def write_folder(case: dict[str, Any], folder: Path) -> Any:
    """Makes the model of a case and saves it; gives the model."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import modules

    from bert_features import find_checkpoint

    source = find_checkpoint("minilm").weights_path.parent
    transformer = modules.Transformer(str(source), max_seq_length=case["length"])
    parts: list[Any] = [transformer, modules.Pooling(384, pooling_mode=case["modes"])]
    if case["normalize"]:
        parts.append(modules.Normalize())
    model = SentenceTransformer(
        modules=parts,
        device="cpu",
        prompts=case.get("prompts"),
        default_prompt_name=case.get("default_prompt_name"),
    )
    model.save(str(folder))
    return model


def compare(texts: list[str]) -> tuple[dict[str, np.ndarray], bool]:
    """The vectors by sentence-transformers of each case, and whether ours are the same."""
    from bert_features import FeatureExtractor

    vectors, same = {}, True
    print(f"{len(texts)} texts\n{'case':<20}{'width':>6}{'largest value':>15}{'difference':>12}")
    for name, case in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            model = write_folder(case, Path(folder))
            theirs = np.asarray(model.encode(texts, show_progress_bar=False), np.float32)
            extractor = FeatureExtractor.from_checkpoint(folder, level="sequence", pooling="auto")
            ours = extractor.encode(texts)
        difference = float(np.abs(ours - theirs).max())
        print(f"{name:<20}{ours.shape[1]:>6}{np.abs(theirs).max():>15.3f}{difference:>12.1e}")
        same &= bool(np.allclose(ours, theirs, rtol=TOLERANCE, atol=TOLERANCE))
        vectors[name] = theirs
    return vectors, same


def read_texts(path: Path | None, count: int) -> list[str]:
    """The first lines of a file; by default those of the test data."""
    paths = [DATA / "english.txt", DATA / "udhr_300.txt"] if path is None else [path]
    lines = [line for p in paths for line in p.read_text(encoding="utf-8").split("\n") if line]
    return lines[:count]


def main() -> int:
    """Runs the comparison; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--texts", type=Path, help="a text on each line; by default tests/data")
    parser.add_argument("--count", type=int, default=1000, help="number of texts")
    parser.add_argument("--save", type=Path, help=f"an .npz for the first {SAVED_TEXTS} texts")
    arguments = parser.parse_args()
    texts = read_texts(arguments.texts, arguments.count)
    vectors, same = compare(texts)
    if arguments.save is not None:
        few = {name: values[:SAVED_TEXTS] for name, values in vectors.items()}
        np.savez_compressed(
            arguments.save, texts=texts[:SAVED_TEXTS], cases=json.dumps(CASES), **few
        )
    print("the same" if same else f"beyond {TOLERANCE} + {TOLERANCE} * |value|")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
