"""Checkpoints on this machine: a folder, a file, or the prefix of a TensorFlow checkpoint."""

import contextlib
from pathlib import Path

from bert_features import files
from bert_features.checkpoints.sources.minilm import MINILM
from bert_features.checkpoints.sources.published import ALIASES, PUBLISHED
from bert_features.checkpoints.weights.locate import prefix_of
from bert_features.config.settings import did_you_mean
from bert_features.errors import CheckpointError, printable


def is_path(name: str) -> bool:
    """Whether a name leads to something; any file of a TensorFlow checkpoint names all of it."""
    path = files.path_as_given(name)
    return files.is_there(name) or files.is_there(f"{path.parent / prefix_of(path.name)}.index")


def fetch(name: str) -> Path:
    """The local path that a name is; raises CheckpointError, with similar ones, if it is none.

    Raises OSError if it cannot be looked at.
    """
    path = files.local_path(name)
    if is_path(name):
        return path
    with contextlib.suppress(FileNotFoundError, NotADirectoryError, ValueError):
        path.stat()
    raise CheckpointError(
        f"there is no checkpoint {name!r}: no directory, no .safetensors file and no "
        f"{printable(prefix_of(Path(name).name))}.index at that path; {similar(name)}pass one of "
        f"these, the name {MINILM!r}, a published name such as bert-base-uncased, a TF-Hub "
        "handle, or a model of the Hugging Face Hub as 'hf:org/name'"
    )


def similar(name: str) -> str:
    """`did you mean 'a' or 'b'? `, of published names and neighbours; empty if none is similar."""
    path = files.path_as_given(name)
    names = {}
    if path.name == name:  # else it is a path
        names = {one.lower(): repr(one) for one in (MINILM, *PUBLISHED, *ALIASES)}
    with contextlib.suppress(OSError, ValueError):
        for entry in path.parent.iterdir():
            if entry.is_dir() or entry.suffix in (".safetensors", ".index"):
                neighbour = prefix_of(entry.name)
                names[neighbour.lower()] = repr(str(path.with_name(neighbour)))
    return did_you_mean(path.name.lower(), names, likeness=0.7)
