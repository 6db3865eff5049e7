"""Where the weights of a checkpoint lie: what a directory, a prefix or a file holds."""

import re
from collections.abc import Sequence
from pathlib import Path

from bert_features.checkpoints.weight_names import Kind
from bert_features.checkpoints.weight_readers import INDEX_SUFFIX, is_index, is_object_based
from bert_features.errors import CheckpointError

PICKLES = (".bin", ".pt", ".pth", ".pkl", ".pickle")
SAVED_MODEL = "saved_model.pb"

_TF_PART = re.compile(r"\.(index|meta|data-\d{5}-of-\d{5})$")
_SHARD = re.compile(r"-\d{5}-of-\d{5}\.safetensors$")
# The line of TensorFlow's `checkpoint` state file that names the latest one.
_TF_LATEST = re.compile(r'^model_checkpoint_path: "(.+)"$', re.MULTILINE)


def locate(path: Path, name: str) -> tuple[Path, Kind]:
    """The weights that a directory, a prefix or a file names.

    Args:
      path: of a directory, of a file, or the prefix of a TensorFlow checkpoint.
      name: what the user asked for, for the messages.

    Returns:
      The .safetensors file, the index of its shards or the prefix of a TensorFlow checkpoint; and
      how the weights are stored.

    Raises:
      CheckpointError: there are none, several, or only pickles.
    """
    if path.is_dir():
        return _locate_in_folder(path, name)
    if path.name == SAVED_MODEL and path.is_file():
        return _in_saved_model(path.parent)
    if (path.suffix == ".safetensors" or is_index(path)) and path.is_file():
        return path, "safetensors"
    prefix = path.with_name(_TF_PART.sub("", path.name))
    if _index_of(prefix).is_file():
        return _tensorflow(prefix)
    if _is_pickle(path):
        raise CheckpointError(_pickle_message(path))
    if path.is_file():
        raise CheckpointError(
            f"{path} is no checkpoint this can read; allowed: a .safetensors file, the prefix of "
            "a TensorFlow checkpoint (bert_model.ckpt), a directory, or the name 'minilm'"
        )
    raise CheckpointError(
        f"there is no checkpoint {name!r}: no directory, no .safetensors file and no "
        f"{prefix.name}.index of that path; pass one of these, the name 'minilm', a published "
        "name (bert-features download lists them), or a model of the Hugging Face Hub as "
        "'hf:org/name'"
    )


def root_of(weights_path: Path) -> Path:
    """The directory that a user takes for the checkpoint: of a SavedModel not its `variables`."""
    folder = weights_path.parent
    return folder.parent if is_saved_model(weights_path) else folder


def is_saved_model(weights_path: Path) -> bool:
    """Whether weights are the variables of a SavedModel."""
    folder = weights_path.parent
    return folder.name == "variables" and (folder.parent / SAVED_MODEL).is_file()


def folders_of(weights_path: Path) -> list[Path]:
    """Where the config and the vocabulary of weights may lie: beside them, or in the assets."""
    root = root_of(weights_path)
    return [root, root / "assets"] if is_saved_model(weights_path) else [root]


def beside(folders: Sequence[Path], wanted: str | Path | None, names: Sequence[str]) -> Path | None:
    """The file that was asked for, or else the first of these names in the first of the folders."""
    if wanted is not None:
        return Path(wanted)
    paths = (folder / name for folder in folders for name in names)
    return next((path for path in paths if path.is_file()), None)


def _locate_in_folder(folder: Path, name: str) -> tuple[Path, Kind]:
    files = sorted(path for path in folder.iterdir() if path.is_file())
    tensors = [path for path in files if path.suffix == ".safetensors"]
    prefixes = [path.with_suffix("") for path in files if path.suffix == ".index"]
    indices = [path for path in files if is_index(path)]
    for preferred in (
        folder / "model.safetensors",
        folder / f"model{INDEX_SUFFIX}",
        folder / "bert_model.ckpt",
        _latest_tensorflow(folder),
    ):
        if preferred in tensors or preferred in indices:
            return preferred, "safetensors"
        if preferred in prefixes:
            return _tensorflow(preferred)
    if folder / SAVED_MODEL in files:
        return _in_saved_model(folder)
    if len(indices) == 1 and not prefixes:
        return indices[0], "safetensors"
    if tensors and all(_SHARD.search(path.name) for path in tensors):
        raise CheckpointError(
            f"{name} holds shards ({tensors[0].name}, …) without their index, "
            f"model{INDEX_SUFFIX}; fetch that too"
        )
    if len(tensors) + len(prefixes) == 1:
        return (tensors[0], "safetensors") if tensors else _tensorflow(prefixes[0])
    if tensors or prefixes:
        found = ", ".join(path.name for path in [*tensors, *prefixes])
        raise CheckpointError(f"{name} holds several checkpoints; pass the path of one: {found}")
    for path in files:
        if _is_pickle(path):
            raise CheckpointError(_pickle_message(path))
    raise CheckpointError(
        f"{name} holds no checkpoint: looked for *.safetensors, for a TensorFlow checkpoint "
        f"(bert_model.ckpt.index and its data) and for a SavedModel ({SAVED_MODEL})"
    )


def _tensorflow(prefix: Path) -> tuple[Path, Kind]:
    return prefix, "tf2" if is_object_based(_index_of(prefix)) else "tf1"


def _in_saved_model(folder: Path) -> tuple[Path, Kind]:
    prefix = folder / "variables" / "variables"
    if not _index_of(prefix).is_file():
        raise CheckpointError(
            f"the SavedModel {folder} has no variables/variables.index, so it holds no weights"
        )
    return _tensorflow(prefix)


def _index_of(prefix: Path) -> Path:
    return prefix.with_name(f"{prefix.name}.index")


def _latest_tensorflow(folder: Path) -> Path | None:
    """The prefix that TensorFlow's `checkpoint` state file calls the latest, None without one."""
    state = folder / "checkpoint"
    if not state.is_file():
        return None
    latest = _TF_LATEST.search(state.read_text(encoding="utf-8", errors="replace"))
    # By its last part alone: the file keeps the absolute path of the machine that trained it.
    return folder / Path(latest[1]).name if latest else None


def _is_pickle(path: Path) -> bool:
    """Whether a file is a pickle: by its name, or by its first bytes where it is a `.ckpt`."""
    if path.suffix in PICKLES:
        return path.is_file()
    if path.suffix != ".ckpt" or not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(4).startswith((b"\x80", b"PK\x03\x04"))


def _pickle_message(path: Path) -> str:
    return (
        f"{path} is a pickle, which can run any code when it is loaded, and is not read here. "
        "Where you trust it, convert it once with transformers: "
        "AutoModel.from_pretrained(DIR).save_pretrained(OUT, safe_serialization=True)"
    )
