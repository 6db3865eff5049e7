"""The metadata of a file of another release, and metadata that was damaged."""

from pathlib import Path

import pytest

from bert_features.errors import OutputError
from bert_features.formats import headers, read_features
from tests.formats.feature_files import ONE, write


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format_version": 1}, "format_version is 1; this release reads 2"),
        ({"format_version": 3}, "format_version is 3; this release reads 2"),
        ({"id_type": "float"}, "id_type is 'float'; allowed: int, str"),
    ],
)
def test_a_file_of_another_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, object], message: str
) -> None:
    complete = headers.complete_metadata
    with monkeypatch.context() as patch:
        patch.setattr(
            "bert_features.formats.base.complete_metadata", lambda *of: complete(*of) | changes
        )
        write(tmp_path / "f.npz", "npz", ONE)
    with pytest.raises(OutputError, match=f"cannot read .*f.npz as npz: .*{message}"):
        read_features(tmp_path / "f.npz")
