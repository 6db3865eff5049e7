"""oneDNN is on for every x86 CPU, unless the user says otherwise."""

import os
import platform
import sys

import pytest

from bert_features.machine import hardware, onednn


@pytest.fixture
def untouched(monkeypatch):
    """An x86 without neural-network instructions, where nothing has been decided yet."""
    monkeypatch.setenv(onednn.VARIABLE, "")  # so that the end of the test restores it
    monkeypatch.delenv(onednn.VARIABLE)
    monkeypatch.setattr(onednn, "_too_late", False)
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(hardware, "cpu_flags", lambda: frozenset({"avx2"}))
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)


@pytest.mark.skipif(not onednn.is_x86(), reason="TensorFlow decides on other CPUs")
def test_it_is_on_here():
    """`tests/conftest.py` imports this package and then TensorFlow."""
    from tensorflow.python.util import _pywrap_util_port

    assert _pywrap_util_port.IsMklEnabled() == (onednn.find_off() is None)


def test_the_variable_is_set_on_x86_alone(untouched, monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    onednn.turn_on()
    assert onednn.VARIABLE not in os.environ
    assert onednn.find_off() is None
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    onednn.turn_on()
    assert os.environ[onednn.VARIABLE] == "1"
    assert onednn.find_off() is None


@pytest.mark.parametrize("value", ["0", "False"])
def test_a_users_wish_stands_without_a_warning(untouched, monkeypatch, value):
    monkeypatch.setenv(onednn.VARIABLE, value)
    onednn.turn_on()
    assert os.environ[onednn.VARIABLE] == value
    off = onednn.find_off()
    assert off == (f"TF_ENABLE_ONEDNN_OPTS={value}", "unset TF_ENABLE_ONEDNN_OPTS")
    assert onednn.warning() is None


def test_too_late_after_tensorflow(untouched, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    onednn.turn_on()
    assert onednn.VARIABLE not in os.environ
    assert onednn.warning() == (
        "oneDNN, TensorFlow's fast CPU kernels, is off: TensorFlow was imported before "
        "bert_features; import bert_features first, or set TF_ENABLE_ONEDNN_OPTS=1"
    )


def test_never_too_late_where_tensorflow_turns_it_on(untouched, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    monkeypatch.setattr(hardware, "cpu_flags", lambda: frozenset({"avx2", "avx512_vnni"}))
    onednn.turn_on()
    assert onednn.warning() is None


@pytest.mark.parametrize(
    ("flags", "limit", "narrow"),
    [
        ({"avx2"}, None, True),
        ({"avx2", "avx512f"}, None, False),
        ({"avx2", "avx512f"}, "AVX2", True),
        ({"avx2", "avx512f"}, "AVX512_CORE_BF16", False),
        ({"avx2", "avx512f"}, "ALL", False),
        ({"avx2"}, "ALL", True),
    ],
)
def test_a_cpu_without_avx512_is_narrow(untouched, monkeypatch, flags, limit, narrow):
    monkeypatch.setattr(hardware, "cpu_flags", lambda: frozenset(flags))
    environment = {} if limit is None else {"ONEDNN_MAX_CPU_ISA": limit}
    assert onednn.is_narrow(environment) is narrow
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert not onednn.is_narrow(environment)


EPYC = {"avx2", "avx512f", "avx512_vnni", "avx512_bf16"}


@pytest.mark.parametrize(
    ("flags", "limit", "expected"),
    [
        (EPYC | {"amx_bf16"}, "", ("AMX", ["bfloat16"])),
        (EPYC | {"amx_bf16"}, "AVX10_1_512_AMX", ("AMX", ["bfloat16"])),
        (EPYC | {"amx_bf16"}, "avx10_1_512", ("AVX512_BF16", ["float32", "bfloat16"])),
        (EPYC, "default", ("AVX512_BF16", ["float32", "bfloat16"])),
        (EPYC, "AVX512_CORE_BF16", ("AVX512_BF16", ["float32", "bfloat16"])),
        (EPYC, "AVX512_CORE_VNNI", ("AVX512_VNNI", [])),
        (EPYC, "AVX512_CORE", ("AVX512", [])),
        (EPYC, "AVX2_VNNI", ("AVX2", [])),
        (EPYC, "SSE41", ("", [])),
        (set(), "", ("", [])),
    ],
)
def test_onednn_arranges_weights_where_that_was_faster(
    untouched, monkeypatch, flags, limit, expected
):
    """Limits are those of oneDNN's documentation, in any case."""
    monkeypatch.setattr(hardware, "cpu_flags", lambda: frozenset(flags))
    environment = {"ONEDNN_MAX_CPU_ISA": limit}

    def found(environment):
        dtypes = [
            dtype
            for dtype in ("float32", "bfloat16", "float16")
            if onednn.fixes_weights(dtype, environment)
        ]
        return onednn.find_class(environment), dtypes

    assert found(environment) == expected
    off = environment | {"TF_ENABLE_ONEDNN_OPTS": "0"}
    assert found(off) == (expected[0], [])
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert found(environment) == ("", [])
