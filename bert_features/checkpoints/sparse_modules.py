"""The settings of a folder that sentence-transformers' SparseEncoder wrote.

Read without that package. Beside the files of `sentence_transformers`:
  1_SpladePooling/config.json        how logits become weights
  router_config.json                 modules of queries and of documents, where they differ
  query_0_SparseStaticEmbedding/     a weight for each piece: model.safetensors, or idf.json
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bert_features.checkpoints.weight_readers import open_weights, read_floats
from bert_features.config.json_files import read_json_object
from bert_features.config.poolings import DenseModule, SparsePooling
from bert_features.config.settings import shown
from bert_features.errors import CheckpointError

ROUTER_CONFIG = "router_config.json"
# The weights of a table of queries, in its folder: the first of these that exists.
TABLE_WEIGHTS = ("model.safetensors", "idf.json")
_DOCUMENTS = ["Transformer", "SpladePooling"]
_TABLE = "SparseStaticEmbedding"
_ACTIVATIONS = {"relu": "", "log1p_relu": "_log1p"}
# Settings of the modules and their values that are followed; `...` is any value. Others may be
# null, false or empty.
_FOLLOWED: dict[str, dict[str, Any]] = {
    "SpladePooling": {
        "pooling_strategy": ("max", "sum"),
        "activation_function": tuple(_ACTIVATIONS),
        **dict.fromkeys(("embedding_dimension", "word_embedding_dimension", "chunk_size"), ...),
    },
    _TABLE: {"frozen": ..., "path": ("idf.json",)},
    "Transformer": {
        **dict.fromkeys(("max_seq_length", "do_lower_case", "unpad_inputs"), ...),
        "transformer_task": ("fill-mask",),
        "modality_config": ({"text": {"method": "forward", "method_output_name": "logits"}},),
        "module_output_name": ("token_embeddings",),
    },
}

Modules = Sequence[tuple[str, str]]


def read_routes(path: Path) -> dict[str, list[dict[str, str]]]:
    """The modules of each route of a Router, as `modules.json` lists modules.

    Raises CheckpointError if its file is damaged.
    """
    values = read_json_object(path)
    types, structure = values.get("types"), values.get("structure")
    try:
        return {
            str(route): [{"path": str(folder), "type": str(types[folder])} for folder in folders]  # type: ignore[index]
            for route, folders in structure.items()  # type: ignore[union-attr]
        }
    except (AttributeError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{path} does not fit; allowed: types and structure of modules, as "
            "sentence-transformers writes them"
        ) from error


def move_transformer(path: Path, folder: str) -> None:
    """Changes the file of a Router: what was in `folder` is in the main folder."""
    values = read_json_object(path)
    values["types"] = {"" if name == folder else name: t for name, t in values["types"].items()}
    values["structure"] = {
        route: ["" if name == folder else name for name in names]
        for route, names in values["structure"].items()
    }
    path.write_text(json.dumps(values, indent=4) + "\n", encoding="utf-8")


def read_sparse(
    folder: Path, documents: Modules, queries: Modules, transformer_config: str
) -> tuple[SparsePooling, dict[DenseModule, Path], dict[DenseModule, np.ndarray]] | None:
    """How a folder makes sparse vectors; the file of its table, and the weights in it.

    None if it makes others.

    Args:
      folder: the main folder.
      documents: class and folder of each module.
      queries: the same of queries, where a Router has other modules for them.
      transformer_config: name of the file with the settings of a Transformer.

    Raises:
      CheckpointError: its vectors are sparse, and cannot be computed here.
    """
    kinds = [kind for kind, _ in documents]
    main = folder / "config_sentence_transformers.json"
    settings = read_json_object(main) if main.is_file() else {}
    if settings.get("model_type") != "SparseEncoder" and "SpladePooling" not in kinds:
        return None
    _check_modules(folder, documents, queries, transformer_config)
    values = read_json_object(folder / documents[1][1] / "config.json")
    activation = _ACTIVATIONS[values.get("activation_function") or "relu"]
    pooling = f"{values.get('pooling_strategy') or 'max'}{activation}"
    top_k = settings.get("max_active_dims")
    if top_k is not None and (type(top_k) is not int or top_k < 1):
        raise CheckpointError(f"{main}: max_active_dims is {shown(top_k)}; allowed: an integer")
    if not queries or queries == documents:
        return SparsePooling(pooling, top_k), {}, {}
    file = _table_file(folder, queries[0][1])
    pieces = _read_table(file, folder / documents[0][1])
    table = DenseModule(queries[0][1], len(pieces), 1, "linear", has_bias=False)
    return SparsePooling(pooling, top_k, table), {table: file}, {table: pieces}


def _check_modules(
    folder: Path, documents: Modules, queries: Modules, transformer_config: str
) -> None:
    """Refuses modules that cannot be followed; raises CheckpointError."""
    kinds, of_queries = ([kind for kind, _ in modules] for modules in (documents, queries))
    if kinds != _DOCUMENTS or (queries != documents and of_queries not in ([], [_TABLE])):
        found = ", ".join(kinds) + (f" and of queries {', '.join(of_queries)}" if queries else "")
        raise CheckpointError(
            f"its modules are {found}, not {', '.join(_DOCUMENTS)} and of queries the same or "
            f"{_TABLE}"
        )
    for kind, path in (*documents, *queries):
        name = transformer_config if kind == "Transformer" else "config.json"
        _check_followed(folder / path / name, _FOLLOWED[kind])


def _read_table(file: Path, transformer: Path) -> np.ndarray:
    """The weight of each piece of the vocabulary, float32 [V]; raises CheckpointError.

    `transformer` is the folder whose tokenizer.json has the ids of the pieces that an idf.json
    names.
    """
    if file.suffix == ".safetensors":
        reader = open_weights(file, "safetensors")
        shapes = dict(reader.shapes())
        if [*shapes] != ["weight"] or len(shapes["weight"]) != 1:
            raise CheckpointError(
                f"{file} holds {shapes}; allowed: weight, a number for each piece"
            )
        return read_floats(reader, "weight", file)
    tokenizer, weights = read_json_object(transformer / "tokenizer.json"), read_json_object(file)
    try:
        ids = dict(tokenizer["model"]["vocab"])
        ids |= {piece["content"]: piece["id"] for piece in tokenizer.get("added_tokens", ())}
        table = np.zeros(len(ids), np.float32)
        table[[ids[piece] for piece in weights]] = [*weights.values()]
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{file} does not fit {transformer / 'tokenizer.json'}: a piece is unknown, or its "
            f"weight is no number ({error})"
        ) from error
    return table


def _table_file(folder: Path, inner: str) -> Path:
    paths = [folder / inner / name for name in TABLE_WEIGHTS] + [folder / TABLE_WEIGHTS[1]]
    found = next((path for path in paths if path.is_file()), None)
    if found is None:
        raise CheckpointError(f"there is neither {inner}/{TABLE_WEIGHTS[0]} nor {TABLE_WEIGHTS[1]}")
    return found


def _check_followed(path: Path, followed: Mapping[str, Any]) -> None:
    for key, value in (read_json_object(path) if path.is_file() else {}).items():
        allowed = followed.get(key, ())
        if value and allowed is not ... and value not in allowed:
            names = ", ".join(map(shown, [*allowed, None]))
            raise CheckpointError(f"{path}: {key} is {shown(value)}; allowed: {names}")
