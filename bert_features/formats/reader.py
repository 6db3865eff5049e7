"""`FeatureFile`, the base of all readers: records are read when they are asked for."""

from abc import abstractmethod
from typing import Any, Self

from bert_features.formats.headers import TEXTS_CHECKSUM
from bert_features.formats.source import RecordSource
from bert_features.formats.views import FeatureView

# Most that a reader takes at once; a single longer example is still read whole.
CHUNK_BYTES = 16 << 20
CHUNK_RECORDS = 1024


class FeatureFile(RecordSource, FeatureView):
    """A features file: the view of all its records, see `FeatureView`.

    Only what is asked for is read, and only a bounded part of it is in memory at any time. Reading
    single records keeps the file open until `close`, or until the end of a `with` block; a closed
    file opens again when it is used.

    Attributes:
      format: a key of `bert_features.formats.FORMATS`.
      metadata: what the writer was given, `features`, `id_type` and `format_version`; {} where
        there is none.
      features: the features of each record, in order.
      id_type: whether ids are `int` or `str`.

    Raises:
      OutputError: the file is missing, was not written by a writer of this format, or is damaged.
    """

    @abstractmethod
    def close(self) -> None:
        """Closes what is open."""

    def verify(self) -> tuple[str, ...]:
        """Reads the whole file and compares it with the checksums in it and in its sidecar.

        Without that, only some formats notice damage: Parquet and HDF5 compare checksums as they
        read values, tfrecord with each record, and tfrecord and jsonl those of both ends of the
        file as they open it.

        Returns:
          What has no checksum and so was only read: `texts` in HDF5; `values` or `metadata` in a
          file that another program wrote, as the official script. Empty if everything was compared.

        Raises:
          OutputError: the file is damaged; the message says where.
        """
        try:
            with self._one_clear_error():
                if self._is_whole is False:
                    raise ValueError("its metadata is not as it was written")
                unchecked = self._verify()
                return unchecked if self._is_whole else (*unchecked, "metadata")
        finally:
            self.close()

    def texts(self) -> list[tuple[int, str | None]]:
        """Of each part, one after the other: the number of its examples, and their checksum."""
        return [(len(self), self.metadata.get(TEXTS_CHECKSUM))]

    def __bool__(self) -> bool:
        return True  # the file exists, even where `len` is 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        # Pickles the path alone: another process opens the file for itself.
        return type(self), (self.path,)

    def __repr__(self) -> str:
        features = ", ".join(feature.describe() for feature in self.features)
        # Counting may mean reading the whole file, which no repr should do.
        count = "" if self._count is None else f"{self._count:,} "
        return (
            f"<{self.format} {self._noun} {self.path}: {count}records{self._extent} of {features}>"
        )

    @property
    def _extent(self) -> str:
        """What the repr says of the files that hold the records; empty for a single one."""
        return ""

    @property
    def _source(self) -> RecordSource:
        return self
