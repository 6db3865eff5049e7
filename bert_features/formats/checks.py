"""Checks of a writer: features that it cannot hold, batches that differ from what was announced."""

from collections.abc import Sequence

import numpy as np

from bert_features.config.outputs import check_names_differ
from bert_features.errors import BertFeaturesError, OutputError
from bert_features.formats.columns import (
    ID_TYPES,
    RESERVED_NAMES,
    SPLITS,
    columns_of,
    convert_to_columns,
    levels_of,
)
from bert_features.formats.records import TEXT, Feature, FeatureBatch

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
    """Refuses a batch that lacks columns of a file, or has them in another shape or type."""
    columns = convert_to_columns(batch)
    expected = columns_of(features, id_type)
    if missing := [name for name in expected if name not in columns]:
        raise OutputError(
            f"a batch has the columns {', '.join(columns)}; it lacks {', '.join(missing)}"
        )
    rows = {"sequence": len(batch), "splits": len(batch) + 1}
    for level in levels_of(features):
        splits = columns[SPLITS[level]]
        if len(splits) == 0 or splits[0] != 0 or np.any(np.diff(splits) < 0):
            raise OutputError(f"a batch has {SPLITS[level]} that descend or do not begin at 0")
        rows[level] = int(splits[-1])
    for name, column in expected.items():
        count = rows[column.rows]
        shape = (count,) if column.width is None else (count, column.width)
        dtype = INTEGERS if column.dtype in ("int32", "int64") else column.dtype
        received = _describe(columns[name], dtype)
        if received != (dtype, shape):
            raise OutputError(
                f"a batch of {len(batch)} examples has {name} of {received[0]} {received[1]}; "
                f"expected {dtype} {shape}"
            )


def check_texts(batch: FeatureBatch, features: Sequence[Feature], id_type: str) -> None:
    """Refuses texts that are not valid Unicode, or hold NUL, which ends a text in some formats."""
    columns = convert_to_columns(batch)
    for name, column in columns_of(features, id_type).items():
        if column.dtype != TEXT:
            continue
        joined = "".join(columns[name].tolist())
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


def _describe(values: np.ndarray, expected: str) -> tuple[str, tuple[int, ...]]:
    """The type of the values of a column, named as in `expected`, and its shape."""
    if values.dtype.kind not in "OU":
        is_integer = expected == INTEGERS and values.dtype.kind in "iu"
        return INTEGERS if is_integer else str(values.dtype), values.shape
    is_text = all(issubclass(kind, str) for kind in set(map(type, values)))
    return TEXT if is_text else "objects", values.shape
