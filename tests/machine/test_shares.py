"""Shares: the devices of one machine for several processes."""

import os

import pytest

from bert_features.errors import ConfigError
from bert_features.machine import shares
from bert_features.machine.shares import share_out


@pytest.fixture
def machine(monkeypatch):
    for name in ("CUDA_VISIBLE_DEVICES", "TPU_VISIBLE_CHIPS", "TPU_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)

    def make(chips=0, gpus=0, cores=2):
        monkeypatch.setattr(shares, "tpu_chips", lambda: chips)
        monkeypatch.setattr(shares, "nvidia_gpus", lambda: gpus)
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)), raising=False)

    return make


def test_cores_are_shared_out_whole(machine):
    machine(cores=7)
    assert [sorted(share.cores) for share in share_out(3)] == [[0, 1], [2, 3], [4, 5, 6]]
    assert all(not share.environment for share in share_out(3))


def test_each_gpu_has_one_process(machine, monkeypatch):
    machine(gpus=4)
    assert [s.environment["CUDA_VISIBLE_DEVICES"] for s in share_out(2)] == ["0,1", "2,3"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3, GPU-8f")
    assert [s.environment["CUDA_VISIBLE_DEVICES"] for s in share_out(2)] == ["3", "GPU-8f"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert [s.environment for s in share_out(2)] == [{}, {}]  # cores then


@pytest.mark.parametrize(
    ("chips", "count", "bounds", "visible"),
    [
        (4, 4, "1,1,1", ["0", "1", "2", "3"]),
        (4, 2, "1,2,1", ["0,1", "2,3"]),
        (8, 2, "2,2,1", ["0,1,2,3", "4,5,6,7"]),
        (8, 8, "1,1,1", list("01234567")),
    ],
)
def test_each_chip_has_one_process(machine, chips, count, bounds, visible):
    machine(chips=chips, gpus=1)
    found = [share.environment for share in share_out(count)]
    assert [each["TPU_VISIBLE_CHIPS"] for each in found] == visible
    assert [each["TPU_VISIBLE_DEVICES"] for each in found] == visible
    assert {each["TPU_CHIPS_PER_PROCESS_BOUNDS"] for each in found} == {bounds}
    assert {each["TPU_PROCESS_BOUNDS"] for each in found} == {"1,1,1"}
    assert len({each["TPU_MESH_CONTROLLER_PORT"] for each in found}) == count


def test_the_device_setting_decides(machine):
    machine(chips=4, gpus=2, cores=2)
    assert "CUDA_VISIBLE_DEVICES" in share_out(2, "gpu")[0].environment
    assert share_out(2, "cpu")[1].cores == {1}


@pytest.mark.parametrize(
    ("made", "count", "message"),
    [
        ({"cores": 2}, 3, "processes is 3; this machine has 2 CPU cores; allowed: 1 to 2"),
        ({"gpus": 4}, 3, "processes is 3; this machine has 4 GPUs; allowed: 1, 2, 4"),
        ({"chips": 8}, 16, "processes is 16; this machine has 8 TPU chips; allowed: 1, 2, 4, 8"),
    ],
)
def test_what_cannot_be_shared_out_is_refused(machine, made, count, message):
    machine(**made)
    with pytest.raises(ConfigError) as caught:
        share_out(count)
    assert str(caught.value) == message
