"""Finding a checkpoint: by a path, an address, a published name or a hub, with its config."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Unpack, get_args

from bert_features.checkpoints.casing import casing_of
from bert_features.checkpoints.checkpoint import Checkpoint
from bert_features.checkpoints.modules.multi_vector import read_bge_m3, read_multi_vector
from bert_features.checkpoints.modules.sentence_transformers import (
    SentenceTransformersSettings,
    read_sentence_transformers,
)
from bert_features.checkpoints.modules.settings import read_linears
from bert_features.checkpoints.sources.registry import SOURCES, Source, local_file, source_of
from bert_features.checkpoints.weights.encoder_check import check_size
from bert_features.checkpoints.weights.inferred_config import infer_config
from bert_features.checkpoints.weights.locate import locate
from bert_features.checkpoints.weights.other_files import check_regular
from bert_features.checkpoints.weights.weight_names import Kind
from bert_features.checkpoints.weights.weight_readers import WeightFiles
from bert_features.config.architectures import model_type_of
from bert_features.config.bert_config import (
    BertConfig,
    CheckpointOptions,
    Family,
    GeluForm,
    config_family,
)
from bert_features.config.json_files import read_json_object
from bert_features.config.settings import shown
from bert_features.errors import CheckpointError, ConfigError
from bert_features.text import tokenizer_files

# A directory may hold both configs: each kind of weights prefers the one of its own family.
CONFIG_NAMES: dict[Kind, tuple[str, ...]] = {
    "tf1": ("bert_config.json", "albert_config.json", "config.json"),
    "tf2": ("bert_config.json", "albert_config.json", "config.json"),
    "safetensors": ("config.json", "bert_config.json"),
}


# Where the weights of a checkpoint are, and what sentence-transformers wrote beside them.
_Located = tuple[Source, WeightFiles, SentenceTransformersSettings | None]


def find_checkpoint(
    name: str | Path,
    *,
    config_file: str | Path | None = None,
    vocab_file: str | Path | None = None,
    hidden_act: GeluForm | None = None,
) -> Checkpoint:
    """Finds a checkpoint and reads its config.

    The form of GELU follows the family: Google's `gelu` is the tanh form, Hugging Face's the erf
    form. `config_family` decides which, by the config file, else by the kind of the weights.

    Args:
      name: one of
        - `minilm`, the embedded all-MiniLM-L6-v2 (not Google's BERT);
        - a directory. It may hold model.safetensors or its shards, bert_model.ckpt, the checkpoint
          that its `checkpoint` state file names, a SavedModel, pytorch_model.bin, or a single other
          checkpoint; or it was written by sentence-transformers, with its weights there or in
          0_Transformer;
        - the prefix (or any file) of a TensorFlow checkpoint, or a file of Hugging Face's weights;
        - any of these on an object store (`gs://bucket/folder`, `s3://bucket/folder`), copied into
          the cache once;
        - the name or alias of a checkpoint that Google published, such as `bert-base-uncased`:
          its repository of the Hugging Face Hub, with Google's casing and form of GELU;
        - a handle of TF-Hub (`https://tfhub.dev/…`, `https://www.kaggle.com/models/…`);
        - a model of the Hugging Face Hub, as `hf:org/name`, `hf:org/name@revision` or, if there is
          no such path, `org/name`.
      config_file: path or address of `bert_config.json` or `config.json`, if not beside the
        weights.
      vocab_file: path or address of `vocab.txt`, a SentencePiece `.model` or `tokenizer.json`, if
        not beside the weights.
      hidden_act: the form of GELU, if not the family's.

    Raises:
      CheckpointError: there is no such checkpoint, it is of a kind that is not read, its config is
        missing or not BERT's, or it cannot be downloaded.
      ConfigError: `hidden_act` is not a form of GELU, or the address has an unknown scheme.
      MissingExtraError: the package that brings `minilm`, or that opens this kind of address, is
        not installed.
    """
    _check_hidden_act(hidden_act)
    name = str(name)
    return _describe(
        name, _locate(name), config_file=config_file, vocab_file=vocab_file, hidden_act=hidden_act
    )


def find_without_tensorflow(
    name: str | Path, **options: Unpack[CheckpointOptions]
) -> Checkpoint | None:
    """Does what `find_checkpoint` does, with the same errors, unless that would import TensorFlow.

    It is None then: for a handle of TF-Hub, and for an object-based checkpoint, a SavedModel and a
    TF1 checkpoint of ELECTRA, which only TensorFlow reads.
    """
    _check_hidden_act(options.get("hidden_act"))
    name = str(name)
    if source_of(name) is SOURCES["TfHub"]:
        return None
    located = _locate(name)
    return None if located[1].may_lack_config else _describe(name, located, **options)


def _check_hidden_act(hidden_act: str | None) -> None:
    if hidden_act not in (None, *get_args(GeluForm)):
        raise ConfigError(f"hidden_act is {hidden_act!r}; allowed: {', '.join(get_args(GeluForm))}")


def _locate(name: str) -> _Located:
    try:
        source = source_of(name)
        path = source.fetch(name)
        check_regular(path)
        settings = _sentence_transformers(path)
        if settings is not None and path.is_dir():
            path = path / settings.transformer_path
        return source, locate(path, name), settings
    except OSError as error:  # a name that is too long, a folder that may not be read
        raise CheckpointError(f"cannot read {shown(name)}: {error.strerror or error}") from error


def _sentence_transformers(path: Path) -> SentenceTransformersSettings | None:
    """The settings of the folder that sentence-transformers wrote, if this is one or in one."""
    if path.is_dir():
        return read_sentence_transformers(path)
    settings = read_sentence_transformers(path.parent)
    # Weights beside a modules.json that names a folder for its own are others.
    return settings if settings is not None and not settings.transformer_path else None


def _describe(name: str, located: _Located, **options: Unpack[CheckpointOptions]) -> Checkpoint:
    """The checkpoint whose weights have been located."""
    source, weights, settings = located
    folder = settings.files[0].parent if settings is not None else weights.root
    multi_vector = read_multi_vector(folder, weights)
    if settings is not None and multi_vector is not None:  # whose modules are in its folder
        files = (*settings.files, *multi_vector.dense.values())
        settings = replace(settings, dense=multi_vector.dense, files=files)
    config_path = _file(options.get("config_file"), weights, CONFIG_NAMES[weights.kind])
    config, family = _config(name, weights, config_path)
    linears = read_linears(weights, config.hidden_size)
    if hidden_act := options.get("hidden_act") or source.hidden_act:
        config = config.model_copy(update={"hidden_act": hidden_act})
    vocab_path = _file(options.get("vocab_file"), weights, tokenizer_files.NAMES)
    casing, evidence = source.is_uncased(name), f"its name is {name}"
    if casing is None:
        casing, evidence = casing_of(weights, vocab_path, *source.names(name))
    checkpoint = Checkpoint(
        *(name, weights, family, config, vocab_path),
        do_lower_case=casing,
        casing_evidence=evidence,
        expected_sha256=source.sha256,
        sentence_transformers=settings,
        config_file=config_path,
        multi_vector=multi_vector or read_bge_m3(folder, weights, linears),
        linears=linears,
    )
    check_size(checkpoint.weights, checkpoint.config)
    return checkpoint


def _file(path: str | Path | None, weights: WeightFiles, names: Sequence[str]) -> Path | None:
    """The file that was asked for, or else one of these names beside the weights."""
    return weights.beside(names) if path is None else local_file(path)


def _config(name: str, weights: WeightFiles, config_path: Path | None) -> tuple[BertConfig, Family]:
    """The architecture: from the config file, or from the shapes where files have none."""
    if config_path is not None:
        values = read_json_object(config_path)
        family, path = config_family(values, weights.kind), str(config_path)
        if family == "huggingface" and config_path.name != "bert_config.json":  # a BERT's
            values["model_type"] = model_type_of(values, path, lambda: weights.reader.shapes())
        return BertConfig.from_dict(values, family=family, source=path), family
    if weights.may_lack_config:
        # TF-Hub's come without a config, the Model Garden's with one of another form.
        return infer_config(weights, name), "google"
    raise CheckpointError(
        f"{name}: there is neither bert_config.json nor config.json in {weights.path.parent}; pass "
        "config_file"
    )
