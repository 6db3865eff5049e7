"""Records by number and by id, and their conversions: what a file and each slice of it can do."""

import dataclasses
import json
import operator
from collections.abc import Iterator
from typing import Any, SupportsIndex, overload

import numpy as np

from bert_features.config.kinds import KINDS
from bert_features.config.levels import LEVELS, TEXT
from bert_features.config.recipe import Recipe
from bert_features.errors import MissingExtraError, OutputError
from bert_features.formats.arrow_layout import METADATA_KEY, convert_to_arrow, schema_of
from bert_features.formats.columns import levels_of, object_array, unit_columns, value_dtype
from bert_features.formats.records import SPANS, Feature, FeatureRecord
from bert_features.formats.source import RecordSource
from bert_features.formats.sparse import csr_blocks, pieces_of, to_csr
from bert_features.machine.quiet_tensorflow import import_tensorflow


class FeatureView:
    """Consecutive records of a features file; `file[a:b]` makes one. Each is read when asked for.

    `view[i]` is a record. `view[a:b]` is a view, which reads nothing yet. Iterating yields the
    records in order, any number of times.

    Attributes:
      metadata: the metadata of the file.
      features: the features of each record, in order.
    """

    metadata: dict[str, Any]

    def __init__(self, source: RecordSource, records: range) -> None:
        self._held = source, records
        self.metadata = source.metadata

    @property
    def _source(self) -> RecordSource:
        """The file that holds the records."""
        return self._held[0]

    @property
    def _range(self) -> range:
        """The numbers of the records in the file."""
        return self._held[1]

    @property
    def features(self) -> tuple[Feature, ...]:
        """The features of each record, in order."""
        return self._source.features

    @property
    def layers(self) -> list[int | str]:
        """Which layer each of `layer_output_0`, … is, or another feature of a single layer.

        As the run was asked for them: numbers of blocks, and `embeddings`.
        """
        chosen = {name for name, kind in KINDS.items() if "layers" in kind.settings}
        return [f.layers[0] for f in self.features if f.kind in chosen and len(f.layers) == 1]

    @property
    def recipe(self) -> Recipe:
        """How the vectors were made, see `bert_features.compare`.

        Raises OutputError if the metadata does not say how they were made.
        """
        return self._source.recipe

    def __repr__(self) -> str:
        features = ", ".join(feature.describe() for feature in self.features)
        records = f"{self._range.start}:{self._range.stop}"
        return f"<records {records} of {self._source.path}: {features}>"

    @property
    def ids(self) -> np.ndarray:
        """The id of each record: int64 [N], or str (dtype object) [N]; no feature is read."""
        return self._source._ids[self._range.start : self._range.stop]

    def __len__(self) -> int:
        return len(self._range)

    def __iter__(self) -> Iterator[FeatureRecord]:
        return self._source.guarded(self._source._records(self._range))

    @overload
    def __getitem__(self, index: SupportsIndex) -> FeatureRecord: ...

    @overload
    def __getitem__(self, index: slice) -> "FeatureView": ...

    def __getitem__(self, index: SupportsIndex | slice) -> "FeatureRecord | FeatureView":
        if isinstance(index, slice):
            if index.step not in (None, 1):
                raise OutputError(
                    f"a slice of records has step 1. Received: {index.step}; take the records "
                    "you want one by one"
                )
            part = self._range[index]
            return FeatureView(self._source, part or range(part.start, part.start))
        try:
            number = operator.index(index)
        except TypeError:
            raise TypeError(
                f"records are taken by position or by slice. Received: {index!r}; by_id finds an id"
            ) from None
        if not -len(self) <= number < len(self):
            raise IndexError(f"record {number} is outside [{-len(self)}, {len(self) - 1}]")
        return self._source.record_at(self._range[number])

    def by_id(self, unique_id: int | str) -> FeatureRecord:
        """The record with an id; the first one where several have it.

        The ids of a file are read once.

        Raises:
          OutputError: no record has this id.
        """
        number = self._source._number_of(unique_id, self._range)
        if number is None:
            part = self._range
            is_whole = isinstance(self, RecordSource)
            within = "" if is_whole else f" in records {part.start} to {part.stop - 1}"
            raise OutputError(
                f"no example of {self._source.path}{within} has the id {unique_id!r}; "
                f"its {len(self)} ids are of type {self._source.id_type}, see `.ids`"
            )
        return self._source.record_at(number)

    def ragged(self, name: str) -> tuple[np.ndarray, np.ndarray | None]:
        """All vectors of one feature, as one array.

        Returns:
          values, [T, D], [W, D] or [N, D] by the feature's level, and row_splits, int64 [N + 1]:
          the vectors of example i are values[row_splits[i]:row_splits[i + 1]]. For a sequence
          feature row_splits is None, and the vector of example i is values[i]. From an .npz file
          values is a memory map; from an .arrow file it is a view of the mapped file where the
          records lie in a single record batch, else a copy.

        Raises:
          OutputError: there is no such feature, or the file is damaged.
        """
        feature = self._feature(name)
        with self._source._one_clear_error():
            return self._source._ragged(feature, self._range)

    def blocks(self, name: str) -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
        """All vectors of one feature, a bounded part at a time.

        Only this feature is read, except in JSON lines and TFRecords, whose records are read whole.

        Yields:
          For some of the records, in order: values and row_splits, as `ragged` returns them.

        Raises:
          OutputError: there is no such feature, or the file is damaged.
        """
        return self._source.guarded(self._source._blocks(self._feature(name), self._range))

    def sparse(self, name: str = "sparse") -> Any:
        """A feature of kind `sparse` as one `scipy.sparse.csr_matrix`.

        Returns:
          float32 [N, V]: a row for each record, a column for each piece of the vocabulary.

        Raises:
          OutputError: there is no such feature, it is not sparse, or the file is damaged.
          MissingExtraError: SciPy is not installed.
        """
        parts = list(self.sparse_blocks(name))
        if not parts:
            return to_csr([], self._feature(name), pieces_of(self._source))
        from scipy.sparse import vstack

        return vstack(parts, format="csr")

    def sparse_blocks(self, name: str = "sparse") -> Iterator[Any]:
        """As `sparse`, a bounded part of the records at a time, in order."""
        blocks = csr_blocks(self._source, self._feature(name), self._range)
        return self._source.guarded(blocks)

    def _feature(self, name: str) -> Feature:
        for feature in self.features:
            if feature.name == name:
                return feature
        allowed = ", ".join(feature.name for feature in self.features)
        raise OutputError(f"{self._source.path} has no feature {name!r}; allowed: {allowed}")

    def to_dataset(self) -> Any:
        """A `tf.data.Dataset` with a dict per example, read as it is consumed.

        Keys are the columns of the Parquet layout: `unique_id` int64 or string []; `tokens` string
        [S] and `token_ids` int32 [S] (not from JSON lines, which have none); `words` string [M],
        `word_starts`, `word_ends`, `word_type_ids`, `word_num_pieces` int32 [M]; and each feature,
        [S, D], [M, D] or [D], attention [D, S, S] or [D, M, M], in its own dtype. S and M vary:
        batch with `padded_batch` or `ragged_batch`. A damaged file raises a `tf.errors.OpError`
        with the reader's message.
        """
        tf = import_tensorflow()

        types = {"int32": tf.int32, TEXT: tf.string}
        identifier = tf.string if self._source.id_type == "str" else tf.int64
        columns = {
            name: dtype
            for name, dtype in self._level_columns().items()
            if name != "token_ids" or self._source.has_token_ids
        }
        signature = {
            "unique_id": tf.TensorSpec([], identifier),
            **{name: tf.TensorSpec([None], types[dtype]) for name, dtype in columns.items()},
            **{
                f.name: tf.TensorSpec(_shape(f), tf.as_dtype(value_dtype(f.dtype)))
                for f in self.features
            },
        }

        def rows() -> Iterator[dict[str, Any]]:
            for cells in map(_cells_of, self):
                yield {name: _encoded(cells[name]) for name in signature}

        dataset = tf.data.Dataset.from_generator(rows, output_signature=signature)
        return dataset.apply(tf.data.experimental.assert_cardinality(len(self)))

    def to_arrow(self) -> Any:
        """A `pyarrow.Table` with the columns and the metadata of the Parquet format, in memory.

        bfloat16, which Arrow lacks, becomes float32, exactly. `token_ids` of JSON lines, which have
        none, are null.
        """
        import pyarrow as pa

        source = self._source
        features = tuple(
            dataclasses.replace(f, dtype="float32") if f.dtype == "bfloat16" else f
            for f in self.features
        )
        metadata = source.metadata | {
            "features": [feature.to_metadata() for feature in features],
            "id_type": source.id_type,
        }
        schema = schema_of(features, source.id_type).with_metadata(
            {METADATA_KEY: json.dumps(metadata).encode()}
        )
        read = source.guarded(source._batches(self._range))
        batches = [convert_to_arrow(batch, features, schema) for batch in read]
        return pa.Table.from_batches(batches, schema)

    def to_pandas(self, *, level: str | None = None) -> Any:
        """A `pandas.DataFrame`, a row per example, with the columns of the Parquet format.

        Args:
          level: `token`, `word` or `span`, for a row per unit instead: the id of its example, its
            columns, and the features of the level, [D] each. It is `span` by default where all
            features are of spans. `sequence` for a row per example.

        Cells are NumPy arrays: features [S, D], [M, D] or [D], attention [D, S, S] or [D, M, M],
        tokens and words str (dtype object) [S] or [M], their numbers int32. `token_ids` of JSON
        lines are None.

        Raises:
          OutputError: no feature is of that level.
          MissingExtraError: pandas is not installed.
        """
        try:
            import pandas as pd
        except ImportError as error:
            raise MissingExtraError("pandas", "pandas") from error

        levels = {feature.level for feature in self.features}
        (only,) = levels if len(levels) == 1 else ("sequence",)
        level = level or (only if LEVELS[only].is_text else "sequence")
        if level != "sequence":
            return pd.DataFrame(self._cells_of_units(level))
        rows = [_cells_of(record) for record in self]
        id_dtype = object if self._source.id_type == "str" else np.int64
        columns = {"unique_id": pd.Series([row["unique_id"] for row in rows], dtype=id_dtype)}
        for name in (*self._level_columns(), *(feature.name for feature in self.features)):
            cells = object_array([_cell(row[name]) for row in rows])
            columns[name] = pd.Series(cells, dtype=object)
        return pd.DataFrame(columns)

    def _cells_of_units(self, level: str) -> dict[str, list[Any]]:
        """The columns of a level with an entry for each unit, and the id of its example."""
        features = [feature.name for feature in self.features if feature.level == level]
        if not features or LEVELS[level].axes != 1:
            allowed = ", ".join(sorted({f.level for f in self.features if not f.is_paired}))
            raise OutputError(f"level is {level!r}; allowed in {self._source.path}: {allowed}")
        names = [
            n
            for n in unit_columns(level, self.features)
            if n != "token_ids" or self._source.has_token_ids
        ]
        cells: dict[str, list[Any]] = {name: [] for name in ("unique_id", *names, *features)}
        for row in map(_cells_of, self):
            for name in (*names, *features):
                cells[name] += list(row[name])
            cells["unique_id"] += [row["unique_id"]] * len(row[features[0]])
        return cells

    def _level_columns(self) -> dict[str, str]:
        """The columns of tokens and words, and their dtypes."""
        levels = [unit_columns(level, self.features) for level in levels_of(self.features)]
        return {name: dtype for columns in levels for name, dtype in columns.items()}


def _cells_of(record: FeatureRecord) -> dict[str, Any]:
    """A record by the names of the columns; None for what it does not have."""
    spans = {name: getattr(record.word_spans, name.removeprefix("word_"), None) for name in SPANS}
    return {
        "unique_id": record.unique_id,
        "tokens": record.tokens,
        "token_ids": record.token_ids,
        "words": record.words,
        "word_labels": record.word_labels,
        **spans,
        **{name: cell for unit in (record.units or {}).values() for name, cell in unit.items()},
        **record.features,
    }


def _shape(feature: Feature) -> list[int | None]:
    return list(LEVELS[feature.level].shape(feature.stored_width, None))


def _encoded(cell: Any) -> Any:
    """A cell whose texts, if it has several, are UTF-8."""
    if not isinstance(cell, tuple):
        return cell
    # dtype object: NumPy's bytes type drops trailing NULs, and an empty list would become float64.
    return np.array([text.encode("utf-8") for text in cell], object)


def _cell(value: Any) -> Any:
    return object_array(list(value)) if isinstance(value, tuple) else value
