"""Makes small folders of sentence-transformers' SparseEncoder, and the vectors it computes.

    python scripts/make_reference_sparse.py [--out FOLDER]

It needs sentence-transformers 6.2 and nothing of this package. `--out` gets a random BERT with its
masked-LM head in `weights`, as SparseEncoder saves it; for each case the files of its modules,
without the BERT; and `vectors.npz`: of `TEXTS` the vectors of documents, and for the inference-free
case of queries, float32 [texts, V].
"""

import argparse
import shutil
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers
from make_reference_dense import OF_BERT, TEXTS, WORDS, small_config
from sentence_transformers import SparseEncoder
from sentence_transformers.base.modules import Router, Transformer
from sentence_transformers.sparse_encoder.modules import SparseStaticEmbedding, SpladePooling

OUT = Path(__file__).resolve().parents[1] / "tests" / "data" / "sparse_encoder"
# Pooling, activation, and whether queries are a look-up.
CASES = {
    "splade": ("max", "relu", False),
    "splade_v1": ("sum", "relu", False),
    "inference_free": ("max", "log1p_relu", True),
}


def make_bert(folder: Path) -> None:
    """A random BERT with its head and its tokenizer."""
    torch.manual_seed(0)
    model = transformers.BertForMaskedLM(small_config(len(WORDS)))
    with torch.no_grad():
        model.cls.predictions.bias.normal_(std=0.3)
    model.save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    tokenizer = transformers.BertTokenizer(str(folder / "vocab.txt"), model_max_length=24)
    tokenizer.save_pretrained(folder)


def make_model(bert: Path, pooling: str, activation: str, *, lookup: bool) -> SparseEncoder:
    """The encoder of a case."""
    transformer = Transformer(str(bert), transformer_task="fill-mask")
    pool = SpladePooling(pooling_strategy=pooling, activation_function=activation)
    if not lookup:
        return SparseEncoder(modules=[transformer, pool])
    weights = torch.rand(len(WORDS), generator=torch.manual_seed(1)) + 0.1
    table = SparseStaticEmbedding(transformer.tokenizer, weight=weights, frozen=True)
    router = Router.for_query_document(query_modules=[table], document_modules=[transformer, pool])
    return SparseEncoder(modules=[router])


def main() -> None:
    """Writes the folders."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=OUT)
    out = parser.parse_args().out
    vectors: dict[str, np.ndarray] = {}
    with tempfile.TemporaryDirectory() as temporary:
        bert = Path(temporary) / "bert"
        make_bert(bert)
        (out / "weights").mkdir(parents=True, exist_ok=True)
        for name, (pooling, activation, lookup) in CASES.items():
            model = make_model(bert, pooling, activation, lookup=lookup)
            whole = Path(temporary) / name
            model.save(str(whole))
            model = SparseEncoder(str(whole))
            model.eval()
            vectors[name] = model.encode_document(TEXTS, convert_to_sparse_tensor=False).numpy()
            if lookup:
                found = model.encode_query(TEXTS, convert_to_sparse_tensor=False).numpy()
                vectors[f"{name}_queries"] = found
            for file in () if lookup else OF_BERT:
                shutil.copyfile(whole / file, out / "weights" / file)
            for path in sorted(whole.rglob("*")):
                inner = path.relative_to(whole)
                of_bert = str(inner.parent) in (".", "document_0_Transformer")
                keep = path.name not in OF_BERT[2:] and not (of_bert and path.name in OF_BERT)
                if path.is_file() and keep and path.suffix in (".json", ".safetensors"):
                    place = out / name / inner
                    place.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(path, place)
    np.savez_compressed(out / "vectors.npz", texts=np.array(TEXTS), **vectors)


if __name__ == "__main__":
    main()
