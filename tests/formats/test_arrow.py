"""Arrow IPC as pyarrow reads it, and through a memory map."""

from pathlib import Path

import numpy as np
import pytest

from bert_features.errors import OutputError
from bert_features.formats import read_features
from tests.formats.feature_files import EVERYTHING, assert_all_same, make_batch, mix, write


def test_vectors_of_one_record_batch_are_a_view_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Record batches of two examples; a range within one is not copied, one across two is."""
    monkeypatch.setattr("bert_features.formats.groups.ENOUGH_ROWS", 2)
    path = tmp_path / "f.arrow"
    batches = [make_batch(EVERYTHING, [2, 3], first_id=2 * i, seed=i) for i in range(2)]
    write(path, "arrow", EVERYTHING, *batches)
    with read_features(path) as file:
        for feature in EVERYTHING:
            once, again = (file[2:4].ragged(feature.name)[0] for _ in range(2))
            assert np.shares_memory(once, again)
            assert not once.flags.writeable
            np.testing.assert_array_equal(once, batches[1].features[feature.name])
            both = [file[1:3].ragged(feature.name)[0] for _ in range(2)]
            assert not np.shares_memory(*both)
        (records,) = [list(file)]
    assert_all_same(records, [record for batch in batches for record in batch.records(EVERYTHING)])
    assert once.sum() == batches[1].features[EVERYTHING[-1].name].sum()  # valid after `close`


@pytest.mark.parametrize("bad", [-1, 2**30])
def test_damaged_offsets_are_refused(tmp_path: Path, bad: int) -> None:
    """They would lead outside of the mapped file."""
    features = mix("sequence", "word")
    path = tmp_path / "f.arrow"
    write(path, "arrow", features, make_batch(features, [3, 5, 7]))
    content = path.read_bytes()
    offsets = np.array([0, 3, 8, 15], np.int32).tobytes()
    assert content.count(offsets) > 1
    damaged = np.array([0, 3, bad, 15], np.int32).tobytes()
    path.write_bytes(content.replace(offsets, damaged))
    file = read_features(path)
    assert file.ids.tolist() == [0, 1, 2]  # a column beside the damaged ones
    for read in (lambda: file[0], lambda: list(file), lambda: file.ragged("of words")):
        with pytest.raises(OutputError, match="as arrow: it is damaged"):
            read()
