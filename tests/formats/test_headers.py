"""The metadata of a file of another release."""

from pathlib import Path

import pytest

from bert_features.errors import OutputError
from bert_features.formats import (
    read_features,
)
from tests.formats.feature_files import (
    ONE,
    write,
)


@pytest.mark.parametrize("version", [1, 3])
def test_a_file_of_another_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    monkeypatch.setattr("bert_features.formats.base.FORMAT_VERSION", version)
    write(tmp_path / "f.npz", "npz", ONE)
    with pytest.raises(OutputError, match=f"format_version is {version}; this release reads 2"):
        read_features(tmp_path / "f.npz")
