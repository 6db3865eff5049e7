"""ExtractConfig: every setting of a run, typed, checked once, frozen; from TOML or keywords."""

import difflib
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bert_features.errors import ConfigError

_Positive = Annotated[int, Field(ge=1)]
_Layer = Annotated[int, Field(strict=True)] | Literal["embeddings"]


class ExtractConfig(BaseModel):
    """The settings of a feature extraction.

    Each field's description says what it is, its `allowed` what it may be.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    checkpoint: str = Field(
        default="minilm",
        description="the weights: `minilm` (the embedded all-MiniLM-L6-v2), a directory, a TF1 "
        "checkpoint prefix or a .safetensors file",
        json_schema_extra={"allowed": "a string"},
    )
    config_file: str | None = Field(
        default=None,
        description="bert_config.json or config.json, if not beside the weights",
        json_schema_extra={"allowed": "a path"},
    )
    vocab_file: str | None = Field(
        default=None,
        description="vocab.txt, if not beside the weights",
        json_schema_extra={"allowed": "a path"},
    )
    do_lower_case: bool | None = Field(
        default=None,
        description="lower-case and strip accents; by default what the checkpoint says",
        json_schema_extra={"allowed": "true or false"},
    )
    hidden_act: Literal["gelu_erf", "gelu_tanh"] | None = Field(
        default=None,
        description="the form of GELU; by default that of the checkpoint's family",
        json_schema_extra={"allowed": "'gelu_erf' or 'gelu_tanh'"},
    )
    layers: tuple[_Layer, ...] = Field(
        default=(-1, -2, -3, -4),
        min_length=1,
        description="LAYERS: encoder blocks, -L to L-1, and the word `embeddings`",
        json_schema_extra={"allowed": "a list of integers and the word 'embeddings'"},
    )
    combine: Literal["none", "sum", "mean", "concat"] = Field(
        default="none",
        description="how the layers become one vector",
        json_schema_extra={"allowed": "'none', 'sum', 'mean' or 'concat'"},
    )
    max_seq_length: int = Field(
        default=128,
        ge=3,
        description="tokens of the longest row, [CLS] and [SEP] included; longer texts are cut",
        json_schema_extra={"allowed": "an integer of at least 3"},
    )
    buckets: tuple[Annotated[int, Field(ge=3)], ...] = Field(
        default=(16, 32, 64, 128, 256, 512),
        description="lengths that rows are padded to, up to max_seq_length",
        json_schema_extra={"allowed": "a list of ascending integers of at least 3"},
    )
    batch_size: _Positive = Field(
        default=32,
        description="rows of a batch, over all devices together",
        json_schema_extra={"allowed": "an integer of at least 1"},
    )
    device: Literal["auto", "tpu", "gpu", "cpu"] = Field(
        default="auto",
        description="where to run; auto takes TPU, GPU or CPU, in that order",
        json_schema_extra={"allowed": "'auto', 'tpu', 'gpu' or 'cpu'"},
    )
    precision: Literal["auto", "float32", "bfloat16"] = Field(
        default="auto",
        description="of the arithmetic; auto is bfloat16 on a TPU, else float32",
        json_schema_extra={"allowed": "'auto', 'float32' or 'bfloat16'"},
    )
    dtype: Literal["float32", "float16"] = Field(
        default="float32",
        description="of the features",
        json_schema_extra={"allowed": "'float32' or 'float16'"},
    )
    use_one_hot_embeddings: bool = Field(
        default=False,
        description="look words up by a matrix product instead of a gather",
        json_schema_extra={"allowed": "true or false"},
    )
    format: Literal["parquet", "jsonl", "npz", "hdf5", "tfrecord"] = Field(
        default="parquet",
        description="of the output file",
        json_schema_extra={"allowed": "'parquet', 'jsonl', 'npz', 'hdf5' or 'tfrecord'"},
    )
    encoding_errors: Literal["strict", "replace"] = Field(
        default="strict",
        description="what to do with input that is not UTF-8",
        json_schema_extra={"allowed": "'strict' or 'replace'"},
    )
    buffer_mb: _Positive = Field(
        default=256,
        description="megabytes of finished features that may wait for their turn to be written",
        json_schema_extra={"allowed": "an integer of at least 1"},
    )

    @classmethod
    def load(cls, path: str | Path, **overrides: Any) -> Self:
        """Reads a TOML file.

        Args:
          path: the file, flat `key = value` settings.
          **overrides: settings that take precedence over the file's.

        Raises:
          ConfigError: the file cannot be read, is not TOML, or holds a key or a value that is not
            allowed.
        """
        try:
            values = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigError(f"cannot read the config {path}: {error.strerror}") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path} is not TOML: {error}") from error
        cls.of(values, source=str(path))  # blames the file for what is the file's
        return cls.of({**values, **overrides})

    @classmethod
    def of(cls, values: dict[str, Any], *, source: str = "") -> Self:
        """Checks settings and freezes them.

        Args:
          values: setting -> value; lists stand for tuples, as TOML has no tuples.
          source: what they came from, for error messages.

        Raises:
          ConfigError: naming every key that is unknown or has a value that is not allowed.
        """
        values = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            problems = dict.fromkeys(cls._problem(str(e["loc"][0]), values) for e in error.errors())
            where = f"{source}: " if source else ""
            raise ConfigError(where + "; ".join(problems)) from error

    @classmethod
    def _problem(cls, key: str, values: dict[str, Any]) -> str:
        if key not in cls.model_fields:
            close = difflib.get_close_matches(key, cls.model_fields, n=1)
            hint = f"did you mean '{close[0]}'? " if close else ""
            return f"unknown setting '{key}'; {hint}allowed: {', '.join(cls.model_fields)}"
        received = values[key]
        received = list(received) if isinstance(received, tuple) else received
        extra = cls.model_fields[key].json_schema_extra
        allowed = extra["allowed"] if isinstance(extra, dict) else ""
        return f"{key} is {received!r}; allowed: {allowed}"
