"""The other runtime: what becomes of its results, and of its failures."""

import numpy as np
import pytest

from bert_features.errors import BertFeaturesError, extra_requirement
from bert_features.extraction.extractor import FeatureExtractor
from bert_features.verify import other_runtime
from bert_features.verify.checks import TEXTS
from bert_features.verify.other_runtime import OtherRuntime
from tests.verify.reports import check_named, leave_checks, verify_toy


class Other:
    """Stands in for the process of the other runtime."""

    def __init__(self, states):
        self.states = states

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        pass


@pytest.mark.parametrize(("difference", "outcome"), [(0.0, "pass"), (1e-3, "fail")])
def test_the_other_runtime_must_agree(toy, monkeypatch, difference, outcome):
    extractor = FeatureExtractor.from_checkpoint(
        toy, layers=("embeddings", 0, 1, 2), max_seq_length=24, do_lower_case=True
    )
    states = [np.stack(list(r.features.values())) + difference for r in extractor(TEXTS)]
    monkeypatch.setattr(other_runtime, "unavailable_reason", lambda runtime: "")
    monkeypatch.setattr(other_runtime, "OtherRuntime", lambda *arguments: Other(lambda: states))
    leave_checks(monkeypatch, "runtimes")
    check = check_named(verify_toy(toy), "runtimes")
    assert check.outcome == outcome
    assert check.compared == "tensorflow here with jax on the CPU"


def test_without_jax_the_runtimes_are_not_compared(toy, monkeypatch):
    monkeypatch.setattr(other_runtime.importlib.util, "find_spec", lambda name: None)
    leave_checks(monkeypatch, "runtimes")
    check = check_named(verify_toy(toy), "runtimes")
    assert check.outcome == "skipped"
    assert check.compared == f"jax is not installed: pip install {extra_requirement('jax')}"


@pytest.mark.slow
def test_a_runtime_that_fails_says_why():
    with (
        OtherRuntime("tensorflow", TEXTS, {"checkpoint": "nowhere"}) as other,
        pytest.raises(BertFeaturesError, match="failed with status 1: there is no checkpoint 'no"),
    ):
        other.states()


def test_a_runtime_that_hangs_is_ended(monkeypatch):
    monkeypatch.setattr(other_runtime, "_TIMEOUT_SECONDS", 0.01)
    with OtherRuntime("tensorflow", TEXTS, {"checkpoint": "minilm"}) as other:
        with pytest.raises(BertFeaturesError, match="tensorflow runtime gave no result in"):
            other.states()
        assert other._process.poll() is None
    assert other._process.poll() is not None
