"""Findings about environment variables."""

import pytest

from bert_features.doctor import environment
from tests.doctor.made_up_site import verdict


def test_only_what_matters_and_is_set():
    (finding,) = environment.check_environment(
        {
            "HOME": "/root",
            "TPU_NAME": "mine",
            "BERT_FEATURES_MIRROR": "https://user:secret@here/models",
        }
    )
    assert finding.details == {
        "TPU_NAME": "mine",
        "BERT_FEATURES_MIRROR": "https://…@here/models",
    }
    assert "secret" not in finding.found


@pytest.mark.parametrize(
    ("name", "value"), [("TF_USE_LEGACY_KERAS", "1"), ("BERT_FEATURES_MIRROR", "ftp://here")]
)
def test_what_does_harm(name, value):
    _, finding = environment.check_environment({name: value})
    assert verdict(finding) == ("warning", f"unset {name}")
