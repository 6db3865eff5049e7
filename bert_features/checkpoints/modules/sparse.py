"""The settings of a folder that sentence-transformers' SparseEncoder wrote.

Read without that package. Beside the files of `sentence_transformers`:
  1_SpladePooling/config.json        how logits become weights
  router_config.json                 modules of queries and of documents, where they differ
  query_0_SparseStaticEmbedding/     a weight for each piece: model.safetensors, or idf.json
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bert_features.checkpoints.modules.settings import (
    COMMON,
    count_of,
    module_problems,
    read_modules,
)
from bert_features.checkpoints.weights.file_names import MAIN_CONFIG, ROUTER_CONFIG, TABLE_WEIGHTS
from bert_features.checkpoints.weights.weight_readers import open_weights, read_floats
from bert_features.config.json_files import read_json_object
from bert_features.config.poolings import DenseModule, SparsePooling
from bert_features.errors import CheckpointError

_DOCUMENTS = ["Transformer", "SpladePooling"]
_TABLE = "SparseStaticEmbedding"
_ACTIVATIONS = {"relu": "", "log1p_relu": "_log1p"}
# Settings of modules and the values that are followed, see `module_problems`.
_FOLLOWED: dict[str, Any] = {
    **COMMON,
    **dict.fromkeys(("do_lower_case", "frozen", "chunk_size"), ...),
    **dict.fromkeys(("embedding_dimension", "word_embedding_dimension"), ...),
    "pooling_strategy": ("max", "sum"),
    "activation_function": tuple(_ACTIVATIONS),
    "path": ("idf.json",),
    "transformer_task": ("fill-mask",),
    "modality_config": ({"text": {"method": "forward", "method_output_name": "logits"}},),
    "module_output_name": ("token_embeddings",),
}

Modules = Sequence[tuple[str, str]]


def read_routes(
    folder: Path, modules: list[tuple[str, str]]
) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """The modules of documents, and where a Router has others for queries, these.

    Raises CheckpointError if its file is damaged.
    """
    file = folder / ROUTER_CONFIG
    if [kind for kind, _ in modules] != ["Router"] or not file.is_file():
        return modules, []
    values = read_json_object(file)
    types, structure = values.get("types"), values.get("structure")
    try:
        listed = {
            route: [{"path": str(each), "type": str(types[each])} for each in folders]  # type: ignore[index]
            for route, folders in structure.items()  # type: ignore[union-attr]
        }
    except (AttributeError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{file} does not fit; allowed: types and structure of modules, as "
            "sentence-transformers writes them"
        ) from error
    routes = {name: read_modules(each, file) for name, each in listed.items()}
    return routes.get("document", modules), routes.get("query", [])


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
    folder: Path, documents: Modules, queries: Modules
) -> tuple[SparsePooling, dict[DenseModule, Path], dict[DenseModule, np.ndarray]] | None:
    """How a folder makes sparse vectors; the file of its table, and the weights in it.

    None if it makes others.

    Args:
      folder: the main folder.
      documents: class and folder of each module.
      queries: the same of queries, where a Router has other modules for them.

    Raises:
      CheckpointError: its vectors are sparse, and cannot be computed here.
    """
    kinds = [kind for kind, _ in documents]
    main = folder / MAIN_CONFIG
    settings = read_json_object(main) if main.is_file() else {}
    if settings.get("model_type") != "SparseEncoder" and "SpladePooling" not in kinds:
        return None
    _check_modules(folder, documents, queries)
    values = read_json_object(folder / documents[1][1] / "config.json")
    activation = _ACTIVATIONS[values.get("activation_function") or "relu"]
    pooling = f"{values.get('pooling_strategy') or 'max'}{activation}"
    top_k = settings.get("max_active_dims")
    top_k = None if top_k is None else count_of(main, settings, "max_active_dims", "terms")
    if not queries or queries == documents:
        return SparsePooling(pooling, top_k), {}, {}
    file = _table_file(folder, queries[0][1])
    pieces = _read_table(file, folder / documents[0][1])
    table = DenseModule(queries[0][1], len(pieces), 1, "linear", has_bias=False)
    return SparsePooling(pooling, top_k, table), {table: file}, {table: pieces}


def _check_modules(folder: Path, documents: Modules, queries: Modules) -> None:
    """Refuses modules that cannot be followed; raises CheckpointError."""
    kinds, of_queries = ([kind for kind, _ in modules] for modules in (documents, queries))
    if kinds != _DOCUMENTS or (queries != documents and of_queries not in ([], [_TABLE])):
        listed = ", ".join(kinds) + (f" and of queries {', '.join(of_queries)}" if queries else "")
        raise CheckpointError(
            f"its modules are {listed}, not {', '.join(_DOCUMENTS)} and of queries the same or "
            f"{_TABLE}"
        )
    for kind, path in (*documents, *queries):
        if reason := next(module_problems(folder, kind, path, _FOLLOWED), None):
            raise CheckpointError(reason)


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
    file = next((path for path in paths if path.is_file()), None)
    if file is None:
        raise CheckpointError(f"there is neither {inner}/{TABLE_WEIGHTS[0]} nor {TABLE_WEIGHTS[1]}")
    return file
