"""The architecture of a BERT checkpoint, from its `bert_config.json` or `config.json`."""

import functools
import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypedDict, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    field_validator,
    model_serializer,
    model_validator,
)
from pydantic_core import ErrorDetails

from bert_features.config.architectures import (
    ARCHITECTURES,
    NEUTRAL,
    OF_RELATIVES,
    ModelType,
    architecture_of,
    in_own_keys,
)
from bert_features.config.json_files import read_json_object
from bert_features.config.settings import problem_of, shown
from bert_features.errors import CheckpointError, ConfigError

logger = logging.getLogger("bert_features")

GeluForm = Literal["gelu_erf", "gelu_tanh"]
HiddenAct = Literal["gelu_erf", "gelu_tanh", "relu", "silu", "tanh", "linear"]
Family = Literal["google", "huggingface"]


class CheckpointOptions(TypedDict, total=False):
    """What a user may say of a checkpoint, see `find_checkpoint`."""

    config_file: str | Path | None
    vocab_file: str | Path | None
    hidden_act: GeluForm | None


# Ids and positions are int32.
Size = Annotated[int, Field(gt=0, lt=2**31)]

# The smallest float32 that no device rounds to 0, and with it a constant vector to NaN.
_MIN_EPS = 2.0**-126

# The meaning of the word in the config of each family. google-research/bert's modeling.py computes
# "gelu" by the tanh approximation; Hugging Face's ACT2FN["gelu"] is the exact, erf form.
_SAME: dict[str, HiddenAct] = {form: form for form in get_args(HiddenAct)}
ACTIVATIONS: dict[Family, dict[str, HiddenAct]] = {
    "google": {"gelu": "gelu_tanh", **_SAME},
    "huggingface": {
        "gelu": "gelu_erf",
        "gelu_python": "gelu_erf",
        "gelu_new": "gelu_tanh",
        "gelu_pytorch_tanh": "gelu_tanh",
        "gelu_fast": "gelu_tanh",
        "swish": "silu",
        **_SAME,
    },
}


class BertConfig(BaseModel):
    """The shape of a BERT encoder; the keys are those of google-research/bert's `bert_config.json`.

    The keys after them tell BERT's relatives apart; their defaults are BERT's, which are not
    written. `architectures` has the keys of the relatives' own files. Unknown keys are ignored;
    real config files have many (`pooler_type`, `_name_or_path`, …).
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    vocab_size: Size
    hidden_size: Size = 768
    num_hidden_layers: Size = 12
    num_attention_heads: Size = 12
    intermediate_size: Size = 3072
    hidden_act: HiddenAct = "gelu_tanh"
    hidden_dropout_prob: float = Field(default=0.1, ge=0.0, lt=1.0)
    attention_probs_dropout_prob: float = Field(default=0.1, ge=0.0, lt=1.0)
    max_position_embeddings: Size = 512
    type_vocab_size: int = Field(default=2, ge=0, lt=2**31)  # 0: a token has no type
    initializer_range: float = Field(default=0.02, gt=0.0, allow_inf_nan=False)
    # google-research/bert fixes 1e-12 in its code; Hugging Face configs state it.
    layer_norm_eps: float = Field(default=1e-12, ge=_MIN_EPS, le=1.0)
    model_type: ModelType = "bert"
    # The width of the embeddings, which a dense layer widens to hidden_size; None: hidden_size.
    embedding_size: Size | None = None
    # Neighbouring layers of a group share one block; None: each layer has its own.
    num_hidden_groups: Size | None = None
    # Whether a dense layer follows the embeddings even if it does not widen them.
    always_projects: bool = False
    has_pooler: bool = True
    pad_token_id: int | None = Field(default=0, ge=0, lt=2**31)
    # The position of the first token; those before it belong to no token.
    position_offset: int = Field(default=0, ge=0, lt=2**31)
    # Rows of a table of tasks, of which every token gets the first with its type.
    task_type_vocab_size: int = Field(default=0, ge=0, lt=2**31)
    # Rows of a table of biases of attention by distance; every code uses 32. None: no biases.
    relative_attention_num_buckets: int | None = Field(default=None, ge=32, lt=2**31)
    # The bases of rotary positions, of layers that attend to the whole row and of the others, which
    # see local_attention / 2 tokens to either side; None: positions are embedded.
    global_rope_theta: float | None = Field(default=None, gt=0.0, allow_inf_nan=False)
    local_rope_theta: float | None = Field(default=None, gt=0.0, allow_inf_nan=False)
    local_attention: Size | None = None
    global_attn_every_n_layers: Size = 1
    # The kind of each layer; None: every nth attends to the whole row.
    layer_types: tuple[Literal["full_attention", "sliding_attention"], ...] | None = None
    rope_divisor: float = Field(default=1.0, ge=1.0, allow_inf_nan=False)  # of all angles
    # Dense layers and norms that add a bias: all, all but the gated layer, the norms, none. The
    # dense layers of pooler and masked-LM have one unless it is none.
    biases: Literal["all", "ungated", "norms", "none"] = "all"
    # Layer norms come before attention and feed-forward, not behind them.
    norm_first: bool = False
    first_block_norm: bool = True  # the first block has one before or behind attention too
    final_norm: bool = False  # one more follows the last block
    gated: bool = False  # half of the feed-forward part is multiplied by the other half
    # The masked-LM head: whether its dense layer has a bias in spite of has_biases, the word for
    # its activation (None: the encoder's), whether logits have a bias.
    classifier_bias: bool = False
    classifier_activation: str | None = None
    decoder_bias: bool = True

    @field_validator("hidden_dropout_prob", "attention_probs_dropout_prob", mode="before")
    @classmethod
    def _null_dropout_is_none(cls, value: Any) -> Any:
        return 0.0 if value is None else value

    @model_validator(mode="after")
    def _heads_divide_the_width(self) -> Self:
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"hidden_size {self.hidden_size} is not a multiple of "
                f"num_attention_heads {self.num_attention_heads}"
            )
        return self

    @model_validator(mode="after")
    def _counts_fit(self) -> Self:
        if self.positions < 1:
            raise ValueError(
                f"max_position_embeddings {self.max_position_embeddings} leaves no position after "
                f"the {self.position_offset} that belong to no token"
            )
        kinds, layers = self.layer_types, self.num_hidden_layers
        if kinds is not None and len(kinds) != layers:
            raise ValueError(f"layer_types has {len(kinds)} layers, num_hidden_layers is {layers}")
        if self.position_offset and self.pad_token_id is None:
            raise ValueError(f"pad_token_id is null; {self.model_type} counts positions from it")
        if self.global_rope_theta is not None and self.head_size % 2:
            raise ValueError(f"rotary positions need an even head size, not {self.head_size}")
        if self.distinct_blocks > self.num_hidden_layers:
            raise ValueError(
                f"num_hidden_groups {self.num_hidden_groups} is more than num_hidden_layers "
                f"{self.num_hidden_layers}"
            )
        return self

    @model_serializer(mode="wrap")
    def _without_keys_of_others(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields = type(self).model_fields
        its_keys = ARCHITECTURES[self.model_type].values.keys()
        return {
            key: value
            for key, value in handler(self).items()
            if key not in (OF_RELATIVES | {"model_type"}) - its_keys or value != fields[key].default
        }

    @property
    def head_size(self) -> int:
        """Width of one attention head."""
        return self.hidden_size // self.num_attention_heads

    @property
    def embedding_width(self) -> int:
        """Width of the embeddings."""
        return self.embedding_size or self.hidden_size

    @property
    def projects_embeddings(self) -> bool:
        """Whether a dense layer follows the embeddings."""
        return self.always_projects or self.embedding_width != self.hidden_size

    @property
    def head_act(self) -> HiddenAct:
        """The activation of the masked-LM head; raises CheckpointError if it is unknown."""
        word, source = self.classifier_activation or self.hidden_act, "the masked-LM head"
        return _activation(word, "huggingface", source, "classifier_activation")

    @property
    def positions(self) -> int:
        """Number of tokens that a row may have."""
        return self.max_position_embeddings - self.position_offset

    @property
    def joins_matrices(self) -> bool:
        """Whether query, key and value are stored as one matrix, and so both halves of a gate."""
        return self.model_type == "modernbert"

    @property
    def has_biases(self) -> bool:
        """Whether norms and the masked-LM head add biases."""
        return self.biases != "none"

    @property
    def has_dense_biases(self) -> bool:
        """Whether the dense layers of a block add biases, perhaps without the gated one."""
        return self.biases in ("all", "ungated")

    @property
    def distinct_blocks(self) -> int:
        """Number of blocks with weights of their own."""
        return self.num_hidden_groups or self.num_hidden_layers

    def block_of(self, layer: int) -> int:
        """The block that computes a layer; both count from 0."""
        return layer * self.distinct_blocks // self.num_hidden_layers

    def attention_of(self, block: int) -> tuple[float | None, int | None]:
        """Base of the rotary positions of a block, and how many tokens it sees to either side."""
        if self.layer_types is not None:
            full = self.layer_types[block] == "full_attention"
        else:
            full = block % self.global_attn_every_n_layers == 0
        if full or self.local_attention is None:
            return self.global_rope_theta, None
        return self.local_rope_theta, self.local_attention // 2

    def check_types(self, highest: int) -> None:
        """Raises ConfigError if token types that a user gave are none of this architecture's.

        Without any, they are not used.
        """
        if 0 < self.type_vocab_size <= highest:
            raise ConfigError(
                f"input_type_ids has {highest}; allowed: 0 to {self.type_vocab_size - 1}, as this "
                f"{self.model_type} has {self.type_vocab_size}"
            )

    @classmethod
    def from_dict(cls, values: dict[str, Any], *, family: Family, source: str = "config") -> Self:
        """Builds a config from the contents of a JSON config file.

        The family says which form `gelu` has, see `ACTIVATIONS`. Raises CheckpointError, which
        names `source`, if a value is missing or wrong, the activation is not one of BERT's, or the
        config is of another architecture.
        """
        own, (_, architecture) = in_own_keys(values, source), architecture_of(values, source)
        _log_unknown(source, *unknown_keys(values))
        if family == "google" and own.get("embedding_size") == own.get("hidden_size"):
            own["always_projects"] = False  # its ALBERT widens nothing then
        names, word = architecture.names_in(values), own.get("hidden_act", "gelu")
        own["hidden_act"] = _activation(word, family, source, names.get("hidden_act", "hidden_act"))
        try:
            return cls.model_validate(own)
        except ValidationError as error:
            problems = "; ".join(map(_problem, error.errors()))
            problems = re.sub(r"\w+", lambda match: names.get(match[0], match[0]), problems)
            raise CheckpointError(f"{source} is not a BERT config: {problems}") from error

    @classmethod
    def from_json_file(cls, path: str | Path, *, family: Family | None = None) -> Self:
        """Reads `bert_config.json` (Google's) or `config.json` (Hugging Face's).

        The family is by default that of `config_family`. Raises CheckpointError if the file is
        missing, is not JSON, or is not a BERT config.
        """
        values = read_json_object(path)
        return cls.from_dict(values, family=family or config_family(values), source=str(path))


def _activation(word: Any, family: Family, source: str, key: str = "hidden_act") -> HiddenAct:
    activations = ACTIVATIONS[family]
    if not isinstance(word, str) or word not in activations:
        allowed = ", ".join(sorted(activations))
        raise CheckpointError(f"{source}: {key} is {shown(word)}; allowed: {allowed}")
    return activations[word]


def _problem(detail: ErrorDetails) -> str:
    if detail["type"] == "missing":
        return f"{detail['loc'][0]} is missing"
    where = ".".join(str(part) for part in detail["loc"])
    if not where:  # of several values
        return problem_of(detail)
    return f"{where}: {problem_of(detail)} (received {shown(detail.get('input'))})"


# The keys that only Hugging Face writes.
_MARKS = ("model_type", "architectures", "transformers_version")


def config_family(values: Mapping[str, Any], kind: str | None = None) -> Family:
    """The family of a config file: by its keys, else by the kind of the weights beside it."""
    if any(mark in values for mark in _MARKS):
        return "huggingface"
    return "google" if kind in (None, "tf1", "tf2") else "huggingface"


def family_evidence(values: Mapping[str, Any], kind: str) -> str:
    """What shows the family that `config_family` gives."""
    mark = next((mark for mark in _MARKS if mark in values), None)
    return f"the weights are {kind}" if mark is None else f"the config has {mark}"


def unknown_keys(values: Mapping[str, Any]) -> list[str]:
    """The keys of a config file that are not used and in no table of `architectures`."""
    _, family = architecture_of(values, "config")
    used = (BertConfig.model_fields.keys() - family.foreign()) | {*family.keys, *family.older}
    neutral = NEUTRAL | set(family.neutral.split()) | family.switches.keys()
    return sorted(values.keys() - used - family.fixed_keys().keys() - neutral)


@functools.cache  # once for each file
def _log_unknown(source: str, *keys: str) -> None:
    if keys:
        logger.info("%s: unknown keys, not used: %s", source, shown(list(keys)))
