"""Checks of what a file is to hold: names of features, and texts that some formats cannot keep."""

from collections.abc import Mapping

import numpy as np

from bert_features.config.levels import TEXT
from bert_features.errors import BertFeaturesError, OutputError
from bert_features.formats.columns import RESERVED_NAMES, Column


def check_name(name: str, error: type[BertFeaturesError] = OutputError) -> None:
    """Refuses a name that no column can have; `error` is the class to raise.

    Case does not count: DuckDB and Spark ignore it in names of columns.
    """
    if name.casefold() in RESERVED_NAMES:
        raise error(
            f"output name '{name}' is reserved for a column of the file; choose another "
            f"(reserved: {', '.join(sorted(RESERVED_NAMES - {''}))})"
        )
    if "/" in name or "\0" in name:
        raise error(f"output name {name!r} contains '/' or NUL; choose a name without them")


def check_texts(columns: Mapping[str, np.ndarray], expected: Mapping[str, Column]) -> None:
    """Refuses texts that are not valid Unicode, or hold NUL, which ends a text in some formats."""
    for name, column in expected.items():
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
