"""The weights of a BERT encoder: their names in each storage form, and their shapes.

Canonical names are google-research/bert's without the `bert/` prefix; canonical kernels are
[in, out], as there. Hugging Face stores them [out, in]; the Model Garden (TF2, TF-Hub) stores
attention kernels with an axis for the heads.

BERT's relatives have the same weights, and a few of their own; `relatives` has their names.

Shape legend: `V` vocab_size, `P` positions, `T` token types, `K` tasks, `R` rows of relative
positions, `E` width of the embeddings, `H` hidden_size, `I` intermediate_size, `G` the same or,
with a gate, twice that, `Q` 3 H, `A` heads, `D` head size.
"""

import functools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from bert_features.checkpoints.weights.garden_names import in_todays_spelling, name_at_path
from bert_features.checkpoints.weights.ignored_names import IGNORED, IGNORED_OBJECTS
from bert_features.checkpoints.weights.relatives import RENAMED
from bert_features.config.architectures import ARCHITECTURES
from bert_features.config.bert_config import BertConfig
from bert_features.errors import CheckpointError

# How weights are stored: by google-research/bert's Saver, as the objects of a TF2 program, or by
# Hugging Face. Each has its own names and layout.
Kind = Literal["tf1", "tf2", "safetensors"]

# Ten times the deepest encoder that was ever published. The list of a million layers' weights takes
# minutes and gigabytes.
MAX_LAYERS = 10_000


@dataclass(frozen=True)
class Weight:
    """One row of the table.

    Attributes:
      canonical: the name here; `{i}` is the block.
      huggingface: the name in Hugging Face files, without `bert.`.
      garden: the name of the variable in the Model Garden's encoders.
      shape: the axes, by the letters of the legend.
      garden_shape: the axes of the Model Garden's variable.
      transposed: whether Hugging Face stores it transposed.
      tf1: the name in TF1 checkpoints, without `bert/`; empty if it is the canonical one.
      folded_into: the weight, by canonical name, to whose rows reading adds the first row of this
        table; the encoder does not have the table. Empty for a weight of the encoder.
    """

    canonical: str
    huggingface: str
    garden: str
    shape: str
    garden_shape: str
    transposed: bool = False
    tf1: str = ""
    folded_into: str = ""


def _dense(
    canonical: str, huggingface: str, garden: str, shape: str, *garden_shapes: str
) -> list[Weight]:
    kernel, bias = garden_shapes or (shape, shape[1])
    names = f"{canonical}/kernel", f"{huggingface}.weight", f"{garden}/kernel"
    return [
        Weight(*names, shape, kernel, transposed=True),
        Weight(f"{canonical}/bias", f"{huggingface}.bias", f"{garden}/bias", shape[1], bias),
    ]


def _norm(canonical: str, huggingface: str, garden: str, size: str = "H") -> list[Weight]:
    return [
        Weight(f"{canonical}/gamma", f"{huggingface}.weight", f"{garden}/gamma", size, size),
        Weight(f"{canonical}/beta", f"{huggingface}.bias", f"{garden}/beta", size, size),
    ]


def _table(canonical: str, garden: str, shape: str, *, folded_into: str = "") -> Weight:
    huggingface, garden = canonical.replace("/", ".") + ".weight", f"{garden}/embeddings"
    return Weight(canonical, huggingface, garden, shape, shape, folded_into=folded_into)


_TF, _HF, _MG = "encoder/layer_{i}", "encoder.layer.{i}", "transformer/layer_{i}"
_SELF, _HF_SELF = f"{_TF}/attention/self", f"{_HF}.attention.self"
_MG_SELF = f"{_MG}/self_attention"
_OUT, _HF_OUT = f"{_TF}/attention/output", f"{_HF}.attention.output"

_TYPES = "embeddings/token_type_embeddings"
EMBEDDINGS = [
    _table("embeddings/word_embeddings", "word_embeddings", "VE"),
    _table("embeddings/position_embeddings", "position_embedding", "PE"),
    _table(_TYPES, "type_embeddings", "TE"),
    _table("embeddings/task_type_embeddings", "task_type_embeddings", "KE", folded_into=_TYPES),
    *_norm("embeddings/LayerNorm", "embeddings.LayerNorm", "embeddings/layer_norm", "E"),
    _table("encoder/relative_attention_bias", "relative_attention_bias", "RA"),
]
PROJECTION = _dense("embeddings_project", "embeddings_project", "embedding_projection", "EH")
BLOCK = [
    *_dense(f"{_SELF}/query", f"{_HF_SELF}.query", f"{_MG_SELF}/query", "HH", "HAD", "AD"),
    *_dense(f"{_SELF}/key", f"{_HF_SELF}.key", f"{_MG_SELF}/key", "HH", "HAD", "AD"),
    *_dense(f"{_SELF}/value", f"{_HF_SELF}.value", f"{_MG_SELF}/value", "HH", "HAD", "AD"),
    *_dense(f"{_OUT}/dense", f"{_HF_OUT}.dense", f"{_MG_SELF}/attention_output", "HH", "ADH", "H"),
    *_norm(f"{_OUT}/LayerNorm", f"{_HF_OUT}.LayerNorm", f"{_MG_SELF}_layer_norm"),
    *_dense(f"{_TF}/intermediate/dense", f"{_HF}.intermediate.dense", f"{_MG}/intermediate", "HG"),
    *_dense(f"{_TF}/output/dense", f"{_HF}.output.dense", f"{_MG}/output", "IH"),
    *_norm(f"{_TF}/output/LayerNorm", f"{_HF}.output.LayerNorm", f"{_MG}/output_layer_norm"),
]
# The axes of the legend that are the rows of a table -> their number in the config; without rows,
# or null, an architecture lacks the table.
TABLE_ROWS = {
    **{"V": "vocab_size", "P": "max_position_embeddings", "T": "type_vocab_size"},
    **{"K": "task_type_vocab_size", "R": "relative_attention_num_buckets"},
}
_FOLDED = [row for row in EMBEDDINGS if row.folded_into]
# Instead of query, key and value where a checkpoint stores them as one.
JOINED = _dense(f"{_SELF}/qkv", f"{_HF_SELF}.qkv", f"{_MG_SELF}/qkv", "HQ")
# Instead of one dense layer where it has a gate whose halves are stored apart.
HALVES = [
    *_dense(f"{_TF}/intermediate/gate", f"{_HF}.intermediate.gate", f"{_MG}/gate", "HI"),
    *_dense(f"{_TF}/intermediate/up", f"{_HF}.intermediate.up", f"{_MG}/up", "HI"),
]
FINAL = _norm("encoder/LayerNorm", "final_norm", "transformer/layer_norm")
# By `BertConfig.biases`: how the names of weights end that an architecture lacks.
_LACKING: dict[str, re.Pattern[str]] = {
    "all": re.compile(r"(?!)"),
    "ungated": re.compile(r"encoder/layer_[^/]+/intermediate/\w+/bias$"),
    "norms": re.compile(r"encoder/layer_.*/bias$"),
    "none": re.compile(r".*/(bias|beta)$"),
}
_BLOCK_NUMBER = re.compile(r"encoder/layer_(\d+)/")
POOLER = _dense("pooler/dense", "pooler.dense", "pooler_transform", "HH")

# The Model Garden's pretrainer trains the pooler of its next-sentence head, which has this name or
# path. The encoder's own pooler stays as it was initialised.
_NEXT_SENTENCE_POOLER = re.compile(r"(?:.*/)?next_sentence(?:\.\.|[./])pooler_dense/(kernel|bias)$")


def weights(config: BertConfig, *, pooler: bool) -> list[Weight]:
    """Every weight of an architecture, for all its blocks.

    Raises CheckpointError if these are more than `MAX_LAYERS`.
    """
    if config.num_hidden_layers > MAX_LAYERS:
        raise CheckpointError(
            f"num_hidden_layers is {config.num_hidden_layers:,}; at most {MAX_LAYERS:,} are allowed"
        )
    blocks = [
        replace(
            weight,
            canonical=weight.canonical.format(i=i),
            huggingface=weight.huggingface.format(i=i),
            garden=weight.garden.format(i=i),
            tf1=weight.tf1.format(i=i),
        )
        for i in range(config.distinct_blocks)
        for weight in _block(config, first=i == 0)
    ]
    table = _TABLES[config.model_type]
    before = table["embeddings"] + (table["projection"] if config.projects_embeddings else [])
    after = table["final"] if config.final_norm else []
    after = after + (table["pooler"] if pooler and config.has_pooler else [])
    return [*_without_absent(before, config), *blocks, *_without_absent(after, config)]


def _block(config: BertConfig, *, first: bool) -> list[Weight]:
    table = _TABLES[config.model_type]
    rows = table["block"]
    if config.joins_matrices:
        rows = [*table["joined"], *(row for row in rows if not row.canonical.startswith(_SELF))]
    elif config.gated:
        dense = f"{_TF}/intermediate"
        rows = [*table["halves"], *(row for row in rows if not row.canonical.startswith(dense))]
    if first and not config.first_block_norm:
        rows = [row for row in rows if not row.canonical.startswith(f"{_OUT}/LayerNorm")]
    return _without_absent(rows, config)


def _without_absent(rows: list[Weight], config: BertConfig) -> list[Weight]:
    """The rows without tables and biases that the architecture lacks."""
    absent = {axis for axis, key in TABLE_ROWS.items() if not getattr(config, key)}
    absent |= set() if config.global_rope_theta is None else {"P"}
    lacking = _LACKING[config.biases]
    return [row for row in rows if not absent & {*row.shape} and not lacking.match(row.canonical)]


def _sizes(axes: str, config: BertConfig) -> tuple[int, ...]:
    sizes = {axis: getattr(config, key) or 0 for axis, key in TABLE_ROWS.items()} | {
        "E": config.embedding_width,
        "H": config.hidden_size,
        "I": config.intermediate_size,
        "G": config.intermediate_size * (2 if config.gated else 1),
        "Q": 3 * config.hidden_size,
        "A": config.num_attention_heads,
        "D": config.head_size,
    }
    return tuple(sizes[axis] for axis in axes)


def stored_shapes(weight: Weight, config: BertConfig, kind: Kind) -> list[tuple[int, ...]]:
    """The shapes in which a kind of checkpoint may store a weight, the usual one first."""
    shape = _sizes(weight.shape, config)
    if kind == "safetensors":
        return [shape[::-1] if weight.transposed else shape]
    if kind == "tf2" and weight.garden_shape != weight.shape:
        return [_sizes(weight.garden_shape, config), shape]
    return [shape]


def to_canonical(weight: Weight, config: BertConfig, kind: Kind, value: np.ndarray) -> np.ndarray:
    """A view of a stored array, of one of the `stored_shapes`, in its canonical shape."""
    turned = value.T if kind == "safetensors" and weight.transposed else value
    return turned.reshape(_sizes(weight.shape, config))


def folded(weights_by_name: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Weights as the encoder takes them, see `Weight.folded_into`."""
    for row in _FOLDED:
        table = weights_by_name.pop(row.canonical, None)
        if table is not None:
            weights_by_name[row.folded_into] = weights_by_name[row.folded_into] + table[0]
    return weights_by_name


def folded_config(config: BertConfig) -> BertConfig:
    """The config of `folded` weights: without the tables that are not the encoder's."""
    return config.model_copy(update={TABLE_ROWS[row.shape[0]]: 0 for row in _FOLDED})


def unused_tables(config: BertConfig) -> set[str]:
    """The canonical names of tables that a file may hold although its config does not use them."""
    switched = ARCHITECTURES[config.model_type].switches.values()
    return {row.canonical for row in _FOLDED if TABLE_ROWS[row.shape[0]] in switched}


def weight_shapes(config: BertConfig, *, pooler: bool = True) -> dict[str, tuple[int, ...]]:
    """Canonical name -> shape of every weight of an encoder, as `folded` gives them."""
    config = folded_config(config)
    return {w.canonical: _sizes(w.shape, config) for w in weights(config, pooler=pooler)}


def garden_weights(
    weights_by_name: dict[str, np.ndarray], config: BertConfig
) -> dict[str, np.ndarray]:
    """Canonical weights under the names and in the shapes of the Model Garden (TF-Hub /3, /4).

    Kernels of attention become [H, A, D] and [A, D, H], their biases [A, D]; no value changes. The
    pooler's may be missing.
    """
    return {
        row.garden: weights_by_name[row.canonical].reshape(_sizes(row.garden_shape, config))
        for row in weights(config, pooler=True)
        if row.canonical in weights_by_name
    }


def garden_name(canonical: str) -> str:
    """The Model Garden's name for a canonical name."""
    block, template = _template(canonical)
    return _GARDEN_OF[template].format(i=block)


def parameter_count(config: BertConfig, *, pooler: bool = True) -> int:
    """Number of parameters; raises CheckpointError as `weights`."""
    return sum(math.prod(shape) for shape in weight_shapes(config, pooler=pooler).values())


def blocks_of(names: Iterable[str]) -> set[str]:
    """The numbers, as texts, of the blocks that some canonical names belong to."""
    return {match[1] for name in names if (match := _BLOCK_NUMBER.match(name))}


def is_ignored(name: str, kind: Kind = "tf1") -> str | None:
    """What a stored name is that no encoder has (`optimizer`, `buffer`, …); None for others."""
    patterns = IGNORED_OBJECTS if kind == "tf2" else IGNORED
    return next((what for what, pattern in patterns.items() if pattern.match(name)), None)


def split_name(name: str, kind: Kind, model_type: str | None = None) -> tuple[str, str] | None:
    """The prefix of a stored weight, and its canonical name; None for other names.

    The weight is one of an architecture, by default of any. In TF2 the name is that of a variable
    or its path in the saved objects, and all scopes fall away.
    """
    table = _canonical_of(kind, model_type)
    name = plain_tf2(name) if kind == "tf2" else in_todays_norms(name)
    parts = [name] if kind == "tf2" else name.split(_SEPARATOR[kind])
    if kind == "tf1" and parts[0] == "generator":  # of ELECTRA's pre-training, an encoder too
        return None
    for start in range(max(len(parts) - _MAX_PARTS, 0), len(parts)):
        weight = _SEPARATOR[kind].join(parts[start:])
        block, template = _template(weight)
        if template in table:
            return name.removesuffix(weight), table[template].format(i=block)
    return None


def scopes(kind: Kind, model_type: str | None = None) -> tuple[str, ...]:
    """How the names of an architecture's weights begin, such as `encoder.`; by default of all."""
    names = (name.partition(_SEPARATOR[kind]) for name in _canonical_of(kind, model_type))
    return tuple({first + separator for first, separator, _ in names})


def next_sentence_pooler(name: str) -> str | None:
    """The canonical name of a weight of a next-sentence head's pooler, None for other names."""
    match = _NEXT_SENTENCE_POOLER.match(name)
    return f"pooler/dense/{match[1]}" if match else None


# Between the parts of a stored name. A weight has up to nine parts; a longer name has a prefix.
_SEPARATOR: dict[Kind, str] = {"tf1": "/", "tf2": "/", "safetensors": "."}
_MAX_PARTS = 12


def in_todays_norms(name: str) -> str:
    """A name of a Hugging Face file; early conversions call parameters of norms as TF1 does."""
    name = name.replace("LayerNorm.gamma", "LayerNorm.weight")
    return name.replace("LayerNorm.beta", "LayerNorm.bias")


def plain_tf2(name: str) -> str:
    """Today's name in the Model Garden for a variable's name or its path in the saved objects.

    Scopes around the encoder (`bert_model/`, `bert_encoder/`) fall away where what is left is the
    name of one of its weights; any other name stays.
    """
    name = in_todays_spelling(name)
    parts = name.split("/")
    scoped = ("/".join(parts[i:]) for i in range(len(parts)))
    for candidate in (*scoped, name_at_path(name)):
        if _template(candidate)[1] in _canonical_of("tf2"):
            return candidate
    return name


def _template(name: str) -> tuple[str, str]:
    """The number of the block in a name, and the name with `{i}` in its place."""
    match = _numbered().search(name)
    if match is None:
        return "", name
    return match[1], f"{name[: match.start(1)]}{{i}}{name[match.end(1) :]}"


@functools.cache
def _numbered() -> re.Pattern[str]:
    """A block's number: behind one of the words, such as `layer.`, that it is behind in a row."""
    names = (name for row in _ROWS for name in (row.tf1, row.garden, row.huggingface))
    before = {
        re.split(r"[/.](?=.)", name.partition("{i}")[0])[-1] for name in names if "{i}" in name
    }
    return re.compile(rf"(?:{'|'.join(map(re.escape, sorted(before)))})(0|[1-9]\d*)(?=[/.])")


def _renamed(rows: Sequence[Weight], model_type: str) -> list[Weight]:
    """The rows of an architecture; a name that it does not change stays."""
    names = RENAMED.get(model_type, {})

    def rename(name: str) -> str:
        old = next((scope for scope in names if name.startswith(scope)), "")
        return names.get(old, "") + name.removeprefix(old)

    return [replace(w, huggingface=rename(w.huggingface), tf1=rename(w.canonical)) for w in rows]


_PARTS = {
    **{"embeddings": EMBEDDINGS, "projection": PROJECTION, "block": BLOCK, "joined": JOINED},
    **{"halves": HALVES, "final": FINAL, "pooler": POOLER},
}
_TABLES = {
    model_type: {part: _renamed(rows, model_type) for part, rows in _PARTS.items()}
    for model_type in ARCHITECTURES
}
_ROWS = [row for table in _TABLES.values() for rows in table.values() for row in rows]
_GARDEN_OF = {row.canonical: row.garden for row in _ROWS}


@functools.cache
def _canonical_of(kind: Kind, model_type: str | None = None) -> Mapping[str, str]:
    """Stored name -> canonical name, with `{i}`, of one architecture or of all of them."""
    column = {"tf1": "tf1", "tf2": "garden", "safetensors": "huggingface"}[kind]
    tables = _TABLES.values() if model_type is None else [_TABLES[model_type]]
    rows = (row for table in tables for part in table.values() for row in part)
    return {getattr(row, column): row.canonical for row in rows}
