"""The modules of a folder of sentence-transformers: their classes and folders, and their settings.

What reads such folders shares this: `sentence_transformers`, `sparse`, `multi_vector`.
"""

import posixpath
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bert_features.checkpoints.weights.file_names import (
    COLBERT_LINEAR,
    DENSE_WEIGHTS,
    SPARSE_LINEAR,
    TRANSFORMER_CONFIGS,
)
from bert_features.checkpoints.weights.weight_readers import WeightFiles
from bert_features.config.bert_config import HiddenAct
from bert_features.config.json_files import read_json_object
from bert_features.config.poolings import DenseModule
from bert_features.config.settings import shown
from bert_features.errors import CheckpointError

# Classes of the modules; BERT is the Transformer of the first versions.
_CLASSES = {name: name for name in ("Transformer", "Pooling", "Dense", "Normalize")}
_CLASSES |= {name: name for name in ("Router", "SpladePooling", "SparseStaticEmbedding")}
_CLASSES |= dict.fromkeys(("BERT", "MLMTransformer"), "Transformer")
# torch's classes, which a Dense makes without arguments.
_TANH = "torch.nn.modules.activation.Tanh"  # the default
ACTIVATIONS: dict[str, HiddenAct] = {
    _TANH: "tanh",
    "torch.nn.modules.activation.ReLU": "relu",
    "torch.nn.modules.activation.GELU": "gelu_erf",
    "torch.nn.modules.linear.Identity": "linear",
}
# Settings of a Transformer or a Dense and their values that are followed; `...` is any value, as it
# is read elsewhere or has no effect on the numbers.
COMMON: dict[str, Any] = {
    **dict.fromkeys(("max_seq_length", "unpad_inputs"), ...),
    **dict.fromkeys(("in_features", "out_features", "bias", "use_residual"), ...),
    "activation_function": tuple(ACTIVATIONS),
    "transformer_task": ("feature-extraction",),
    "modality_config": (
        {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
    ),
}
# A folder below the main one: no "..", nothing absolute, nothing hidden.
_PATH = re.compile(r"(?:[\w-][\w.-]{0,99}(?:/[\w-][\w.-]{0,99}){0,3})?", re.ASCII)


def read_modules(modules: object, path: str | Path) -> list[tuple[str, str]]:
    """Class and folder of each module; a class that does not exist here has its full name."""
    if not isinstance(modules, list) or not modules or len(modules) > 100:
        raise wrong_value(
            path, "", modules, "a list of modules, as sentence-transformers writes it"
        )
    return [_module(path, module) for module in modules]


def _module(path: str | Path, module: object) -> tuple[str, str]:
    name, folder = None, None
    if isinstance(module, dict):
        name, folder = module.get("type"), module.get("path")
    if not isinstance(name, str) or not isinstance(folder, str):
        raise wrong_value(path, "a module", module, "an object with a type and a path")
    below = posixpath.normpath(folder)  # `1_Pooling` for `./1_Pooling/`
    below = "" if below == "." else below
    # normpath removes a ".." with the folder before it
    if ".." in folder.split("/") or not _PATH.fullmatch(below):
        raise wrong_value(path, "path", folder, "a folder below this one, such as 1_Pooling")
    is_theirs = name.startswith("sentence_transformers.")
    kind = _CLASSES.get(name.rpartition(".")[2]) if is_theirs else None
    return kind or shown(name).strip("'\""), below


def module_problems(
    folder: Path, kind: str, path: str, allowed: Mapping[str, Any]
) -> Iterator[str]:
    """Why a module is not followed: what is missing, and settings whose value is not in `allowed`.

    Null, false and the like are followed for every setting.
    """
    folder /= path
    file = transformer_config(folder) if kind == "Transformer" else folder / "config.json"
    needed = {"Pooling": [file], "Dense": [file, dense_weights(folder)]}.get(kind, [])
    yield from (f"there is no {path}/{each.name}" for each in needed if not each.is_file())
    # Nothing else is read of a Normalize, whose folder may be the folder of the Transformer.
    default = ... if kind == "Normalize" else ()
    for key, value in (read_json_object(file) if file.is_file() else {}).items():
        followed = allowed.get(f"{kind}.{key}", allowed.get(key, default))
        if value and followed is not ... and value not in followed:
            yield str(wrong_value(file, key, value, ", ".join(map(shown, [*followed, None]))))


def transformer_config(folder: Path) -> Path:
    """The file of a Transformer: the first that has settings; else the one of today's name."""
    paths = [folder / name for name in TRANSFORMER_CONFIGS]
    empty = len("{}\r\n")
    return next((p for p in paths if p.is_file() and p.stat().st_size > empty), paths[0])


def dense_weights(folder: Path) -> Path:
    """The file of the weights of a Dense; the first of the names if there is none."""
    paths = [folder / name for name in DENSE_WEIGHTS]
    return next((path for path in paths if path.is_file()), paths[0])


def read_dense_module(folder: Path, inner: str) -> DenseModule:
    """The Dense in a folder below the main one; it is no larger than its weights."""
    path, weights = folder / inner / "config.json", dense_weights(folder / inner)
    values = read_json_object(path)
    inputs, outputs = (count_of(path, values, key) for key in ("in_features", "out_features"))
    if inputs * outputs > weights.stat().st_size:  # a value takes at least a byte
        raise wrong_value(path, "in_features", inputs, f"no more values than {weights.name} holds")
    activation = ACTIVATIONS[values.get("activation_function") or _TANH]
    has_bias = flag_of(path, values, "bias", default=True)
    has_residual = flag_of(path, values, "use_residual", default=False)
    return DenseModule(inner, inputs, outputs, activation, has_bias, has_residual)


def read_linears(weights: WeightFiles, width: int) -> dict[DenseModule, Path]:
    """The linear layers of bge-m3 beside weights of an encoder of this width, with their files."""
    modules = (
        DenseModule(SPARSE_LINEAR, width, 1, "relu", has_bias=True),
        DenseModule(COLBERT_LINEAR, width, width, "linear", has_bias=True),
    )
    return {m: file for m in modules if (file := weights.beside([m.path])) is not None}


def flag_of(path: Path, values: Mapping[str, Any], key: str, *, default: bool) -> bool:
    """A switch of a file; raises CheckpointError for another value."""
    value = values.get(key, default)
    if not isinstance(value, bool):
        raise wrong_value(path, key, value, "true or false")
    return value


def count_of(
    path: Path, values: Mapping[str, Any], key: str, of: str = "values", least: int = 1
) -> int:
    """A number of a file; raises CheckpointError for another value."""
    value = values.get(key)
    if type(value) is not int or value < least:
        raise wrong_value(path, key, value, f"a number of {of}, at least {least}")
    return value


def wrong_value(path: str | Path, key: str, received: object, allowed: str) -> CheckpointError:
    """The error for a value of a file."""
    where = f"{path}: {key}" if key else str(path)
    return CheckpointError(f"{where} is {shown(received)}; allowed: {allowed}")
