"""Makes small checkpoints for late interaction in three forms, and sentence-transformers' vectors.

    .venv-benchmark/bin/python scripts/make_reference_multi_vector.py

`--out` gets a random BERT in `weights`; for each case the files that are its own; and
`vectors.npz`: of each case and side the vectors of `TEXTS` one after the other, their numbers, and
the scores of queries by documents. `stanford` lacks its model.safetensors, which is that of
`weights` with `linear.weight` from `linear.safetensors`. Nothing of this package is used.
"""

import argparse
import json
import shutil
import string
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from make_reference_dense import WIDTH, small_config
from safetensors.torch import load_file, save_file
from sentence_transformers import MultiVectorEncoder
from sentence_transformers.base import modules as base
from sentence_transformers.multi_vector_encoder import modules

OUT = Path(__file__).resolve().parents[1] / "tests" / "data" / "multi_vector"
WORDS = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[unused0]", "[unused1]", "the", "river"),
    *("boat", "bank", "##s", "of", "a", "is", "this", "money", ".", ",", "?", "query", ":"),
]
TEXTS = [
    "The river bank.",
    "",
    "a boat",
    "Is this the money of the banks, the boats, the river, the boats, the banks of a river?",
    "boats, boats.",
    "unknown words",
]
NATIVE, PYLATE = "sentence_transformers.", "pylate.models.Dense.Dense"


def make_bert(folder: Path, added: tuple[str, ...] = ()) -> None:
    """A random BERT, the same each time but for the rows of added tokens, with its tokenizer."""
    torch.manual_seed(7)
    config = small_config(len(WORDS) + 2)
    transformers.BertModel(config, add_pooling_layer=False).save_pretrained(folder)
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in WORDS))
    tokenizer = transformers.BertTokenizer(str(folder / "vocab.txt"), do_lower_case=True)
    tokenizer.model_max_length = 20
    tokenizer.add_tokens(list(added))
    tokenizer.save_pretrained(folder)


def dense(inputs: int, outputs: int, activation: Any, **options: Any) -> Any:
    """A Dense module over tokens."""
    names = {"module_input_name": "token_embeddings"}
    return base.Dense(inputs, outputs, activation_function=activation, **names, **options)


def classic(folder: Path) -> None:
    """Saved by sentence-transformers: markers, fixed expansion that no token sees."""
    make_bert(bert := folder.with_name("bert"))
    expansion = {"strategy": "fixed", "attend": False, "length": 12}
    transformer = base.Transformer(str(bert), document_length=16, query_expansion=expansion)
    markers = [transformers.AddedToken(w, special=True) for w in ("[unused0]", "[unused1]")]
    transformer.tokenizer.add_special_tokens({"additional_special_tokens": markers})
    parts = [
        transformer,
        dense(WIDTH, 8, torch.nn.Identity(), bias=False),
        modules.MultiVectorMask(skiplist_words=list(string.punctuation)),
        base.Normalize(module_input_name="token_embeddings"),
    ]
    prompts = {"query": "[unused0] ", "document": "[unused1] "}
    MultiVectorEncoder(modules=parts, prompts=prompts).save(str(folder))


def plain(folder: Path) -> None:
    """Saved by sentence-transformers: text prompts, residual, an expansion that is seen."""
    make_bert(bert := folder.with_name("bert"))
    expansion = {"strategy": "min", "attend": True, "length": 9, "token": "bank"}
    parts = [
        base.Transformer(str(bert), query_length=14, query_expansion=expansion),
        dense(WIDTH, WIDTH, torch.nn.Tanh(), use_residual=True),
        dense(WIDTH, 6, torch.nn.GELU(), use_residual=True, bias=False),
        modules.MultiVectorMask(skiplist_words=["the", "none"], skiplist_tasks=["query"]),
    ]
    model = MultiVectorEncoder(modules=parts, prompts={"query": "query: "})
    model.similarity_fn_name = "meanmaxsim"
    model.save(str(folder))


def pylate(folder: Path) -> None:
    """As PyLate saves: its settings in the main config, `[Q] ` and `[D] ` among added tokens."""
    make_bert(folder, ("[Q] ", "[D] "))
    (folder / "vocab.txt").unlink(missing_ok=True)
    types = [f"{NATIVE}models.Transformer", PYLATE]
    entries = [
        {"idx": i, "name": str(i), "path": path, "type": kind}
        for i, (path, kind) in enumerate(zip(("", "1_Dense"), types, strict=True))
    ]
    main = {
        "model_type": "ColBERT",
        "prompts": {},
        "default_prompt_name": None,
        "similarity_fn_name": "MaxSim",
        "query_prefix": "[Q] ",
        "document_prefix": "[D] ",
        "query_length": 10,
        "document_length": 18,
        "attend_to_expansion_tokens": False,
        "skiplist_words": [".", ","],
    }
    save(folder / "modules.json", entries)
    save(folder / "config_sentence_transformers.json", main)
    save(folder / "sentence_bert_config.json", {"max_seq_length": 17, "do_lower_case": False})
    torch.manual_seed(8)
    linear = torch.nn.Linear(WIDTH, 8, bias=False)
    (folder / "1_Dense").mkdir()
    save_file({"linear.weight": linear.weight.data}, folder / "1_Dense" / "model.safetensors")
    own = {"in_features": WIDTH, "out_features": 8, "bias": False, "use_residual": False}
    own["activation_function"] = "torch.nn.modules.linear.Identity"
    save(folder / "1_Dense" / "config.json", own)


def stanford(folder: Path) -> None:
    """As the ColBERT of Stanford: the projection among the weights, `artifact.metadata`."""
    make_bert(folder)
    config = json.loads((folder / "config.json").read_text())
    save(folder / "config.json", config | {"architectures": ["HF_ColBERT"]})
    torch.manual_seed(9)
    linear = {"linear.weight": torch.randn(8, WIDTH) / 4}
    weights = load_file(folder / "model.safetensors")
    weights = {f"bert.{name}": values for name, values in weights.items()} | linear
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    save_file(linear, folder / "linear.safetensors")
    metadata = {"query_token_id": "[unused0]", "doc_token_id": "[unused1]", "query_maxlen": 12}
    metadata |= {"doc_maxlen": 15, "attend_to_mask_tokens": True, "mask_punctuation": True}
    save(folder / "artifact.metadata", metadata | {"dim": 8, "similarity": "cosine"})


def save(path: Path, values: Any) -> None:
    """Writes JSON."""
    path.write_text(json.dumps(values, indent=1) + "\n")


CASES = {"classic": classic, "plain": plain, "pylate": pylate, "stanford": stanford}


def vectors_of(name: str, folder: Path) -> dict[str, np.ndarray]:
    """The vectors of both sides and the scores, as the saved folder gives them."""
    model = MultiVectorEncoder(str(folder), device="cpu")
    options = {"convert_to_numpy": True, "show_progress_bar": False}
    sides = {
        "query": model.encode_query(TEXTS, **options),
        "document": model.encode_document(TEXTS, **options),
    }
    found = {f"{name}/scores": model.similarity(*sides.values()).numpy()}
    for side, vectors in sides.items():
        found[f"{name}/{side}"] = np.concatenate(vectors)
        found[f"{name}/{side}_lengths"] = np.array([len(each) for each in vectors])
    return found


def main() -> None:
    """Makes all folders and the vectors."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=OUT, help="a folder, which is replaced")
    out = parser.parse_args().out
    shutil.rmtree(out, ignore_errors=True)
    found: dict[str, np.ndarray] = {}
    for name, make in CASES.items():
        with tempfile.TemporaryDirectory() as temporary:
            make(folder := Path(temporary, name))
            found |= vectors_of(name, folder)
            (out / "weights").mkdir(parents=True, exist_ok=True)
            if name != "stanford":
                shutil.copyfile(folder / "model.safetensors", out / "weights/model.safetensors")
            for unwanted in ("README.md", "model.safetensors"):
                (folder / unwanted).unlink(missing_ok=True)
            shutil.copytree(folder, out / name)
    for path in out.rglob("*.safetensors"):
        path.chmod(0o644)
    np.savez_compressed(out / "vectors.npz", texts=TEXTS, **found)


if __name__ == "__main__":
    main()
