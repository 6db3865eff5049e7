"""JSON lines to standard output, as they are computed: no sidecar, and not whole or nothing."""

import sys
from collections.abc import Sequence

from bert_features.errors import OutputError
from bert_features.formats.checks import check_batch, check_features, check_id_type
from bert_features.formats.columns import IdType
from bert_features.formats.jsonl import convert_to_lines
from bert_features.formats.records import Feature, FeatureBatch


class StreamWriter:
    """Writes the lines of a .jsonl file to standard output; there is nothing to close.

    Args:
      features: what each batch holds, in order.
      id_type: whether the ids of all examples are `int` (64 bits) or `str`.

    Attributes:
      records: number of examples written so far.
      bytes_written: number of bytes written so far.

    Raises:
      OutputError: standard output is closed.
    """

    def __init__(self, *, features: Sequence[Feature], id_type: IdType = "int") -> None:
        self.records = 0
        self.bytes_written = 0
        self._features = tuple(features)
        self._id_type = id_type
        check_id_type(id_type)
        check_features(self._features)
        if sys.stdout is None:
            raise OutputError("cannot write to standard output: it is closed; pass a file")
        self._file = sys.stdout.buffer

    def write(self, batch: FeatureBatch) -> None:
        """Writes a batch, and hands it on at once.

        Raises:
          BrokenPipeError: the reader has gone.
          OutputError: the batch does not hold the features announced, or cannot be written.
        """
        check_batch(batch, self._features, self._id_type)
        lines = b"".join(convert_to_lines(batch, self._features))
        try:
            self._file.write(lines)
            self._file.flush()
        except BrokenPipeError:  # not a failure: the reader has had enough
            raise
        except OSError as error:
            raise OutputError(
                f"cannot write to standard output: {error.strerror or error}; what is there is "
                "incomplete"
            ) from error
        self.records += len(batch)
        self.bytes_written += len(lines)
