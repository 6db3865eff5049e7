"""Files are opened when they are used, and closed; memory does not grow with them."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from bert_features.formats import FeatureFile, read_features
from tests.formats.feature_files import ONE, SUFFIX, all_formats, assert_same, make_batch, write


@all_formats
def test_what_is_open_is_closed(tmp_path: Path, format: str) -> None:
    path = tmp_path / f"f{SUFFIX[format]}"
    write(path, format, ONE, make_batch(ONE, [1, 2]))

    def is_open() -> bool:
        return str(path) in [os.path.realpath(link) for link in Path("/proc/self/fd").iterdir()]

    with read_features(path) as file:
        assert not is_open()
        assert file[1].unique_id == 1
        assert isinstance(file, FeatureFile)
    assert not is_open()
    assert file[0].unique_id == 0  # opened again
    file.close()


@all_formats
def test_another_process_gets_the_file_and_not_its_records(tmp_path: Path, format: str) -> None:
    path = tmp_path / f"f{SUFFIX[format]}"
    write(path, format, ONE, make_batch(ONE, [30] * 100))
    file = read_features(path)
    expected = file[99]
    for whole in (file, file[50:]):
        pickled = pickle.dumps(whole)
        assert len(pickled) < 2000
        assert_same(pickle.loads(pickled)[-1], expected)


def test_an_error_of_the_reader_of_records_is_left_alone(tmp_path: Path) -> None:
    """What goes wrong in the user's loop is not the file's fault."""
    write(tmp_path / "f.npz", "npz", ONE, make_batch(ONE, [1]))

    def divide() -> None:
        for record in read_features(tmp_path / "f.npz"):
            len(record.features) / 0

    with pytest.raises(ZeroDivisionError):
        divide()


GROWTH = """
import os, sys
from pathlib import Path
from bert_features.formats.records import Feature
from bert_features.formats import open_writer, read_features
from tests.formats.feature_files import make_batch

features = (Feature("layer_output_0", (-1,), "none", 384, "float32"),)
batch = make_batch(features, [30] * 16)  # 512 tokens, 0.8 MB
os.fsync = lambda file: None

def now():  # without the pages of a mapped file, which the system may drop at any time
    status = Path("/proc/self/status").read_text()
    return int(status.split("RssAnon:")[1].split()[0]) // 1024

for format in sys.argv[2:]:
    path = Path(sys.argv[1], format)
    sizes = []
    with open_writer(path, format=format, features=features, metadata={}) as writer:
        for i in range(300):
            writer.write(batch)
            sizes.append(now())
    written = max(sizes[100:]) - max(sizes[:100])
    sizes = [now() for i, record in enumerate(read_features(path, format=format)) if i % 100 == 99]
    print(format, written, max(sizes[16:]) - max(sizes[:16]))
    path.unlink()
"""


@pytest.mark.slow
@pytest.mark.release
@pytest.mark.skipif(sys.platform != "linux", reason="memory is measured by Linux's /proc")
def test_memory_does_not_grow_with_the_records(tmp_path: Path) -> None:
    """The last 200 of 300 batches are 157 MB, which neither writing nor reading may hold."""
    done = subprocess.run(
        [sys.executable, "-c", GROWTH, str(tmp_path), "parquet", "arrow", "npz", "hdf5"],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).resolve().parents[2],
    )
    measured = [line.split() for line in done.stdout.splitlines()]
    assert len(measured) == 4
    for format, written, read in measured:
        # pyarrow's allocator gives pages back when it likes: up to 53 MB were seen beside other
        # work.
        assert int(written) < 100, format
        assert int(read) < 100, format
