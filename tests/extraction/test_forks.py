"""Which processes are forks of one that has imported TensorFlow; `tests/serving` has some."""

import importlib.util
from multiprocessing.context import ForkServerContext
from unittest.mock import Mock

import pytest

from bert_features.config.extract_config import ExtractConfig
from bert_features.extraction import forks
from bert_features.machine import quiet_tensorflow


@pytest.mark.parametrize(
    ("change", "method"),
    [
        ({}, "forkserver"),
        ({"is_own_process": lambda: False}, "spawn"),
        ({"nvidia_gpus": lambda: 1}, "spawn"),
        ({"tpu_chips": lambda: 4}, "spawn"),
        ({"choose_runtime": lambda runtime, device: "jax"}, "spawn"),
    ],
)
def test_the_processes_of_a_command_on_a_cpu_are_forks(monkeypatch, change, method):
    monkeypatch.setattr(quiet_tensorflow, "_is_own_process", True)
    preload = Mock()  # the true one would hold for all tests of this process
    monkeypatch.setattr(ForkServerContext, "set_forkserver_preload", preload)
    for name, value in change.items():
        monkeypatch.setattr(forks, name, value)
    assert forks.process_context(ExtractConfig()).get_start_method() == method
    assert [call.args[0] for call in preload.call_args_list] == (
        [[forks.PRELOADED]] if method == "forkserver" else []
    )


def test_what_is_preloaded_exists():
    """Python reads past a module that it does not find."""
    assert importlib.util.find_spec(forks.PRELOADED)
