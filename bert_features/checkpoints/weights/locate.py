"""Where the weights of a checkpoint are: in a directory, at a prefix or in a file."""

import logging
import re
from collections.abc import Sequence
from pathlib import Path

from bert_features.checkpoints.weights import other_files
from bert_features.checkpoints.weights.file_names import (
    INDEX_SUFFIX,
    MODULES,
    PICKLED_INDEX,
    SAVED_MODEL,
    STATE_FILE,
    VARIABLES,
    is_weights_file,
)
from bert_features.checkpoints.weights.weight_readers import (
    OBJECT_GRAPH,
    WeightFiles,
    index_names,
)
from bert_features.errors import CheckpointError

logger = logging.getLogger("bert_features")

_PICKLE = "pytorch_model.bin"

_TF_PART = re.compile(r"\.(index|meta|data-\d{5}-of-\d{5})$")
_SHARD = re.compile(r"-\d{5}-of-\d{5}\.safetensors$")
_TF_LATEST = re.compile(r'^model_checkpoint_path: "(.+)"$', re.MULTILINE)


def locate(path: Path, name: str) -> WeightFiles:
    """The weights in a directory, at the prefix of a TensorFlow checkpoint or in a file.

    Raises CheckpointError if there are none or several, or they are of a kind that is not read; it
    has the `name` that the user asked for.
    """
    if path.is_dir():
        return _locate_in_folder(path, name)
    if path.name == SAVED_MODEL and path.is_file():
        return _locate_in_folder(path.parent, name)
    if is_weights_file(path.name) and path.is_file():
        return WeightFiles(path, "safetensors")
    prefix = path.with_name(prefix_of(path.name))
    if _index_of(prefix).is_file():
        return _weights_at(prefix)
    raise other_files.refusal([path.name], path.parent) or CheckpointError(
        f"{path} is not a checkpoint; allowed: a .safetensors file, pytorch_model.bin, the "
        "prefix of a TensorFlow checkpoint (bert_model.ckpt), a directory, or the name 'minilm'"
    )


def prefix_of(name: str) -> str:
    """The prefix of a TensorFlow checkpoint from the name of any of its files."""
    return _TF_PART.sub("", name)


def _locate_in_folder(folder: Path, name: str) -> WeightFiles:
    """The weights in a directory: a file, the index of shards, or a prefix.

    Safetensors go before TensorFlow's, and these before a pickle.
    """
    names = sorted(path.name for path in folder.iterdir() if path.is_file())
    if (folder / f"{VARIABLES}.index").is_file():
        names.append(f"{VARIABLES}.index")
    modules = (folder / MODULES).read_bytes() if MODULES in names else b""
    if b".StaticEmbedding" in modules and b".Transformer" not in modules:
        raise CheckpointError(f"{name} is a StaticEmbedding, which has no encoder; pass a BERT")
    chosen = _choose(folder, [each for each in names if not other_files.is_adapter(each)], name)
    if chosen is None:
        raise other_files.refusal([*names], name.rstrip("/")) or CheckpointError(
            f"{name} holds no checkpoint: looked for *.safetensors, for a TensorFlow checkpoint "
            f"(bert_model.ckpt.index and its data), for a SavedModel ({SAVED_MODEL}) and for "
            f"{_PICKLE}"
        )
    if adapters := [file for file in names if other_files.is_adapter(file)]:
        logger.warning("%s: the LoRA adapter %s is not applied", name, adapters[-1])
    return _weights_at(folder / chosen)


def _choose(folder: Path, names: Sequence[str], name: str) -> str | None:
    """The name of the weights among files that are no adapter; None if there are none.

    Raises CheckpointError if there are several, or a part of them is missing.
    """
    tensors, indexed, indices = (
        [file for file in names if file.endswith(suffix)]
        for suffix in (".safetensors", ".index", INDEX_SUFFIX)
    )
    prefixes = [file.removesuffix(".index") for file in indexed]
    latest = None
    if STATE_FILE in names:  # with the absolute path of the machine that trained it
        state = (folder / STATE_FILE).read_bytes().decode("utf-8", "replace")
        latest = Path(found[1]).name if (found := _TF_LATEST.search(state)) else None
    preferred = ("model.safetensors", f"model{INDEX_SUFFIX}", "bert_model.ckpt", latest)
    if chosen := _first(preferred, [*tensors, *prefixes, *indices]):
        return chosen
    if SAVED_MODEL in names:
        if VARIABLES not in prefixes:
            raise CheckpointError(
                f"the SavedModel {name} has no {VARIABLES}.index, so it holds no weights; "
                "fetch that too"
            )
        return VARIABLES
    if len(indices) == 1 and not prefixes:
        return indices[0]
    if tensors and all(_SHARD.search(tensor) for tensor in tensors):
        raise CheckpointError(
            f"{name} holds shards ({tensors[0]}, …) without their index, model{INDEX_SUFFIX}; "
            "fetch that too"
        )
    several = [*tensors, *prefixes]
    if len(several) == 1:
        return several[0]
    if several:
        raise CheckpointError(
            f"{name} holds several checkpoints; pass the path of one: {', '.join(several)}"
        )
    return _first((_PICKLE, f"pytorch_model{PICKLED_INDEX}"), names)


def _first(preferred: Sequence[str | None], names: Sequence[str]) -> str | None:
    return next((name for name in preferred if name in names), None)


def _weights_at(path: Path) -> WeightFiles:
    if is_weights_file(path.name) and path.is_file():
        return WeightFiles(path, "safetensors")
    return WeightFiles(path, "tf2" if index_names(_index_of(path), OBJECT_GRAPH) else "tf1")


def _index_of(prefix: Path) -> Path:
    return prefix.with_name(f"{prefix.name}.index")
