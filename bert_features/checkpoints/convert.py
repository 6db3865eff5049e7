"""Converts a checkpoint to another format; what is read of it stays the same.

Weights, config, vocabulary, casing, and the settings of sentence-transformers.
"""

import dataclasses
import json
import logging
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from bert_features.checkpoints.checkpoint import Checkpoint
from bert_features.checkpoints.modules import sentence_transformers
from bert_features.checkpoints.read import has_pooler, read_weights, warn_of_heads
from bert_features.checkpoints.tokenizer import check_casing, checked_vocabulary
from bert_features.checkpoints.weights import weight_names
from bert_features.checkpoints.weights.file_names import (
    LINEARS,
    MAIN_CONFIG,
    MODULES,
    TRANSFORMER_CONFIGS,
)
from bert_features.config.architectures import ARCHITECTURES, OF_NO_FILE
from bert_features.config.bert_config import ACTIVATIONS, BertConfig, Family
from bert_features.errors import ConfigError, OutputError
from bert_features.files import Role, check_folder, replacing
from bert_features.machine.quiet_tensorflow import import_tensorflow
from bert_features.text import tokenizer_files
from bert_features.text.tokenizer_files import write_tokenizer

logger = logging.getLogger("bert_features")

TF1_PREFIX = "bert_model.ckpt"
# The words that google-research/bert's modeling.get_activation accepts.
OFFICIAL_ACTIVATIONS = ("gelu", "relu", "tanh", "linear")
# Canonical name -> float32 array; with the pooler's if the checkpoint has one.
Weights = dict[str, np.ndarray]


def convert(
    checkpoint: Checkpoint,
    out: str | Path,
    *,
    to: str,
    do_lower_case: bool | None = None,
    overwrite: bool = False,
) -> Path:
    """Writes a directory that holds a checkpoint in another format, whole or not at all.

    `find_checkpoint` and `read_weights` give the same for the copy as for the source, bit for bit.
    Half-precision weights become float32. Heads, such as the masked-LM head and the projection of a
    ColBERT of Stanford, are not copied, which a warning says. The copy lacks tables that reading
    folds into others, as ERNIE's tasks: their number of rows is 0 in its config.

    Args:
      checkpoint: the source.
      out: the directory to write, which is returned.
      to: the format, a key of `TARGETS`. (`export.export_savedmodel` writes TF-Hub SavedModels.)
      do_lower_case: the casing, for a checkpoint that does not record it.
      overwrite: whether an earlier conversion at `out` may be replaced.

    Raises:
      CheckpointError: the source cannot be read whole, or has no vocabulary.
      ConfigError: the format is unknown, or cannot hold this architecture.
      OutputError: `out` exists, or cannot be written.
    """
    if to not in TARGETS:
        raise ConfigError(f"--to is {to!r}; allowed: {', '.join(TARGETS)}")
    source = _with_casing(checkpoint, do_lower_case)
    return write_checkpoint(source, None, out, to=to, overwrite=overwrite)


def write_checkpoint(
    source: Checkpoint,
    weights: Weights | None,
    out: str | Path,
    *,
    to: str,
    overwrite: bool = False,
) -> Path:
    """Writes weights of the architecture of a checkpoint with all else that `source` has.

    That is the config, the vocabulary, the casing and the settings of sentence-transformers. The
    weights are by canonical name, with those of the pooler or without, and with those of Dense
    modules if they differ from those of `source`; None for all those of `source`.
    Other arguments, result, errors and the warning of heads are those of `convert`.
    """
    if to == "tf1" and source.config.model_type != "bert":
        raise ConfigError(
            f"format tf1 is written for BERT alone; {source.name} has model_type "
            f"{source.config.model_type}: choose safetensors"
        )
    out = Path(out)
    check_out(out, source.files(), overwrite=overwrite)
    vocab_file, _ = checked_vocabulary(source)
    warn_of_heads(source, "copy")
    if weights is None:
        weights = read_weights(source, pooler=has_pooler(source))
    # TensorFlow and safetensors have errors of their own.
    with replacing(out, overwrite=overwrite, folder=True, every=True) as folder:
        folder.mkdir()
        TARGETS[to](weight_names.folded_config(source.config), weights, folder)
        write_tokenizer(vocab_file, folder, source.config.model_type, source.do_lower_case)
        if source.sentence_transformers is not None:
            sentence_transformers.write_settings(source.sentence_transformers, folder, weights)
        for path in source.linears.values():
            shutil.copyfile(path, folder / path.name)
    return out


def _with_casing(checkpoint: Checkpoint, do_lower_case: bool | None) -> Checkpoint:
    """The checkpoint with the casing that was asked for."""
    if do_lower_case is not None:
        check_casing(checkpoint, do_lower_case)
        return dataclasses.replace(checkpoint, do_lower_case=do_lower_case)
    if checkpoint.do_lower_case is None:
        logger.warning(
            "%s: casing is unknown, so the copy does not record it; pass --cased or --uncased",
            checkpoint.name,
        )
    return checkpoint


def config_values(config: BertConfig, family: Family) -> dict[str, Any]:
    """What a family's config file holds, such that reading it gives the same config.

    BERT's relatives have Hugging Face's file. The activation is the family's first word for it:
    Google's `gelu` is the tanh form, Hugging Face's the erf form.
    """
    if config.model_type != "bert":
        family = "huggingface"
    architecture = ARCHITECTURES[config.model_type]
    word = next(w for w, form in ACTIVATIONS[family].items() if form == config.hidden_act)
    marks = {"model_type": config.model_type, "architectures": [architecture.model_class]}
    values = config.model_dump() | {"hidden_act": word}
    if "rope_divisor" in values:
        linear = {"rope_type": "linear", "factor": config.rope_divisor}
        kind = {"rope_type": "default"} if config.rope_divisor == 1 else linear
        values["rope_parameters"] = {"rope_theta": values.pop("global_rope_theta"), **kind}
    stored = {own: key for key, own in architecture.keys.items()}
    return (marks if family == "huggingface" else {}) | {
        stored.get(key, key): value for key, value in values.items() if key not in OF_NO_FILE
    }


def _write_tf1(config: BertConfig, weights: Weights, folder: Path) -> None:
    tf = import_tensorflow()
    values = config_values(config, "google")
    if values["hidden_act"] not in OFFICIAL_ACTIVATIONS:
        logger.warning(
            "bert_config.json says hidden_act %s, which google-research/bert's own code refuses "
            "(Unsupported activation); this package reads it back",
            values["hidden_act"],
        )
    _write_json(folder / "bert_config.json", values)
    names = sorted(weights)
    with tf.device("CPU"):
        tf.raw_ops.SaveV2(
            prefix=str(folder / TF1_PREFIX),
            tensor_names=[f"bert/{name}" for name in names],
            shape_and_slices=[""] * len(names),
            tensors=[tf.constant(weights[name]) for name in names],
        )


def _write_safetensors(config: BertConfig, weights: Weights, folder: Path) -> None:
    from safetensors.numpy import save_file

    if config.num_hidden_groups and not config.projects_embeddings:  # Google's, of equal widths
        config = config.model_copy(update={"always_projects": True})
        unit = np.eye(config.hidden_size, dtype=np.float32)
        weights = {**weights, "embeddings_project/kernel": unit}
        weights["embeddings_project/bias"] = 0 * unit[0]
    _write_json(folder / "config.json", config_values(config, "huggingface"))
    tensors = {
        row.huggingface: np.ascontiguousarray(
            weights[row.canonical].T if row.transposed else weights[row.canonical]
        )
        for row in weight_names.weights(config, pooler=True)
        if row.canonical in weights
    }
    # transformers asks for this mark: it says whose layout the tensors have.
    path = folder / "model.safetensors"
    save_file(tensors, path, metadata={"format": "pt"})
    path.chmod((folder / "config.json").stat().st_mode)  # safetensors writes for its owner alone


# Each writes a whole directory. --overwrite replaces only directories of files named in _WRITTEN.
TARGETS: dict[str, Callable[[BertConfig, Weights, Path], None]] = {
    "tf1": _write_tf1,
    "safetensors": _write_safetensors,
}
_WRITTEN = {
    *(*tokenizer_files.NAMES, "tokenizer_config.json", "config.json", "model.safetensors"),
    *("bert_config.json", f"{TF1_PREFIX}.index", f"{TF1_PREFIX}.data-00000-of-00001"),
    *(MODULES, MAIN_CONFIG, TRANSFORMER_CONFIGS[0], *LINEARS),
}


def _write_json(path: Path, values: dict[str, Any]) -> None:
    path.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")


def check_out(out: Path, read: Iterable[Role], *, overwrite: bool) -> None:
    """Refuses to replace files that are read, and directories that hold more than a conversion.

    Raises OutputError for these, and if `out` cannot be written.
    """
    target = check_folder(out, read, overwrite=overwrite)
    if not target.exists():
        return
    others = sorted(path.name for path in target.iterdir() if not _is_written(path))
    if others:
        raise OutputError(
            f"{out} holds a file that no conversion writes ({others[0]}), so it is not replaced; "
            "pass another path"
        )


def _is_written(path: Path) -> bool:
    """Whether a conversion may have written it, as 1_Pooling and 2_Dense with their files."""
    if path.is_dir():
        return {inner.name for inner in path.iterdir()} <= {"config.json", "model.safetensors"}
    return path.name in _WRITTEN
