"""Makes small folders of sentence-transformers with Dense modules, and the vectors it computes.

    bash scripts/make_reference_dense.sh

`--out` gets a random BERT in `weights`, as sentence-transformers saves it; for each case of `CASES`
the files of its modules, without the BERT; and `vectors.npz`, the vectors of `TEXTS` in float32.
Nothing of this package is used.
"""

import argparse
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules

OUT = Path(__file__).resolve().parents[1] / "tests" / "data" / "sentence_dense"
WIDTH = 16
# Files of the BERT, which is the same in each case.
OF_BERT = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
WORDS = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "river", "boat", "bank", "##s", "of"),
    *("a", "is", "this", "money", ".", ","),
]
TEXTS = [
    "The river bank.",
    "",
    "a boat",
    "Is this the money of the banks, the boats, the river, the boats, the banks of a river?",
    "boats boats",
    "unknown words",
]
TANH, IDENTITY = torch.nn.Tanh(), torch.nn.Identity()
GELU, RELU = torch.nn.GELU(), torch.nn.ReLU()

# Poolings; (inputs, outputs, bias, activation) of each Dense; whether Normalize follows; and
# `truncate_dim`. The first three are the forms of LaBSE, distiluse and sentence-t5.
CASES: dict[str, tuple[list[str], list[tuple[int, int, bool, Any]], bool, int | None]] = {
    "labse": (["cls"], [(WIDTH, WIDTH, True, TANH)], True, None),
    "distiluse": (["mean"], [(WIDTH, 8, True, TANH)], False, None),
    "sentence_t5": (["mean"], [(WIDTH, 12, False, IDENTITY)], True, 5),
    "two": (["cls", "max"], [(2 * WIDTH, 24, True, GELU), (24, 6, True, RELU)], False, None),
}


def small_config(vocab_size: int) -> transformers.BertConfig:
    """The architecture of the small BERTs of these scripts."""
    return transformers.BertConfig(
        vocab_size=vocab_size,
        hidden_size=WIDTH,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=24,
        initializer_range=0.3,
    )


def make_bert(folder: Path) -> None:
    """A random BERT with its tokenizer."""
    transformers.BertModel(small_config(len(WORDS))).save_pretrained(folder)
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in WORDS))
    transformers.BertTokenizer(str(folder / "vocab.txt"), do_lower_case=True).save_pretrained(
        folder
    )


def make_case(bert: Path, name: str, folder: Path) -> np.ndarray:
    """Saves the model of a case; its vectors."""
    poolings, dense, normalize, truncate_dim = CASES[name]
    parts: list[Any] = [modules.Transformer(str(bert), max_seq_length=16)]
    parts.append(modules.Pooling(WIDTH, pooling_mode=poolings))
    for inputs, outputs, bias, activation in dense:
        parts.append(modules.Dense(inputs, outputs, bias=bias, activation_function=activation))
    parts += [modules.Normalize()] if normalize else []
    SentenceTransformer(modules=parts, truncate_dim=truncate_dim).save(str(folder))
    model = SentenceTransformer(str(folder), device="cpu")
    return np.asarray(model.encode(TEXTS, show_progress_bar=False), np.float32)


def main() -> None:
    """Makes all folders and the vectors."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=OUT, help="a folder, which is replaced")
    out = parser.parse_args().out
    shutil.rmtree(out, ignore_errors=True)
    torch.manual_seed(7)
    vectors = {}
    with tempfile.TemporaryDirectory() as folder:
        bert = Path(folder, "bert")
        make_bert(bert)
        for name in CASES:
            whole = Path(folder, name)
            vectors[name] = make_case(bert, name, whole)
            (whole / "README.md").unlink()
            for path in list(whole.iterdir()):
                place = "weights" if path.name in OF_BERT else name
                (out / place).mkdir(parents=True, exist_ok=True)
                shutil.move(path, out / place / path.name)
    for path in out.rglob("*.safetensors"):
        path.chmod(0o644)
    np.savez_compressed(out / "vectors.npz", texts=TEXTS, **vectors)


if __name__ == "__main__":
    main()
