""".npz as NumPy reads it."""

import json
import zipfile
from pathlib import Path

import numpy as np

from tests.formats.feature_files import (
    make_batch,
    mix,
    several,
    some_batches,
    tokens_of,
    write,
)


def test_npz_as_numpy_sees_it(tmp_path: Path) -> None:
    features = several("float32")
    first, second = make_batch(features, [2, 0]), make_batch(features, [7], first_id=2)
    path = tmp_path / "f.npz"
    write(path, "npz", features, first, second)
    with np.load(path, allow_pickle=False) as arrays:
        assert set(arrays) == {
            *("unique_ids", "row_splits", "token_ids", "tokens", "metadata"),
            *first.features,
        }
        assert arrays["unique_ids"].dtype == np.int64
        assert arrays["unique_ids"].tolist() == [0, 1, 2]
        assert arrays["row_splits"].dtype == np.int64
        assert arrays["row_splits"].tolist() == [0, 4, 6, 15]
        assert arrays["token_ids"].dtype == np.int32
        assert arrays["tokens"].tolist() == tokens_of(first) + tokens_of(second)
        assert arrays["tokens"].dtype == "<U10"  # back\slash
        assert arrays["metadata"].shape == ()
        assert json.loads(str(arrays["metadata"]))["note"] == "naïve 東京"
        for name in first.features:
            both = np.concatenate([first.features[name], second.features[name]])
            np.testing.assert_array_equal(arrays[name], both)
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None  # the checksums hold


def test_npz_of_words_and_sequences(tmp_path: Path) -> None:
    features = mix("word", "sequence")
    first, second = some_batches(features, "str")[:2]
    path = tmp_path / "f.npz"
    write(path, "npz", features, first, second, id_type="str")
    with np.load(path, allow_pickle=False) as arrays:
        assert set(arrays) == {
            *("unique_ids", "word_splits", "words", "word_starts", "word_ends", "word_type_ids"),
            *("word_num_pieces", "of words", "sentence", "metadata"),
        }
        ids = [*first.unique_ids, *second.unique_ids]
        assert arrays["unique_ids"].tolist() == ids
        assert arrays["unique_ids"].dtype == f"<U{max(map(len, ids))}"
        assert arrays["word_splits"].tolist() == [0, 3, 3, 10, 11]
        assert arrays["sentence"].shape == (4, 4)
        assert arrays["of words"].shape == (11, 2)
