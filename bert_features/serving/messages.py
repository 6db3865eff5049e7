"""The bodies of requests and answers; FastAPI makes the OpenAPI page from them."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from bert_features.config.levels import LEVELS
from bert_features.config.serve_settings import Limits

# The type of a feature's `level`: a Literal of the names.
if TYPE_CHECKING:
    AnyLevel = str
else:
    AnyLevel = Literal[tuple(LEVELS)]

# A list ends at its first wrong value: a body may have millions, each an error of a kilobyte.
_Text = Annotated[str, Field(description="A text.")]
_Texts = Annotated[list[_Text], Field(fail_fast=True)]
_Pair = Annotated[list[str], Field(fail_fast=True, min_length=2, max_length=2)]
_Pairs = Annotated[list[_Pair], Field(fail_fast=True)]
_Words = Annotated[list[str], Field(fail_fast=True)]
_Spans = Annotated[list[list[list[int | str]]], Field(fail_fast=True)]
_WordLists = Annotated[list[_Words], Field(fail_fast=True)]


# What a field of a request may be, in words for who sent something else.
ALLOWED = {
    "texts": "a list of one or more strings, '' for a missing one",
    "pairs": "a list of one or more lists of two strings",
    "words": "a list of one or more lists of strings",
    "spans": "a list with a list of spans for each text",
    "outputs": "a list of one or more names, see GET /v1/info",
    "prompt_name": "a name, see GET /v1/info",
    "tokens": "true or false",
    "input": "a string, or a list of one or more strings, '' for a missing one",
    "model": "a name, see GET /v1/models",
    "encoding_format": "float or base64",
    "dimensions": "a whole number of 1 or more",
    "user": "a string",
}
# The type of an error whose message is ours.
IN_OUR_WORDS = "in_our_words"
_MAX_SHOWN = 100


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _name_an_unknown_field(cls, body: Any) -> Any:
        """Refuses the first unknown name alone: a body may have millions. Null is the default."""
        allowed = ", ".join(cls.model_fields)
        if not isinstance(body, dict):
            raise _refusal(f"the body is not a JSON object; allowed: an object with {allowed}")
        unknown = next((name for name in body if name not in cls.model_fields), None)
        if unknown is not None:
            shown = unknown if len(unknown) <= _MAX_SHOWN else f"{unknown[:_MAX_SHOWN]}…"
            shown = shown.encode("utf-8", "replace").decode()  # JSON allows what is no Unicode
            raise _refusal(f"{shown} is unknown; allowed: {allowed}", param=shown)
        return {name: value for name, value in body.items() if value is not None}


def _refusal(message: str, param: str = "") -> PydanticCustomError:
    return PydanticCustomError(IN_OUR_WORDS, "{message}", {"message": message, "param": param})


class FeaturesRequest(_Request):
    """Texts, and the outputs that are wanted of each; exactly one of texts, pairs and words."""

    texts: _Texts | None = Field(default=None, min_length=1, description="Single texts.")
    pairs: _Pairs | None = Field(default=None, min_length=1, description="Pairs of texts.")
    words: _WordLists | None = Field(
        default=None, min_length=1, description="Texts that are split into words already."
    )
    spans: _Spans | None = Field(
        default=None,
        description="For outputs of level span, the spans of each text: [begin, end], [begin, end, "
        "label] or [begin, end, label, type_id], in characters; type_id is 1 for a second text.",
    )
    outputs: _Words | None = Field(
        default=None,
        min_length=1,
        description="Names of outputs, as GET /v1/info lists them; by default the first.",
    )
    prompt_name: str | None = Field(
        default=None, description="Name of a prompt, as GET /v1/info lists them."
    )
    tokens: bool = Field(
        default=True, description="Whether to give tokens, their ids and their offsets."
    )

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"texts": ["The cat sat on the mat."]}],
            "oneOf": [
                {"required": [name], "properties": {name: {"type": "array"}}}
                for name in ("texts", "pairs", "words")
            ],
        }
    )


class EmbeddingsRequest(_Request):
    """A request in the shape of OpenAI's embeddings."""

    input: str | Annotated[_Texts, Field(min_length=1)] = Field(
        description="A text, or a list of texts."
    )
    model: str = Field(description="The model's name, or MODEL/OUTPUT; GET /v1/models lists them.")
    encoding_format: Literal["float", "base64"] = Field(
        default="float", description="base64: the bytes of little-endian float32."
    )
    dimensions: int | None = Field(
        default=None, ge=1, description="Number of values to keep of each vector, from the first."
    )
    user: str | None = Field(default=None, description="Ignored.")

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"input": "The cat sat on the mat.", "model": "minilm"}]}
    )

    @field_validator("input", mode="before")
    @classmethod
    def _refuse_token_ids(cls, value: Any) -> Any:
        first = value[0] if isinstance(value, list) and value else None
        if type(first) is int or isinstance(first, list):
            raise _refusal(
                "input has token ids, made by another tokenizer; allowed: "
                f"{ALLOWED['input']}. With LangChain, pass check_embedding_ctx_length=False",
                param="input",
            )
        return value


class Feature(BaseModel):
    """One named feature; see docs/formats.md."""

    model_config = ConfigDict(from_attributes=True)

    name: str
    level: AnyLevel
    width: int
    dtype: str
    layers: list[int | str]
    pooling: str
    kind: str = "layers"
    heads: list[int | str] = []


class TextResult(BaseModel):
    """The features of one text."""

    tokens: list[str] | None = Field(default=None, description="Pieces, [CLS] and [SEP] included.")
    token_ids: list[int] | None = None
    type_ids: list[int] | None = Field(default=None, description="1 for tokens of a second text.")
    offsets: list[list[int] | None] | None = Field(
        default=None,
        description="Start and end of each token in its text, in characters; null for [CLS] and "
        "[SEP]. Words count as joined by single blanks.",
    )
    words: list[str] | None = Field(default=None, description="With an output of words.")
    spans: list[dict[str, Any]] | None = Field(
        default=None, description="With an output of spans: each with begin, end, label and text."
    )
    vectors: list[dict[str, Any]] | None = Field(
        default=None, description="With kind multi_vector: the token of each vector, and its id."
    )
    tokens_lost: int = Field(description="Tokens that truncation cut off.")
    unknown_tokens: int = Field(description="Tokens that are [UNK].")
    features: dict[str, list[Any] | dict[str, float | None]] = Field(
        description="By name: the numbers of a sequence, or lists of numbers for tokens and words; "
        "of attention a matrix for each head; of kind sparse the weight of each term."
    )


class Usage(BaseModel):
    """What was computed."""

    tokens: int
    tokens_lost: int = Field(description="Tokens that truncation cut off, of all texts.")


class FeaturesAnswer(BaseModel):
    """The features of texts, in their order."""

    model: str
    features: list[Feature]
    results: list[TextResult]
    usage: Usage


class Embedding(BaseModel):
    """One vector."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class EmbeddingsUsage(BaseModel):
    """What was computed, by OpenAI's names."""

    prompt_tokens: int
    total_tokens: int
    tokens_lost: int = Field(description="Tokens that truncation cut off; not OpenAI's.")


class EmbeddingsAnswer(BaseModel):
    """Vectors in the order of the texts, in the shape of OpenAI's."""

    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: EmbeddingsUsage


class Output(BaseModel):
    """An output that can be asked for, and the features that it gives."""

    name: str
    features: list[Feature]
    max_seq_length: int


class Info(BaseModel):
    """The model, its outputs and the limits of the service."""

    model: str
    description: str
    layers: int
    hidden_size: int
    max_seq_length: int = Field(gt=0)
    long_text: str
    outputs: list[Output] = Field(min_length=1)
    prompts: list[str]
    limits: Limits
    replicas: int
    device: str
    version: str
    recipe: dict[str, Any] = Field(description="How the vectors are made, and their canaries.")


class Problem(BaseModel):
    """What went wrong."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorAnswer(BaseModel):
    """The body of an answer that is an error."""

    error: Problem


class State(BaseModel):
    """Whether the service is there."""

    status: Literal["ok", "ready"]
