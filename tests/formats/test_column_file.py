""".npz and HDF5 are read where they are wanted."""

from pathlib import Path
from typing import Any

import pytest

from bert_features.formats import read_features
from tests.formats.feature_files import EVERYTHING, SUFFIX, assert_same, make_batch, write


@pytest.mark.parametrize("format", ["npz", "hdf5"])
def test_columns_are_read_where_they_are_wanted(tmp_path: Path, format: str) -> None:
    """Eight examples of n tokens, n from 2 on: example 3 has tokens 9..13, words 3..5."""
    path = tmp_path / f"f{SUFFIX[format]}"
    write(path, format, EVERYTHING, make_batch(EVERYTHING, list(range(8))))
    file: Any = read_features(path)
    taken: dict[str, list[Any]] = {}

    class Spy:
        def __init__(self, name: str, column: Any) -> None:
            self.name, self.column = name, column

        def __len__(self) -> int:
            return len(self.column)

        def __getitem__(self, key: Any) -> Any:
            taken.setdefault(self.name, []).append(key)
            return self.column[key]

    file._open_columns = {name: Spy(name, column) for name, column in file._columns.items()}
    assert_same(file[3], read_features(path)[3])
    token_rows, word_rows = [slice(9, 14)], [slice(3, 6)]
    assert taken == {
        "unique_ids": [slice(3, 4)],
        # Where they are cut, and to cut them there.
        **dict.fromkeys(("row_splits", "word_splits"), [slice(3, 5)] * 2),
        **dict.fromkeys(("tokens", "token_ids", "layer_output_0", "sum"), token_rows),
        **dict.fromkeys(("words", "word_starts", "word_ends", "word_type_ids"), word_rows),
        **dict.fromkeys(("word_num_pieces", "of words"), word_rows),
        "sentence": [slice(3, 4)],
    }
    taken.clear()
    assert file.ids.tolist() == list(range(8))
    assert taken == {"unique_ids": [slice(None)]}
    taken.clear()
    file[3:4].ragged("of words")
    assert taken == {"word_splits": [slice(3, 5)], "of words": word_rows}
