"""The part that the readers of one piece of bytes per example share: JSON lines and TFRecords."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise

import numpy as np

from bert_features.files.checksums import checksum_of_file
from bert_features.formats import reader, sidecar
from bert_features.formats.records import FeatureBatch, FeatureRecord


class RecordFile(reader.FeatureFile):
    """A features file of one piece of bytes per example, one after the other."""

    @cached_property
    def _offsets(self) -> np.ndarray:
        """int64 [N + 1]: where each example's piece begins, and where the last one ends."""
        offsets = self._scan()
        self._check_count(len(offsets) - 1)
        return offsets

    @abstractmethod
    def _scan(self) -> np.ndarray:
        """Finds `_offsets`."""

    @abstractmethod
    def _parse(self, piece: bytes) -> FeatureBatch:
        """The batch of one example."""

    def _verify(self) -> tuple[str, ...]:
        header = sidecar.read(self.path)
        if header is None:
            return super()._verify()
        if checksum_of_file(self.path) != header.crc32c:
            raise ValueError("its bytes are not those that were written")
        return ()

    def close(self) -> None:
        """Drops the index of the records; nothing else is open."""
        self.__dict__.pop("_offsets", None)

    def _count_records(self) -> int:
        return len(self._offsets) - 1

    def _pieces(self, records: range) -> Iterator[bytes]:
        """The bytes of some examples."""
        if not records:
            return
        bounds = self._offsets[records.start : records.stop + 1].tolist()
        with self.path.open("rb") as file:
            file.seek(bounds[0])
            for begin, end in pairwise(bounds):
                yield file.read(end - begin)

    def _records(self, records: range) -> Iterator[FeatureRecord]:
        for piece in self._pieces(records):
            yield from self._parse(piece).records(self.features)

    def _batches(self, records: range, only: Sequence[str] | None = None) -> Iterator[FeatureBatch]:
        del only  # records are read whole
        pending: list[FeatureBatch] = []
        size = 0
        for example in map(self._parse, self._pieces(records)):
            pending.append(example)
            size += sum(values.nbytes for values in example.features.values())
            if size >= reader.CHUNK_BYTES or len(pending) >= reader.CHUNK_RECORDS:
                yield FeatureBatch.join(pending)
                pending, size = [], 0
        if pending:
            yield FeatureBatch.join(pending)
