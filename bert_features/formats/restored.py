"""A features file whose small vectors are turned back into float32 as they are read."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from bert_features.config import output_specs
from bert_features.config.recipe import Recipe
from bert_features.formats.headers import Header
from bert_features.formats.reader import FeatureFile
from bert_features.formats.records import FeatureBatch, FeatureRecord
from bert_features.formats.small_vectors import restore, small_ones


def as_floats(file: FeatureFile) -> FeatureFile:
    """The same file, whose small vectors are turned back as they are read."""
    return _Restored(file) if small_ones(file.features) else file


class _Restored(FeatureFile):
    """A features file whose small vectors come as float32."""

    def __init__(self, file: FeatureFile) -> None:
        self._file, self._stored, self.format = file, small_ones(file.features), file.format
        self.has_token_ids, self._watched = file.has_token_ids, file._watched
        super().__init__(file.path)

    @property
    def recipe(self) -> Recipe:
        """See `FeatureFile.recipe`: of the vectors as they are stored."""
        return self._file.recipe

    def texts(self) -> list[tuple[int, str | None]]:
        """See `FeatureFile.texts`."""
        return self._file.texts()

    def _check_readable(self) -> None:
        pass  # it is open

    def _read_header(self) -> Header:
        file, features = self._file, output_specs.as_floats(self._file.features)
        return Header(file.metadata, features, file.id_type, len(file), file._is_whole)

    def _batches(self, records: range, only: Sequence[str] | None = None) -> Iterator[FeatureBatch]:
        for batch in self._file._batches(records, only):
            arrays = batch.features
            stored = (f for f in self._stored if f.name in arrays)
            yield batch.with_features({f.name: restore(arrays[f.name], f) for f in stored})

    def _record(self, number: int) -> FeatureRecord:
        record = self._file._record(number)
        floats = {
            f.name: restore(np.atleast_2d(values), f).reshape(*values.shape[:-1], f.width)
            for f in self._stored
            for values in (record.features[f.name],)
        }
        return replace(record, features=record.features | floats)

    def _verify(self) -> tuple[str, ...]:
        return self._file._verify()

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def __reduce__(self) -> tuple[object, ...]:
        return as_floats, (self._file,)
