"""What files record of a run, and the settings that come back from it."""

from types import SimpleNamespace

import pytest

from bert_features.errors import OutputError
from bert_features.extraction.description import restore_config

RECORDED = {"checkpoint": "uncased_x", "max_seq_length": 8}
OWN = dict.fromkeys(("checkpoint", "config_file", "vocab_file"))


def restore(metadata, **named):
    return restore_config(SimpleNamespace(path="f.npz", metadata=metadata), OWN | named)


def test_the_settings_of_a_file_come_back():
    metadata = {"checkpoint": "sha256:ab", "config": RECORDED}
    config = restore(metadata)
    assert (config.checkpoint, config.max_seq_length) == ("uncased_x", 8)
    assert restore(metadata, checkpoint="moved").checkpoint == "moved"


@pytest.mark.parametrize(
    "metadata",
    [{}, {"checkpoint": "x"}, {"config": RECORDED}, {"checkpoint": "x", "config": "none"}],
)
def test_a_file_without_settings(metadata):
    with pytest.raises(OutputError, match=r"f\.npz does not record how its features were made"):
        restore(metadata)
