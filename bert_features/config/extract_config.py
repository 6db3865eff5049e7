"""ExtractConfig: all settings of a run, checked once, frozen; from TOML or keywords."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import BeforeValidator, Field, PrivateAttr, field_validator, model_validator
from pydantic.fields import FieldInfo

from bert_features.config.bert_config import BertConfig, CheckpointOptions, GeluForm
from bert_features.config.config_files import PRESETS, read_config
from bert_features.config.features import OutputSpec
from bert_features.config.input_format import Delimiter, FormatName, InputFormat, LineBytes
from bert_features.config.kinds import UNIT_SETTINGS, unused
from bert_features.config.output_specs import output_names, plan_outputs
from bert_features.config.outputs import (
    OUTPUT_SETTINGS,
    OutputConfig,
    check_names_differ,
    gather_outputs,
    idle_beside,
    parse_outputs,
)
from bert_features.config.poolings import AutoPooling
from bert_features.config.settings import (
    DEVICES,
    FILES,
    INPUT,
    LONG_TEXTS,
    MAX_INT,
    MODEL,
    OUTPUTS,
    PathText,
    Positive,
    Settings,
    read_toml,
    setting,
)
from bert_features.config.shards import AUTO, Shard
from bert_features.errors import ConfigError

# The formats of features files; `formats.FORMATS` has the module of each.
FileFormat = Literal["parquet", "arrow", "jsonl", "npz", "hdf5", "tfrecord"]
# MiniLM on two CPU cores takes minutes, BERT-base on a TPU chip seconds (docs/performance.md).
SHARD_EXAMPLES = 50_000

# Fields that are the same there.
_INPUT: Mapping[str, Any] = InputFormat.model_fields
RowLength = Annotated[int, Field(ge=3, le=MAX_INT)]
SpanRule = Annotated[
    str,
    BeforeValidator(lambda value: str(value) if type(value) is int else value),
    Field(pattern=r"^(sentences(:[a-z]{2,3})?|[1-9]\d{0,8}(/\d{1,9})?)$"),
]


@dataclass(frozen=True)
class _Source:
    """The file that settings were read from; settings are equal wherever they come from."""

    path: Path | None = field(default=None, compare=False)


class _Asked(NamedTuple):
    """The settings of a single output, and the named outputs, as a user passed them."""

    single: Mapping[str, Any]
    named: Sequence[OutputConfig]


class ExtractConfig(Settings):
    """The settings of a feature extraction, as keywords: `ExtractConfig(layers=-1)`.

    The settings of a single output stand among the others, and make `outputs` of one. `layers` may
    be a layer, several, or text such as "-1,-2"; outputs may be dicts.

    Raises:
      ConfigError: one error with every unknown key and every value that is not allowed.
    """

    _source: _Source = PrivateAttr(default=_Source())

    checkpoint: PathText = setting(
        "minilm",
        "Checkpoint to use: `minilm` (the embedded all-MiniLM-L6-v2, not Google's BERT), a "
        "directory or file, an address (gs://, s3://), a published name (bert-base-uncased), a "
        "TF-Hub handle or a Hugging Face repository.",
        MODEL,
        common=True,
    )
    config_file: PathText | None = setting(
        None,
        "Path or address of bert_config.json or config.json, if it is not beside the weights.",
        MODEL,
    )
    vocab_file: PathText | None = setting(
        None,
        "Path or address of vocab.txt, if it is not beside the weights.",
        MODEL,
        flags=("--vocab-file", "--vocab"),
    )
    do_lower_case: bool | None = setting(
        None,
        "Lower-case texts and strip their accents, or not; by default as the checkpoint was "
        "trained.",
        MODEL,
        common=True,
        flags=("--uncased/--cased",),
    )
    hidden_act: GeluForm | None = setting(
        None, "Form of GELU; by default the form of the checkpoint's family.", MODEL
    )
    outputs: tuple[OutputConfig, ...] = setting(
        (OutputConfig(),),
        "Named outputs, all from one pass, instead of the single output above.",
        OUTPUTS,
        flags=("--output-spec",),
        usage="Write each as the inside of a TOML table: --output-spec "
        '\'name = "s", level = "sequence", pooling = "mean"\'. May be given several times.',
        allowed="a list of tables, [[outputs]]",
    )
    long_text: Literal["truncate", "tail", "head_tail", "window", "error"] = setting(
        "truncate", "What to do with texts longer than max_seq_length.", LONG_TEXTS, common=True
    )
    stride: Positive | None = setting(
        None,
        "Pieces between the beginnings of two windows; by default half a window.",
        LONG_TEXTS,
    )
    word_split: Literal["bert", "whitespace"] = setting(
        "bert",
        "How texts are split into words, for outputs of words: like BERT (punctuation stands "
        "alone), or at white space.",
        OUTPUTS,
    )
    max_seq_length: RowLength | None = setting(
        None,
        "Maximum tokens of a row, [CLS] and [SEP] included; long_text decides about longer texts. "
        "By default as many as the checkpoint has positions.",
        LONG_TEXTS,
        common=True,
    )
    buckets: tuple[RowLength, ...] | None = setting(
        None,
        "Lengths that rows are padded to, up to max_seq_length; by default many on a CPU, powers "
        "of two where each length is compiled.",
        DEVICES,
        allowed="a list of ascending integers of at least 3",
    )
    packing: bool | None = setting(
        None,
        "Let texts share rows, each with its own attention, so that little is padding; by default "
        "on a TPU or GPU, and with JAX on a CPU, without buckets and dedupe.",
        DEVICES,
    )
    batch_size: Positive | None = setting(
        None,
        "Rows of a batch, over all devices together, for every length; instead of batch_tokens.",
        DEVICES,
        common=True,
    )
    batch_tokens: Positive | None = setting(
        None,
        "Maximum tokens per batch, padding included; sets the number of rows for each length. By "
        "default 512 to 2048 on a CPU by its cores, 16384 for each other device.",
        DEVICES,
    )
    device: Literal["auto", "tpu", "gpu", "cpu"] = setting(
        "auto", "Device to run on; auto takes TPU, GPU or CPU, in that order.", DEVICES, common=True
    )
    runtime: Literal["auto", "tensorflow", "jax"] = setting(
        "auto",
        "Library that drives the device; auto is TensorFlow, or JAX where only JAX can drive it.",
        DEVICES,
    )
    precision: Literal["auto", "float32", "bfloat16", "int8"] = setting(
        "auto",
        "Precision of the arithmetic; auto is bfloat16 on a TPU, else float32. int8 is for CPUs "
        "with AVX-512 VNNI or AMX; its vectors are less exact.",
        DEVICES,
        common=True,
    )
    format: FileFormat | None = setting(
        None, "Format of the output file. Default: the suffix decides.", FILES
    )
    input_format: FormatName = _INPUT["format"]
    id_field: str | None = _INPUT["id_field"]
    text_field: str | None = _INPUT["text_field"]
    text_b_field: str | None = _INPUT["text_b_field"]
    tokens_field: str | None = _INPUT["tokens_field"]
    prompt: str | None = setting(
        None,
        "Prompt before each text: the name of one of the checkpoint's, such as document, or the "
        "text itself; empty for none. By default its default prompt with pooling auto, else none.",
        INPUT,
        decides="vectors",
    )
    segment: Annotated[int, Field(ge=0, le=1)] = setting(
        0,
        "Segment id of the tokens of a single text; 1 as some tutorials have it.",
        INPUT,
        decides="vectors",
    )
    spans: SpanRule | None = setting(
        None,
        "What the spans are, for level span, if the input has none: sentences; sentences:LANG for "
        "another language than English, as sentences:de; N for chunks of N tokens; N/M for chunks "
        "that share up to M tokens.",
        INPUT,
        served=True,
        allowed="sentences, sentences:LANG, N or N/M with M below N",
    )
    label_field: str | None = _INPUT["label_field"]
    span_field: str | None = _INPUT["span_field"]
    delimiter: Delimiter | None = _INPUT["delimiter"]
    max_line_bytes: LineBytes = _INPUT["max_line_bytes"]
    shard: str | None = setting(
        None,
        "Share of this host, I/N: every N-th shard of a folder that hosts share, from the I-th, "
        "counted from 0; of a single output every N-th example, into a file with that number. With "
        "auto the environment of a TPU slice says it.",
        INPUT,
    )
    shard_examples: Positive = setting(
        SHARD_EXAMPLES, "Examples of a shard, where the output is a folder of shards.", FILES
    )
    buffer_mb: Positive = setting(
        256, "Megabytes of finished features that may wait to be written.", DEVICES, decides="bytes"
    )
    dedupe: bool = setting(
        False,
        "Compute each distinct text once; cache turns it on. The shape of a batch then depends on "
        "the length of its rows alone, so that the features of a text are the same in any batch, "
        "on a CPU with AVX-512 to the last bit.",
        FILES,
        decides="digits",
        served=False,
    )
    cache: PathText | None = setting(
        None,
        "Folder that keeps the features of each distinct text for later runs with the same "
        "settings, weights and versions.",
        FILES,
        decides="nothing",
    )

    @classmethod
    def load(cls, path: str | Path, **overrides: Any) -> Self:
        """Reads a TOML file.

        Args:
          path: the file, flat `key = value` settings; or the name of one that comes with the
            package, such as `pogiatzis`.
          **overrides: settings that take precedence over the file's.

        Raises:
          ConfigError: the file cannot be read, is not TOML, or a key or value is not allowed.
        """
        path, text = read_config(path)
        values = read_toml(text, str(path))
        try:
            cls.of(values, source=str(path))  # errors in the file name the file
        except ConfigError as error:
            raise ConfigError(str(error)) from error  # and its keys, whoever reads them
        if path.parent.samefile(PRESETS):  # its settings are not the user's: they give way
            idle = idle_beside({**values, **overrides})
            values = {name: value for name, value in values.items() if name not in idle}
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
        if isinstance(values, Mapping) and values.get("outputs", ()) not in ((), []):
            values = {**values, "outputs": parse_outputs(values["outputs"], source=source)}
        return super().of(values, source=source)

    @classmethod
    def known(cls) -> Mapping[str, FieldInfo]:
        """The settings of a run, and before `outputs` those of a single output."""
        single = {name: OutputConfig.model_fields[name] for name in OUTPUT_SETTINGS}
        names = [*cls.model_fields]
        names[names.index("outputs") : names.index("outputs")] = single
        return {name: single.get(name) or cls.model_fields[name] for name in names}

    @model_validator(mode="before")
    @classmethod
    def _take_single_output(cls, values: dict[str, Any]) -> dict[str, Any]:
        rest = {name: value for name, value in values.items() if name not in OUTPUT_SETTINGS}
        single = {name: value for name, value in values.items() if name in OUTPUT_SETTINGS}
        if single or "outputs" in rest:
            rest["outputs"] = _Asked(single, rest.get("outputs", ()))
        return rest

    @field_validator("outputs", mode="before")
    @classmethod
    def _gather(cls, asked: "_Asked") -> tuple[OutputConfig, ...]:
        return gather_outputs(
            asked.single, None if asked.named == () else parse_outputs(asked.named)
        )

    @model_validator(mode="before")
    @classmethod
    def _cache_implies_dedupe(cls, values: dict[str, Any]) -> dict[str, Any]:
        return ({"dedupe": True} if values.get("cache") is not None else {}) | values

    @field_validator("spans")
    @classmethod
    def _chunks_advance(cls, spans: str | None) -> str | None:
        size, _, shared = (spans or "").partition("/")
        if shared and int(shared) >= int(size):
            raise ConfigError(
                f"spans is '{spans}': chunks of {size} tokens share at most {int(size) - 1}"
            )
        return spans

    @field_validator("shard")
    @classmethod
    def _shard_is_one(cls, shard: str | None) -> str | None:
        if shard not in (None, AUTO):
            Shard.parse(shard)
        return shard

    @model_validator(mode="after")
    def _settings_fit_together(self) -> Self:
        if self.batch_size is not None and self.batch_tokens is not None:
            raise ConfigError("batch_size and batch_tokens are both set; leave one out")
        if self.packing and (self.buckets is not None or self.dedupe):
            raise ConfigError(
                "packing excludes buckets and dedupe, which cache turns on; leave one of them out"
            )
        if self.spans is not None and self.span_field is not None:
            raise ConfigError("spans and span_field are both set; leave one out")
        if self.cache is not None and not self.dedupe:
            raise ConfigError("cache needs dedupe; leave dedupe out")
        return self

    @model_validator(mode="after")
    def _outputs_fit(self) -> Self:
        check_names_differ(output_names(self.outputs))
        idle = set.intersection(*({*unused(dict(output))} for output in self.outputs))
        for name in UNIT_SETTINGS:
            if name in idle and getattr(self, name) != type(self).model_fields[name].default:
                raise ConfigError(f"no output uses {name}; leave {name} out")
        return self

    def checkpoint_options(self) -> CheckpointOptions:
        """What the settings say of the checkpoint, as `find_checkpoint` takes it."""
        return {
            "config_file": self.config_file,
            "vocab_file": self.vocab_file,
            "hidden_act": self.hidden_act,
        }

    def input_settings(self) -> InputFormat:
        """The format of the input and the places of its examples."""
        names = InputFormat.model_fields.keys() - {"format"}
        return InputFormat(self.input_format, **{name: getattr(self, name) for name in names})

    def row_length(self, config: BertConfig, name: str) -> int:
        """The maximum tokens of a row: `max_seq_length`, by default the checkpoint's positions.

        Raises ConfigError if the checkpoint has fewer.
        """
        length, most = self.max_seq_length or config.positions, config.positions
        if length > most:
            raise ConfigError(
                f"max_seq_length is {length}; {name} has {most} positions: pass no more"
            )
        return length

    def plan_outputs(
        self, config: BertConfig, auto: AutoPooling | None = None
    ) -> tuple[OutputSpec, ...]:
        """The outputs, resolved for an architecture; errors as `output_specs.plan_outputs`."""
        try:
            return plan_outputs(
                self.outputs, config, auto=auto, labelled=self.label_field is not None
            )
        except ConfigError as error:
            if self.outputs[0].name is None:  # its settings stand among those of the run
                raise
            raise ConfigError(str(error)) from error  # the settings of outputs are keys everywhere
