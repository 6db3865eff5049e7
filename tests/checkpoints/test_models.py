"""A toy of each kind of model that people use: loaded with its own weights, or refused by name.

The toys are those of tests/data/families, whose layers transformers computed, with the settings and
files that each kind has.
"""

import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from bert_features.checkpoints.find import find_checkpoint
from bert_features.checkpoints.pooling import auto_pooling
from bert_features.checkpoints.read import read_weights
from bert_features.checkpoints.tokenizer import resolve_vocabulary
from bert_features.config.outputs import parse_outputs
from bert_features.errors import CheckpointError
from tests import families
from tests.reference.torch_file import zip_of

MODULE = "sentence_transformers.models."
POOLED = {"type": f"{MODULE}Pooling", "path": "1_Pooling"}
NORMALIZED = {"type": f"{MODULE}Normalize", "path": "2_Normalize"}
ROWS = 1100  # more than the small tokenizers of the families have pieces


def config(**values):
    return {"config.json": values}


def beside(**values):
    return {"tokenizer_config.json": values}


def modules(*others):
    listed = [{"type": f"{MODULE}Transformer", "path": ""}, *others]
    return {"modules.json": listed, "1_Pooling/config.json": {"pooling_mode_cls_token": True}}


DENSE = {
    **modules(POOLED, {"type": f"{MODULE}Dense", "path": "2_Dense"}),
    "2_Dense/config.json": {"in_features": 16, "out_features": 8, "bias": True},
}
SPLADE = {"type": f"{MODULE}SpladePooling", "path": "1_SpladePooling"}
PYLATE = {"type": "pylate.models.Dense.Dense", "path": "1_Dense"}
NEXT = families.vocabulary("bert").count("\n")  # the first id behind the vocabulary

# Kind -> family; files, of which JSON is added to what is there; how the weights are changed; what
# it gives: the kind of tokenizer, or a part of the refusal of tokenizer (?) or auto (~).
KINDS = {
    "bert": ("bert", {}, {}, "WordPieceFile"),
    "float16": ("bert", {}, {"dtype": np.float16}, "WordPieceFile"),
    "spare rows": ("bert", {}, {"rows": 41}, "WordPieceFile"),
    "pickle": ("bert", {}, {"pickled": True}, "WordPieceFile"),
    "pickle of XLM-R": ("roberta", {}, {"pickled": True, "rows": ROWS}, "SentencePieceModel"),
    "many positions": ("bert", config(emb_size=16), {}, "WordPieceFile"),
    "Japanese": (
        "bert",
        beside(tokenizer_class="BertJapaneseTokenizer", word_tokenizer_type="mecab"),
        {"pickled": True},
        '?word_tokenizer_type is "mecab"',
    ),
    "BERT with XLM-R's tokenizer": ("bert", {}, {"rows": ROWS}, "SentencePieceModel"),
    "RoBERTa": ("roberta", {}, {"rows": ROWS}, "JsonModel"),
    "XLM-R": ("roberta", config(model_type="xlm-roberta"), {"rows": ROWS}, "SentencePieceModel"),
    "CamemBERT": ("roberta", config(model_type="camembert"), {"rows": ROWS}, "SentencePieceModel"),
    "RoBERTa with WordPiece": (
        "roberta",
        beside(tokenizer_class="BertTokenizer", do_lower_case=False),
        {},
        "WordPieceFile",
    ),
    "tweets": ("roberta", {"bpe.codes": "a b 1\n"}, {}, "?BertweetTokenizer"),
    "ELECTRA": ("electra", {}, {}, "WordPieceFile"),
    "ALBERT": ("albert", {}, {"rows": ROWS}, "SentencePieceModel"),
    "DistilBERT": ("distilbert", config(sinusoidal_pos_embds=False), {}, "WordPieceFile"),
    "ModernBERT": (
        "modernbert",
        config(layer_norm_eps=1e-12, norm_eps=1e-5),
        {"rows": ROWS},
        "JsonModel",
    ),
    "mmBERT": (
        "modernbert",
        config(position_embedding_type="sans_pos"),
        {"rows": ROWS},
        "JsonModel",
    ),
    "MPNet": ("mpnet", modules(POOLED, NORMALIZED), {}, "WordPieceFile"),
    "ERNIE": ("ernie", {}, {}, "WordPieceFile"),
    "NomicBERT": ("nomic_bert", modules(POOLED), {}, "WordPieceFile"),
    "GTE": ("gte", modules(POOLED), {}, "WordPieceFile"),
    "vectors": ("bert", modules(POOLED, NORMALIZED), {}, "WordPieceFile"),
    "Dense": ("bert", DENSE, {}, "WordPieceFile"),
    "SPLADE": ("bert", modules(SPLADE), {"pickled": True}, "~SpladePooling"),
    "ColBERT": ("bert", {"artifact.metadata": {}}, {"more": ["linear.weight"]}, "WordPieceFile"),
    "ColBERT of PyLate": (
        "modernbert",
        {**modules(PYLATE), "added_tokens.json": {"[Q]": NEXT, "[D]": NEXT + 1}},
        {"rows": NEXT + 2},
        "~pylate",
    ),
}


@pytest.fixture(scope="module")
def tokenizers(family_files):
    """The small tokenizers, by the kind of file that a toy is to have."""
    folder = family_files
    return {
        "JsonModel": folder / "roberta" / "tokenizer.json",
        "SentencePieceModel": folder / "xlm_roberta" / "sentencepiece.bpe.model",
        "albert": folder / "albert" / "spiece.model",
    }


def make(folder, kind, tokenizers):
    family, files, change, gives = KINDS[kind]
    source = families.DATA / family
    rows = change.get("rows", 30)
    tensors = load_file(source / "model.safetensors")
    for name, value in tensors.items():
        if value.shape[:1] == (30,):  # of pieces
            spare = [(0, rows - 30), *[(0, 0)] * (value.ndim - 1)]
            value = np.pad(value, spare)
        tensors[name] = value.astype(change.get("dtype", value.dtype))
    tensors |= {name: np.ones((2, 16), np.float32) for name in change.get("more", ())}
    if change.get("pickled"):
        arrays = {name: np.ascontiguousarray(value) for name, value in tensors.items()}
        (folder / "pytorch_model.bin").write_bytes(zip_of(arrays))
    else:
        save_file(tensors, folder / "model.safetensors")
    tokenizer = tokenizers.get("albert" if family == "albert" else gives)
    if tokenizer is None:
        (folder / "vocab.txt").write_text(families.vocabulary(family))
    else:
        shutil.copy(tokenizer, folder)
    settings = json.loads((source / "config.json").read_text()) | {"vocab_size": rows}
    for name, value in ({"config.json": {}, "tokenizer_config.json": {}} | files).items():
        (folder / name).parent.mkdir(exist_ok=True)
        if name == "config.json":
            value = settings | value
        if name == "tokenizer_config.json":
            value = {"do_lower_case": True} | value
        (folder / name).write_text(value if isinstance(value, str) else json.dumps(value))
    if "2_Dense/config.json" in files:
        dense = {"linear.weight": (8, 16), "linear.bias": (8,)}
        save_file(
            {name: np.ones(shape, np.float32) for name, shape in dense.items()},
            folder / "2_Dense" / "model.safetensors",
        )
    return folder


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_loaded_or_refused_by_name(kind, tmp_path, tokenizers):
    family, files, change, gives = KINDS[kind]
    folder = make(tmp_path, kind, tokenizers)
    found = find_checkpoint(folder)
    read = read_weights(found)
    for name, want in families.weights(family).items():
        if name in read:
            want = want.astype(change.get("dtype", want.dtype)).astype(np.float32)
            np.testing.assert_array_equal(read[name][: len(want)], want, name)
    assert families.weights(family).keys() - read.keys() <= {
        "pooler/dense/kernel",
        "pooler/dense/bias",
    }
    if gives.startswith("?"):
        with pytest.raises(CheckpointError, match=gives[1:]):
            resolve_vocabulary(found)
        return
    file, _ = resolve_vocabulary(found)
    assert type(file).__name__ == gives or gives.startswith("~")
    auto = parse_outputs([{"level": "sequence", "pooling": "auto"}])
    if gives.startswith("~"):
        with pytest.raises(CheckpointError, match=gives[1:]):
            auto_pooling(found, auto)
    elif "modules.json" in files:
        assert auto_pooling(found, auto).pooling == "cls"


def test_each_family_has_a_published_folder():
    assert {family for family, *_ in KINDS.values()} == {*families.NAMES}
