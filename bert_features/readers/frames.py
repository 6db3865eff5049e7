"""Tables and columns in memory: pandas, polars, Arrow, Hugging Face datasets, dicts of columns.

They are recognised by their attributes and the names of their modules, so none of these libraries
is imported here. Tables become Arrow by the PyCapsule interface, which all of them have.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bert_features.config.input_format import InputFormat
from bert_features.errors import InputError
from bert_features.readers.arrow_columns import choose_columns, read_batches
from bert_features.readers.fields import FieldError, choose_fields
from bert_features.readers.ids import Ids
from bert_features.readers.input_example import InputExample
from bert_features.readers.source import Origin

_BATCH_ROWS = 4096  # rows that are Python objects at a time


@dataclass(frozen=True)
class _Table(Origin):
    """A table or column in memory; its rows are counted from 0."""

    title: str
    input_format: InputFormat
    cure: str = ""
    first_row = 0

    @property
    def name(self) -> str:
        return self.title


def column_names(texts: Any) -> list[str] | None:
    """The names of the columns of a table, or the keys of a mapping; None for anything else."""
    if _comes_from(texts, "datasets") and type(texts).__name__.startswith("Iterable"):
        raise InputError(
            "texts is an IterableDataset, which is no table; pass its texts one by one, as in "
            "(row['text'] for row in dataset)"
        )
    for library, method in _LAZY.items():
        if _comes_from(texts, library) and hasattr(texts, method):
            raise InputError(
                f"texts is a {type(texts).__name__}, which is not computed yet; pass what its "
                f".{method}() returns"
            )
    if isinstance(texts, Mapping):
        return [str(key) for key in texts]
    names = getattr(texts, "column_names", None)  # Arrow and Hugging Face
    if names is None:
        names = getattr(texts, "columns", None)  # pandas, polars, DuckDB
    if names is None:
        names = getattr(getattr(texts, "schema", None), "names", None)  # a RecordBatchReader
    return None if names is None or callable(names) else [str(name) for name in names]


def refusal(texts: Any) -> InputError:
    """The error for a table without the name of the column to take."""
    kind, names = type(texts).__name__, ", ".join(column_names(texts) or ["none"])
    if isinstance(texts, Mapping) and any(
        column_names(part) is not None for part in texts.values()
    ):
        return InputError(f"texts is a {kind} of {names}; pass one of these parts")
    what = "keys" if isinstance(texts, Mapping) else "columns"
    return InputError(
        f"texts is a {kind} with the {what} {names}; name the column of the texts, as in "
        "text_field='text', or of the lists of words by tokens_field; or pass a list of texts"
    )


def read_table(table: Any, input_format: InputFormat) -> Iterator[InputExample]:
    """One example per row of a table, which has `column_names`; ids are checked.

    Raises:
      InputError: it is no table, a column is missing or of a wrong type, a text is null, or the ids
        are wrong.
    """
    origin = _Table(f"the {type(table).__name__}", input_format)
    try:
        fields = choose_fields(input_format, column_names(table) or [], "column")
    except FieldError as error:
        raise origin.error(error) from error
    arrow = _arrow_table(origin, table, list(dict.fromkeys(fields.names())))
    fields = choose_columns(origin, arrow.schema)
    with contextlib.closing(Ids(origin)) as ids:
        batches = arrow.to_batches(max_chunksize=_BATCH_ROWS)
        yield from read_batches(origin, fields, batches, ids, first_row=0)
        ids.finish()


def column_values(texts: Any) -> Any:
    """The values of a column in memory as Python objects; anything else as it is.

    Raises InputError for an array of several dimensions.
    """
    if getattr(texts, "ndim", 1) != 1:
        raise InputError(f"texts has {texts.ndim} dimensions; allowed: one, a text in each place")
    if _comes_from(texts, "tensorflow") and hasattr(texts, "numpy"):  # strings as bytes
        return [t.decode("utf-8") if isinstance(t, bytes) else t for t in texts.numpy().tolist()]
    for method in ("to_pylist", "to_list", "tolist"):  # Arrow; polars and pandas; NumPy
        if hasattr(texts, method):
            return getattr(texts, method)()
    return texts


def index_ids(texts: Any) -> list[int | str] | None:
    """The index of a pandas Series, which has the ids of its texts; None for anything else.

    Raises InputError if an entry occurs twice, or is neither a string nor an integer.
    """
    if not _comes_from(texts, "pandas") or not hasattr(texts, "index"):
        return None
    cure = "; pass series.reset_index(drop=True) to number the texts"
    origin = _Table("the index of the Series", InputFormat(), cure)
    if not texts.index.is_unique:
        twice = texts.index[texts.index.duplicated()].tolist()[0]
        raise origin.error(f"{twice!r} occurs more than once, but ids must be unique")
    with contextlib.closing(Ids(origin)) as ids:
        return [ids.of(row, value) for row, value in enumerate(texts.index.tolist())]


def _arrow_table(origin: _Table, table: Any, names: list[str]) -> Any:
    """These columns of a table, as a `pyarrow.Table`."""
    import pyarrow as pa

    # Columns that are not needed may hold anything, also what Arrow cannot.
    select = next((f for library, f in _SELECT.items() if _comes_from(table, library)), None)
    if isinstance(table, Mapping):
        select = _select_keys
    try:
        return pa.table(select(table, names) if select else table).select(names)
    except (pa.ArrowException, TypeError, ValueError, KeyError, OverflowError) as error:
        reason = "; ".join(map(str, error.args))
        raise origin.error(f"cannot be read as a table: {reason}; fill what is missing") from error


def _select_keys(table: Mapping[str, Any], names: list[str]) -> dict[str, Any]:
    import pyarrow as pa

    columns = {name: table[name] for name in names}
    for name, values in columns.items():
        if isinstance(values, str):  # Arrow would take its characters for texts
            raise TypeError(f"{name!r} is one string; expected a column of strings")
        if str(getattr(values, "dtype", "")) == "object":  # NaN is null, as in a DataFrame
            columns[name] = pa.array(values, from_pandas=True)
    return columns


# The method that computes a table of a library whose tables may be lazy.
_LAZY = {"polars": "collect", "dask": "compute", "pyspark": "toPandas"}
_SELECT: dict[str, Callable[[Any, list[str]], Any]] = {
    "pandas": lambda table, names: table[names].reset_index(drop=True),
    "polars": lambda table, names: table.select(names),
    # Slicing, unlike the table behind it, keeps the selection and the order of its rows.
    "datasets": lambda table, names: table.select_columns(names).with_format("arrow")[:],
}


def _comes_from(value: Any, library: str) -> bool:
    """Whether its class, or one that it extends, is one of a library's."""
    return any(kind.__module__.partition(".")[0] == library for kind in type(value).__mro__)
