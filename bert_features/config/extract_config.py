"""ExtractConfig: all settings of a run, checked once, frozen; from TOML or keywords."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import Field, PrivateAttr, field_validator, model_validator

from bert_features.config.bert_config import BertConfig
from bert_features.config.config_files import find_config, read_config
from bert_features.config.input_format import (
    LARGEST_LINE_BYTES,
    MAX_LINE_BYTES,
    FormatName,
    InputFormat,
)
from bert_features.config.output_specs import (
    OutputSpec,
    output_names,
    plan_outputs,
)
from bert_features.config.outputs import (
    AUTO_POOLING,
    DEFAULT_LAYERS,
    AutoPooling,
    Combine,
    Float32,
    LayerEntry,
    Level,
    OutputConfig,
    OutputDtype,
    check_names_differ,
    parse_output,
    split_layers,
)
from bert_features.config.settings import MAX_INT, Settings, read_toml, shown
from bert_features.config.shards import AUTO, Shard
from bert_features.errors import ConfigError

# The formats of features files; `formats.FORMATS` has the module of each.
FileFormat = Literal["parquet", "arrow", "jsonl", "npz", "hdf5", "tfrecord"]
# Of MiniLM on two CPU cores, minutes; of BERT-base on a TPU chip, seconds (docs/performance.md).
SHARD_EXAMPLES = 50_000

# They say how features are computed, and change no byte of a file.
NOT_RECORDED = frozenset({"dedupe", "cache", "cache_gb"})

_Positive = Annotated[int, Field(ge=1, le=MAX_INT)]
# The settings of the single output of a run without `outputs`.
_SINGLE_OUTPUT = (
    "combine",
    "weights",
    "level",
    "pooling",
    "special_tokens",
    "normalize",
    "dim",
)


def _as_in_outputs(name: str) -> Any:
    """The same field as in `OutputConfig`, for the single output."""
    return OutputConfig.model_fields[name]


@dataclass(frozen=True)
class _Source:
    """The file that settings were read from; settings are equal wherever they come from."""

    path: Path | None = field(default=None, compare=False)


class ExtractConfig(Settings):
    """The settings of a feature extraction, as keywords: `ExtractConfig(layers=-1)`.

    `layers` may be a layer, several, or text such as "-1,-2"; outputs may be dicts. A field's
    description is its help; its `allowed` names the allowed values, and a `common` one is among the
    options that a short help shows.

    Raises:
      ConfigError: one error with every unknown key and every value that is not allowed.
    """

    _source: _Source = PrivateAttr(default=_Source())

    checkpoint: str = Field(
        default="minilm",
        description="Checkpoint to use: `minilm` (the embedded all-MiniLM-L6-v2, not Google's "
        "BERT), a directory or file, an address (gs://, s3://), a published name "
        "(bert-base-uncased), a TF-Hub handle or a Hugging Face repository.",
        json_schema_extra={"allowed": "a string", "common": True},
    )
    config_file: str | None = Field(
        default=None,
        description="Path or address of bert_config.json or config.json, if it is not beside the "
        "weights.",
        json_schema_extra={"allowed": "a path"},
    )
    vocab_file: str | None = Field(
        default=None,
        description="Path or address of vocab.txt, if it is not beside the weights.",
        json_schema_extra={"allowed": "a path"},
    )
    do_lower_case: bool | None = Field(
        default=None,
        description="Lower-case texts and strip their accents, or not; by default as the "
        "checkpoint was trained.",
        json_schema_extra={"allowed": "true or false", "common": True},
    )
    hidden_act: Literal["gelu_erf", "gelu_tanh"] | None = Field(
        default=None,
        description="Form of GELU; by default the form of the checkpoint's family.",
        json_schema_extra={"allowed": "'gelu_erf' or 'gelu_tanh'"},
    )
    layers: tuple[LayerEntry, ...] = Field(
        default=DEFAULT_LAYERS,
        min_length=1,
        description="LAYERS to extract: encoder blocks, -L to L-1, and the word `embeddings`.",
        json_schema_extra={
            "allowed": "a list of integers and the word 'embeddings'",
            "common": True,
        },
    )
    combine: Combine = _as_in_outputs("combine")
    weights: tuple[Float32, ...] | None = _as_in_outputs("weights")
    level: Level = _as_in_outputs("level")
    pooling: str | None = _as_in_outputs("pooling")
    special_tokens: bool = _as_in_outputs("special_tokens")
    normalize: bool = _as_in_outputs("normalize")
    dim: _Positive | None = _as_in_outputs("dim")
    dtype: OutputDtype = Field(
        default="float32",
        description="Data type of the features.",
        json_schema_extra={"allowed": "'float32', 'float16' or 'bfloat16'", "common": True},
    )
    outputs: tuple[OutputConfig, ...] = Field(
        default=(),
        description="Named outputs, all from one pass, instead of the single output above.",
        json_schema_extra={"allowed": "a list of tables, [[outputs]]"},
    )
    long_text: Literal["truncate", "tail", "head_tail", "window", "error"] = Field(
        default="truncate",
        description="What to do with texts longer than max_seq_length.",
        json_schema_extra={
            "allowed": "'truncate', 'tail', 'head_tail', 'window' or 'error'",
            "common": True,
        },
    )
    stride: _Positive | None = Field(
        default=None,
        description="Pieces between the beginnings of two windows; by default half of what a "
        "window holds.",
        json_schema_extra={"allowed": "an integer of at least 1, less than a window holds"},
    )
    word_split: Literal["bert", "whitespace"] = Field(
        default="bert",
        description="How texts are split into words, for outputs of words: like BERT (punctuation "
        "stands alone), or at white space.",
        json_schema_extra={"allowed": "'bert' or 'whitespace'"},
    )
    max_seq_length: Annotated[int, Field(ge=3, le=MAX_INT)] | None = Field(
        default=None,
        description="Maximum tokens of a row, [CLS] and [SEP] included; long_text decides about "
        "longer texts. By default as many as the checkpoint has positions.",
        json_schema_extra={"allowed": "an integer of at least 3", "common": True},
    )
    buckets: tuple[Annotated[int, Field(ge=3, le=MAX_INT)], ...] | None = Field(
        default=None,
        description="Lengths that rows are padded to, up to max_seq_length; by default many on a "
        "CPU, powers of two where each length is compiled.",
        json_schema_extra={"allowed": "a list of ascending integers of at least 3"},
    )
    batch_size: _Positive | None = Field(
        default=None,
        description="Rows of a batch, over all devices together, for every length; instead of "
        "batch_tokens.",
        json_schema_extra={"allowed": "an integer of at least 1", "common": True},
    )
    batch_tokens: _Positive | None = Field(
        default=None,
        description="Maximum tokens per batch, padding included; sets the number of rows for each "
        "length. By default 2048 on a CPU, 16384 for each other device.",
        json_schema_extra={"allowed": "an integer of at least 1"},
    )
    device: Literal["auto", "tpu", "gpu", "cpu"] = Field(
        default="auto",
        description="Device to run on; auto takes TPU, GPU or CPU, in that order.",
        json_schema_extra={"allowed": "'auto', 'tpu', 'gpu' or 'cpu'", "common": True},
    )
    runtime: Literal["auto", "tensorflow", "jax"] = Field(
        default="auto",
        description="Library that drives the device; auto is TensorFlow, or JAX where only JAX "
        "can drive the TPU or GPU of this machine.",
        json_schema_extra={"allowed": "'auto', 'tensorflow' or 'jax'"},
    )
    precision: Literal["auto", "float32", "bfloat16"] = Field(
        default="auto",
        description="Precision of the arithmetic; auto is bfloat16 on a TPU, else float32.",
        json_schema_extra={"allowed": "'auto', 'float32' or 'bfloat16'", "common": True},
    )
    attention: Literal["auto", "xla", "pallas"] = Field(
        default="auto",
        description="Form of attention on a TPU with JAX: operations that XLA compiles, or a "
        "kernel in Pallas, for long rows; auto is xla.",
        json_schema_extra={"allowed": "'auto', 'xla' or 'pallas'"},
    )
    use_one_hot_embeddings: bool = Field(
        default=False,
        description="Look up words by a matrix product instead of a gather.",
        json_schema_extra={"allowed": "true or false"},
    )
    format: FileFormat | None = Field(
        default=None,
        description="Format of the output file; by default that of the suffix.",
        json_schema_extra={"allowed": "'parquet', 'arrow', 'jsonl', 'npz', 'hdf5' or 'tfrecord'"},
    )
    input_format: FormatName = Field(
        default="auto",
        description="Format of the input; auto goes by the suffix (before .gz, .bz2, .xz or .zst) "
        "and reads any other file as text.",
        json_schema_extra={
            "allowed": ", ".join(f"'{name}'" for name in get_args(FormatName)),
            "common": True,
        },
    )
    id_field: str | None = Field(
        default=None,
        description="Column or JSON field of the ids, in CoNLL the key of a comment; by default "
        "`id` where there is one.",
        json_schema_extra={"allowed": "a string; an empty one for no ids", "common": True},
    )
    text_field: str | None = Field(
        default=None,
        description="Column or JSON field of the texts; by default `text`.",
        json_schema_extra={"allowed": "a string", "common": True},
    )
    text_b_field: str | None = Field(
        default=None,
        description="Column or JSON field of the second texts of pairs; by default `text_b`.",
        json_schema_extra={"allowed": "a string"},
    )
    tokens_field: str | None = Field(
        default=None,
        description="Column or JSON field of lists of words; by default `tokens`.",
        json_schema_extra={"allowed": "a string"},
    )
    conll_column: _Positive | None = Field(
        default=None,
        description="Column of the words in CoNLL files, from 1; by default 1, in CoNLL-U 2.",
        json_schema_extra={"allowed": "an integer of at least 1"},
    )
    quoting: bool | None = Field(
        default=None,
        description="Whether fields of csv and tsv may be in double quotes; by default yes in csv, "
        "no in tsv, where quotes are text.",
        json_schema_extra={"allowed": "true or false"},
    )
    max_line_bytes: int = Field(
        default=MAX_LINE_BYTES,
        ge=1,
        le=LARGEST_LINE_BYTES,
        description="Longest line of the input in bytes; a longer one is an error. A csv row with "
        "line ends in quotes, and a CoNLL sentence, count as a whole.",
        json_schema_extra={"allowed": f"an integer from 1 to {LARGEST_LINE_BYTES}"},
    )
    encoding_errors: Literal["strict", "replace"] = Field(
        default="strict",
        description="What to do with input that is not UTF-8.",
        json_schema_extra={"allowed": "'strict' or 'replace'"},
    )
    shard: str | None = Field(
        default=None,
        description="Share of the examples to compute, I/N: every N-th from the I-th, counted "
        "from 0, into a file with that number; or auto, the share of this host of a TPU slice.",
        json_schema_extra={"allowed": "'auto', or 'I/N' with I from 0 to N - 1"},
    )
    shard_examples: _Positive = Field(
        default=SHARD_EXAMPLES,
        description="Examples of a shard, where the output is a folder of shards.",
        json_schema_extra={"allowed": "an integer of at least 1"},
    )
    buffer_mb: _Positive = Field(
        default=256,
        description="Megabytes of finished features that may wait to be written.",
        json_schema_extra={"allowed": "an integer of at least 1"},
    )
    uniform_batches: bool = Field(
        default=False,
        description="Compute each row in a batch whose shape depends on the length of the row "
        "alone. Equal texts then have equal features, to the last bit. Implied by dedupe.",
        json_schema_extra={"allowed": "true or false"},
    )
    dedupe: bool = Field(
        default=False,
        description="Compute each distinct text once; cache turns it on. The features are those "
        "of uniform_batches.",
        json_schema_extra={"allowed": "true or false"},
    )
    cache: str | None = Field(
        default=None,
        description="Folder that keeps the features of each distinct text for later runs with the "
        "same settings, weights and versions.",
        json_schema_extra={"allowed": "a path"},
    )
    cache_gb: Annotated[float, Field(gt=0)] | None = Field(
        default=None,
        description="Gigabytes of the cache folder at which nothing more is added; by default no "
        "limit.",
        json_schema_extra={"allowed": "a number above 0"},
    )

    @classmethod
    def load(cls, path: str | Path, **overrides: Any) -> Self:
        """Reads a TOML file.

        Args:
          path: the file, flat `key = value` settings; or the name of one that comes with the
            package, such as `minilm`.
          **overrides: settings that take precedence over the file's.

        Raises:
          ConfigError: the file cannot be read, is not TOML, or holds a key or a value that is not
            allowed.
        """
        path = find_config(path)
        values = read_toml(read_config(path), str(path))
        try:
            cls.of(values, source=str(path))  # errors in the file name the file
        except ConfigError as error:
            raise ConfigError(str(error)) from error  # and its keys, whoever reads them
        config = cls.of({**values, **overrides})
        config._source = _Source(path)
        return config

    @property
    def source_file(self) -> Path | None:
        """The TOML file that the settings were read from; None if there is none."""
        return self._source.path

    @classmethod
    def of(cls, values: Mapping[str, Any], *, source: str = "") -> Self:
        """Checks settings and freezes them; see `Settings.of`. Outputs may be dicts."""
        outputs = values.get("outputs", ())
        if not isinstance(outputs, list | tuple):
            raise ConfigError.naming(
                "{where}{outputs} is {received}; allowed: a list of tables, [[outputs]]",
                where=f"{source}: " if source else "",
                received=shown(outputs),
            )
        checked = [
            output
            if isinstance(output, OutputConfig)
            else parse_output(output, source=" ".join([source, f"outputs[{i}]"]).strip())
            for i, output in enumerate(outputs)
        ]
        # Only if they were given: a setting that is at its default counts as not set.
        given = {"outputs": checked} if "outputs" in values else {}
        return super().of({**values, **given}, source=source)

    @field_validator("checkpoint", "config_file", "vocab_file", "cache", mode="before")
    @classmethod
    def _path_is_text(cls, value: Any) -> Any:
        return str(value) if isinstance(value, Path) else value

    @field_validator("layers", mode="before")
    @classmethod
    def _split_layers(cls, value: Any) -> Any:
        return split_layers(value)

    @model_validator(mode="before")
    @classmethod
    def _cache_implies_dedupe(cls, values: dict[str, Any]) -> dict[str, Any]:
        implied: dict[str, Any] = {}
        if values.get("cache") is not None:
            implied["dedupe"] = True
        if values.get("dedupe") or implied:
            implied["uniform_batches"] = True
        return implied | values

    @field_validator("shard")
    @classmethod
    def _shard_is_one(cls, shard: str | None) -> str | None:
        if shard not in (None, AUTO):
            Shard.parse(shard)
        return shard

    @model_validator(mode="after")
    def _settings_fit_together(self) -> Self:
        if self.batch_size is not None and self.batch_tokens is not None:
            raise ConfigError.naming(
                "{batch_size} and {batch_tokens} are both set; leave one of them out"
            )
        if self.outputs:
            beside = [name for name in _SINGLE_OUTPUT if name in self.model_fields_set]
            if beside:
                settings = ", ".join(f"{{{name}}}" for name in beside)
                raise ConfigError.naming(
                    settings + " and {outputs} are both set; set it in each output instead"
                )
        if self.dedupe and not self.uniform_batches:
            raise ConfigError.naming(
                "{dedupe} needs {uniform_batches}; leave {uniform_batches} out"
            )
        if self.cache is not None and not self.dedupe:
            raise ConfigError.naming("{cache} needs {dedupe}; leave {dedupe} out")
        if self.cache_gb is not None and self.cache is None:
            raise ConfigError.naming("{cache_gb} is a limit for {cache}; pass {cache} too")
        check_names_differ(output_names(self.output_configs(), self.layers))
        return self

    def input_settings(self) -> InputFormat:
        """The format of the input and the places of its examples."""
        return InputFormat(
            format=self.input_format,
            id_field=self.id_field,
            text_field=self.text_field,
            text_b_field=self.text_b_field,
            tokens_field=self.tokens_field,
            conll_column=self.conll_column,
            quoting=self.quoting,
            max_line_bytes=self.max_line_bytes,
        )

    def output_configs(self) -> tuple[OutputConfig, ...]:
        """The outputs that the settings ask for."""
        if self.outputs:
            return self.outputs
        given = {name for name in _SINGLE_OUTPUT if name in self.model_fields_set}
        if self.pooling == AUTO_POOLING:  # it takes the last layer where the user names none
            given |= {"layers"} & self.model_fields_set
        return (OutputConfig(**{name: getattr(self, name) for name in given}),)

    def row_length(self, config: BertConfig, name: str) -> int:
        """The maximum tokens of a row: `max_seq_length`, by default the checkpoint's positions.

        Args:
          config: the architecture.
          name: the checkpoint's name, for the error.

        Raises:
          ConfigError: the checkpoint has fewer positions than `max_seq_length`.
        """
        positions = config.max_position_embeddings
        if self.max_seq_length is None:
            return positions
        if self.max_seq_length > positions:
            raise ConfigError.naming(
                "{max_seq_length} is {received}; {name} has {positions} positions, take at most "
                "that",
                received=self.max_seq_length,
                name=name,
                positions=positions,
            )
        return self.max_seq_length

    def plan_outputs(
        self, config: BertConfig, auto: AutoPooling | None = None
    ) -> tuple[OutputSpec, ...]:
        """The outputs, resolved for an architecture.

        Args:
          config: the architecture.
          auto: what pooling `auto` means for the checkpoint.

        Raises:
          ConfigError: see `outputs.plan_outputs`.
        """
        try:
            return plan_outputs(
                self.output_configs(), config, layers=self.layers, dtype=self.dtype, auto=auto
            )
        except ConfigError as error:
            if not self.outputs:
                raise
            raise ConfigError(str(error)) from error  # the settings of outputs are keys everywhere
