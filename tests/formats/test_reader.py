"""Files are opened when they are used, and closed; memory does not grow with them."""

import gc
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from bert_features.formats import (
    FeatureFile,
    read_features,
)
from tests.formats.feature_files import (
    ONE,
    SUFFIX,
    all_formats,
    assert_same,
    make_batch,
    write,
)


@all_formats
def test_what_is_open_is_closed(tmp_path: Path, format: str) -> None:
    path = tmp_path / f"f{SUFFIX[format]}"
    write(path, format, ONE, make_batch(ONE, [1, 2]))

    def is_open() -> bool:
        links = (entry for entry in Path("/proc/self/fd").iterdir())
        return path in [Path(os.path.realpath(link)) for link in links]

    with read_features(path) as file:
        assert not is_open()
        assert file[1].unique_id == 1
        assert isinstance(file, FeatureFile)
    if sys.platform == "linux":
        gc.collect()
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
import resource, sys
from pathlib import Path
from bert_features.formats.records import Feature
from bert_features.formats import open_writer, read_features
from tests.formats.feature_files import make_batch

path, format = Path(sys.argv[1]), sys.argv[2]
features = (Feature("layer_output_0", (-1,), "none", 384, "float32"),)
batch = make_batch(features, [30] * 16)  # 512 tokens, 0.8 MB

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

def now():  # without the pages of a mapped file, which the system may drop at any time
    status = Path("/proc/self/status").read_text()
    return int(status.split("RssAnon:")[1].split()[0]) // 1024

with open_writer(path, format=format, features=features, metadata={}) as writer:
    for i in range(300):
        if i == 100:
            before = peak()
        writer.write(batch)
print(peak() - before)
sizes = [now() for i, record in enumerate(read_features(path, format=format)) if i % 100 == 99]
print(max(sizes[16:]) - max(sizes[:16]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="memory is measured by Linux's /proc")
@pytest.mark.parametrize("format", ["parquet", "arrow", "npz", "hdf5"])
def test_memory_does_not_grow_with_the_records(tmp_path: Path, format: str) -> None:
    """The last 200 of 300 batches are 157 MB, which neither writing nor reading may hold."""
    done = subprocess.run(
        [sys.executable, "-c", GROWTH, str(tmp_path / "f"), format],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).resolve().parents[2],
    )
    written, read = (int(megabytes) for megabytes in done.stdout.split())
    # pyarrow's allocator gives pages back when it likes: up to 53 MB were seen beside other work.
    assert written < 100
    assert read < 100
