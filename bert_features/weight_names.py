"""The weights of a BERT encoder: their names in each family of checkpoints, and their shapes.

Canonical names are google-research/bert's without the `bert/` prefix; canonical kernels are
[in, out], as there. Hugging Face stores them [out, in].

Shape legend: `V` vocab_size, `P` positions, `T` token types, `H` hidden_size, `I`
intermediate_size.
"""

import re
from dataclasses import dataclass

from bert_features.bert_config import BertConfig


@dataclass(frozen=True)
class Weight:
    """One row of the table.

    Attributes:
      canonical: the name here and, behind `bert/`, in TF1 checkpoints; `{i}` is the block.
      huggingface: the name in Hugging Face files, without `bert.`.
      shape: the axes, by the letters of the legend.
      transposed: whether Hugging Face stores it transposed.
    """

    canonical: str
    huggingface: str
    shape: str
    transposed: bool = False


def _dense(canonical: str, huggingface: str, shape: str) -> list[Weight]:
    return [
        Weight(f"{canonical}/kernel", f"{huggingface}.weight", shape, transposed=True),
        Weight(f"{canonical}/bias", f"{huggingface}.bias", shape[1]),
    ]


def _norm(canonical: str, huggingface: str) -> list[Weight]:
    return [
        Weight(f"{canonical}/gamma", f"{huggingface}.weight", "H"),
        Weight(f"{canonical}/beta", f"{huggingface}.bias", "H"),
    ]


_TF, _HF = "encoder/layer_{i}", "encoder.layer.{i}"

EMBEDDINGS = [
    Weight("embeddings/word_embeddings", "embeddings.word_embeddings.weight", "VH"),
    Weight("embeddings/position_embeddings", "embeddings.position_embeddings.weight", "PH"),
    Weight("embeddings/token_type_embeddings", "embeddings.token_type_embeddings.weight", "TH"),
    *_norm("embeddings/LayerNorm", "embeddings.LayerNorm"),
]
BLOCK = [
    *_dense(f"{_TF}/attention/self/query", f"{_HF}.attention.self.query", "HH"),
    *_dense(f"{_TF}/attention/self/key", f"{_HF}.attention.self.key", "HH"),
    *_dense(f"{_TF}/attention/self/value", f"{_HF}.attention.self.value", "HH"),
    *_dense(f"{_TF}/attention/output/dense", f"{_HF}.attention.output.dense", "HH"),
    *_norm(f"{_TF}/attention/output/LayerNorm", f"{_HF}.attention.output.LayerNorm"),
    *_dense(f"{_TF}/intermediate/dense", f"{_HF}.intermediate.dense", "HI"),
    *_dense(f"{_TF}/output/dense", f"{_HF}.output.dense", "IH"),
    *_norm(f"{_TF}/output/LayerNorm", f"{_HF}.output.LayerNorm"),
]
POOLER = _dense("pooler/dense", "pooler.dense", "HH")

# What a checkpoint may hold besides the encoder, by family; matched from the start of the name.
IGNORED: dict[str, re.Pattern[str]] = {
    # Slots and counters of the optimizers that BERT checkpoints were trained with: part of a name.
    "optimizer": re.compile(
        r".*/(adam_m|adam_v|adam|adam_\d+|adamweightdecay\w*|lamb\w*|exponentialmovingaverage)$"
        r"|(.*/)?(global_step|beta1_power|beta2_power|bad_steps|good_steps|loss_scale"
        r"|current_loss_scale|save_counter)$",
        re.IGNORECASE,
    ),
    # Buffers that Hugging Face models carry: constants, not weights.
    "buffer": re.compile(r"embeddings\.(position_ids|token_type_ids)$"),
    # Heads of pre-training and of fine-tuned tasks.
    "head": re.compile(
        r"(cls|classifier|qa_outputs|logits_fc|output_weights|output_bias|loss|crf|project)\b"
    ),
}


def weights(config: BertConfig, *, pooler: bool) -> list[Weight]:
    """Every weight of an architecture, blocks written out."""
    blocks = [
        Weight(
            weight.canonical.format(i=i),
            weight.huggingface.format(i=i),
            weight.shape,
            weight.transposed,
        )
        for i in range(config.num_hidden_layers)
        for weight in BLOCK
    ]
    return [*EMBEDDINGS, *blocks, *(POOLER if pooler else [])]


def shape_of(weight: Weight, config: BertConfig) -> tuple[int, ...]:
    """The canonical shape of a weight."""
    sizes = {
        "V": config.vocab_size,
        "P": config.max_position_embeddings,
        "T": config.type_vocab_size,
        "H": config.hidden_size,
        "I": config.intermediate_size,
    }
    return tuple(sizes[axis] for axis in weight.shape)


def weight_shapes(config: BertConfig, *, pooler: bool = True) -> dict[str, tuple[int, ...]]:
    """Canonical name -> shape of every weight of an architecture."""
    return {w.canonical: shape_of(w, config) for w in weights(config, pooler=pooler)}


def parameter_count(config: BertConfig, *, pooler: bool = True) -> int:
    """How many numbers the weights are."""
    total = 0
    for shape in weight_shapes(config, pooler=pooler).values():
        size = 1
        for axis in shape:
            size *= axis
        total += size
    return total


def is_ignored(name: str) -> str | None:
    """Which kind of thing besides the encoder a name in a checkpoint is, or None."""
    return next((kind for kind, pattern in IGNORED.items() if pattern.match(name)), None)


# TensorFlow 1 and early conversions to PyTorch call the parameters of a layer norm so.
_OLD_NORMS = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}


def plain_huggingface(name: str) -> str:
    """A name of a Hugging Face file without its `bert.` prefix and in today's spelling."""
    name = name.removeprefix("bert.")
    for old, new in _OLD_NORMS.items():
        name = name.replace(old, new)
    return name


def plain_tf1(name: str) -> str:
    """A name of a TF1 checkpoint without its `bert/` prefix."""
    return name.removeprefix("bert/")
