"""The models of processors, from files as Linux has them."""

import pytest

from bert_features.machine.models import describe_processor, processor_models

X86 = "processor : 0\nvendor_id : A\nmodel name : B 7\nflags : fpu avx2\ncpu MHz : 2596.1\n\n"


@pytest.fixture
def root(tmp_path):
    (tmp_path / "proc").mkdir()
    return tmp_path


def test_the_cpu_is_known_by_its_kind_and_not_by_its_clock(root):
    (root / "proc" / "cpuinfo").write_text(X86 + X86)
    assert processor_models(root)["cpu"] == ["flags: fpu avx2", "model name: B 7", "vendor_id: A"]
    before = processor_models(root)
    (root / "proc" / "cpuinfo").write_text(X86.replace("2596.1", "3000"))
    assert processor_models(root) == before
    (root / "proc" / "cpuinfo").write_text(X86.replace("avx2", "avx512f"))
    assert processor_models(root) != before


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (f"cpu family : 25\nmodel : 17\n{X86}", ", cpu family 25, model 17"),
        (X86, ""),
    ],
)
def test_a_cpu_is_described_in_a_line(root, lines, expected):
    (root / "proc" / "cpuinfo").write_text(lines)
    assert describe_processor("cpu", root) == f"B 7{expected}, avx2"


def test_a_processor_that_the_kernel_hides_has_no_description(root):
    assert describe_processor("cpu", root) == describe_processor("gpu", root) == ""


def test_gpus_are_known_by_their_model(root):
    folder = root / "proc" / "driver" / "nvidia" / "gpus" / "0000:00:05.0"
    folder.mkdir(parents=True)
    (folder / "information").write_text("Model: \t\t NVIDIA H100\nIRQ: 5\n")
    assert processor_models(root)["gpu"] == ["NVIDIA H100"]
