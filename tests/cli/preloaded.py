"""What a command of the command line imports as it runs; see `tests/cli/forks.py`."""

from bert_features.machine.quiet_tensorflow import import_tensorflow

import_tensorflow()

import h5py  # noqa: E402, F401
import pyarrow.parquet  # noqa: E402, F401
import tensorflow_text  # noqa: E402, F401

import bert_features.cli.extract  # noqa: E402
import bert_features.encoder.step  # noqa: E402
import bert_features.extraction.extractor  # noqa: E402
import bert_features.extraction.preparation  # noqa: E402
import bert_features.extraction.reuse  # noqa: E402, F401
