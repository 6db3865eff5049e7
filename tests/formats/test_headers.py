"""The metadata of a file of another release, and metadata that was damaged."""

from pathlib import Path

import pytest

from bert_features.errors import OutputError
from bert_features.formats import (
    read_features,
)
from tests.formats.feature_files import (
    METADATA,
    ONE,
    SUFFIX,
    all_formats,
    write,
)


@pytest.mark.parametrize("version", [1, 3])
def test_a_file_of_another_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("bert_features.formats.headers.FORMAT_VERSION", version)
        write(tmp_path / "f.npz", "npz", ONE)
    with pytest.raises(OutputError, match=f"format_version is {version}; this release reads 2"):
        read_features(tmp_path / "f.npz")


@all_formats
def test_a_file_with_an_unknown_type_of_ids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str
) -> None:
    """The message names the file."""
    path = tmp_path / f"f{SUFFIX[format]}"
    with monkeypatch.context() as patch:
        patch.setattr(
            "bert_features.formats.base.complete_metadata",
            lambda metadata, features, id_type: {
                **METADATA,
                "features": [feature.to_metadata() for feature in features],
                "id_type": "float",
                "format_version": 2,
            },
        )
        write(path, format, ONE)
    message = f"cannot read {path} as {format}: .*id_type is 'float'; allowed: int, str"
    with pytest.raises(OutputError, match=message):
        read_features(path)
