"""Checks of a writer: features that it cannot hold, batches that differ from what was announced."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_features.config.outputs import check_names_differ
from bert_features.errors import BertFeaturesError, OutputError
from bert_features.formats.columns import (
    ID_TYPES,
    LEVELS,
    RESERVED_NAMES,
    TEXT,
    columns_of,
    convert_to_columns,
    levels_of,
)
from bert_features.formats.records import Feature, FeatureBatch

INTEGERS = "integers"


def check_name(name: str, error: type[BertFeaturesError] = OutputError) -> None:
    """Refuses a name that cannot be that of a column; `error` is the class to raise.

    Case does not count: DuckDB and Spark ignore it in names of columns.
    """
    if name.casefold() in RESERVED_NAMES:
        raise error(
            f"output name '{name}' is reserved for a column of the file; choose another "
            f"(reserved: {', '.join(sorted(RESERVED_NAMES - {''}))})"
        )
    if "/" in name or "\0" in name:
        raise error(f"output name {name!r} contains '/' or NUL; choose a name without them")


def check_features(features: Sequence[Feature]) -> None:
    """Refuses names that cannot be columns, and names that are the same but for case."""
    names = [feature.name for feature in features]
    for name in names:
        check_name(name)
    check_names_differ(names, OutputError)


def check_id_type(id_type: str) -> None:
    """Refuses an unknown type of ids."""
    if id_type not in ID_TYPES:
        raise OutputError(f"id_type {id_type!r} is unknown; allowed: {', '.join(ID_TYPES)}")


def check_batch(batch: FeatureBatch, features: Sequence[Feature], id_type: str) -> None:
    """Refuses a batch whose features differ from those announced."""
    levels = levels_of(features)
    for level, layout in LEVELS.items():
        part = getattr(batch, layout.batch)
        if (part is not None) != (level in levels):
            verb = "lacks" if part is None else "holds"
            which = "a" if part is None else "no"
            raise OutputError(
                f"a batch {verb} {layout.batch}, but {which} feature has level '{level}'"
            )
        if part is not None and (len(part.row_splits) == 0 or part.row_splits[0] != 0):
            raise OutputError(f"a batch has {layout.splits} that do not begin at 0")
        if part is not None and np.any(np.diff(part.row_splits) < 0):
            raise OutputError(f"a batch has {layout.splits} that descend")
    if batch.features.keys() != {feature.name for feature in features}:
        raise OutputError(
            f"a batch has the features {', '.join(batch.features) or 'none'}; "
            f"expected {', '.join(feature.name for feature in features)}"
        )
    _check_shapes(batch, features, id_type)


def _check_shapes(batch: FeatureBatch, features: Sequence[Feature], id_type: str) -> None:
    rows = {"sequence": len(batch), "splits": len(batch) + 1}
    for level in levels_of(features):
        rows[level] = int(getattr(batch, LEVELS[level].batch).row_splits[-1])
    columns = convert_to_columns(batch, features)
    for name, column in columns_of(features, id_type).items():
        shape = (rows[column.rows],) if column.width is None else (rows[column.rows], column.width)
        dtype = INTEGERS if column.dtype in ("int32", "int64") else column.dtype
        received = _describe(columns[name], dtype)
        if received != (dtype, shape):
            raise OutputError(
                f"a batch of {len(batch)} examples has {name} of {received[0]} {received[1]}; "
                f"expected {dtype} {shape}"
            )


def check_texts(batch: FeatureBatch, features: Sequence[Feature], id_type: str) -> None:
    """Refuses texts that are not valid Unicode, or hold NUL, which ends a text in some formats."""
    columns = convert_to_columns(batch, features)
    for name, column in columns_of(features, id_type).items():
        if column.dtype != TEXT:
            continue
        joined = "".join(columns[name])
        if "\0" in joined or not _is_unicode(joined):
            bad = next(text for text in columns[name] if "\0" in text or not _is_unicode(text))
            raise OutputError(
                f"{name} holds {bad!r}, which has a NUL or a lone surrogate; this format cannot "
                "keep it: change the text, or write jsonl"
            )


def _is_unicode(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _describe(values: Any, expected: str) -> tuple[str, tuple[int, ...]]:
    """The type of the values of a column, named as in `expected`, and its shape."""
    if isinstance(values, np.ndarray) and values.dtype.kind not in "OU":
        is_integer = expected == INTEGERS and values.dtype.kind in "iu"
        return INTEGERS if is_integer else str(values.dtype), values.shape
    is_text = all(issubclass(kind, str) for kind in set(map(type, values)))
    return TEXT if is_text else "objects", (len(values),)
