"""What a client needs of the facts that a service reports about itself."""

from typing import Annotated

from pydantic import BaseModel, Field

from bert_features.serving.messages import Output

_Positive = Annotated[int, Field(gt=0)]


class Bounds(BaseModel):
    """The limits of a request; see `config.serve_settings.Limits`."""

    body_bytes: _Positive
    texts: _Positive
    tokens: _Positive
    answer_bytes: _Positive


class Facts(BaseModel):
    """The part of /v1/info that a client relies on; a service may report more."""

    model: str
    max_seq_length: _Positive
    long_text: str
    outputs: Annotated[list[Output], Field(min_length=1)]
    limits: Bounds
