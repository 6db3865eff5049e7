"""The bodies of requests and answers; FastAPI makes the OpenAPI page from them."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from bert_features.config.serve_settings import Limits

# A list ends at its first wrong value: a body may have millions, each an error of a kilobyte.
_Text = Annotated[str, Field(description="A text.")]
_Texts = Annotated[list[_Text], Field(fail_fast=True)]
_Pair = Annotated[list[str], Field(fail_fast=True, min_length=2, max_length=2)]
_Pairs = Annotated[list[_Pair], Field(fail_fast=True)]
_Words = Annotated[list[str], Field(fail_fast=True)]
_WordLists = Annotated[list[_Words], Field(fail_fast=True)]


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _keep_one_unknown_name(cls, body: Any) -> Any:
        """Drops all unknown names but the first, which is the one that is refused."""
        if not isinstance(body, dict):
            return body
        more = set([name for name in body if name not in cls.model_fields][1:])
        return {name: value for name, value in body.items() if name not in more}


class FeaturesRequest(_Request):
    """Texts, and the outputs that are wanted of each; exactly one of texts, pairs and words."""

    texts: _Texts | None = Field(default=None, min_length=1, description="Single texts.")
    pairs: _Pairs | None = Field(default=None, min_length=1, description="Pairs of texts.")
    words: _WordLists | None = Field(
        default=None, min_length=1, description="Texts that are split into words already."
    )
    outputs: _Words | None = Field(
        default=None,
        min_length=1,
        description="Names of outputs, as GET /v1/info lists them; by default the first.",
    )
    tokens: bool = Field(
        default=True, description="Whether to give tokens, their ids and their offsets."
    )

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"texts": ["The cat sat on the mat."]}]}
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
        json_schema_extra={
            "examples": [{"input": "The cat sat on the mat.", "model": "minilm"}],
        }
    )


class Feature(BaseModel):
    """One named feature; see docs/formats.md."""

    model_config = ConfigDict(from_attributes=True)

    name: str
    level: Literal["token", "word", "sequence"]
    width: int
    dtype: str
    layers: list[int | str]
    pooling: str


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
    tokens_lost: int = Field(description="Tokens that truncation cut off.")
    unknown_tokens: int = Field(description="Tokens that are [UNK].")
    features: dict[str, list[Any]] = Field(
        description="By name: the numbers of a sequence, or lists of numbers for tokens and words."
    )


class Usage(BaseModel):
    """What was computed."""

    tokens: int


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
    max_seq_length: int | None = None  # older services do not send it


class Info(BaseModel):
    """The model, its outputs and the limits of the service."""

    model: str
    description: str
    layers: int
    hidden_size: int
    max_seq_length: int = Field(gt=0)
    long_text: str
    outputs: list[Output] = Field(min_length=1)
    limits: Limits
    replicas: int
    device: str
    version: str


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

    status: str
