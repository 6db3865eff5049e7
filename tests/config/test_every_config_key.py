"""Each key of config.json, changed in each family: followed, without effect, or refused by name.

What the changes mean is what transformers computes with them.
"""

import re
from dataclasses import replace

import numpy as np
import pytest

from bert_features.checkpoints.read import read_weights
from bert_features.config.architectures import ARCHITECTURES, NEUTRAL
from bert_features.config.bert_config import BertConfig
from bert_features.errors import CheckpointError
from tests import families
from tests.reference.config_changes import FAMILIES, base, changes, keys
from tests.reference.numpy_encoder import NumpyEncoder
from tests.reference.settings_cases import DATA, IDS


@pytest.fixture(scope="module")
def stored():
    """Model type or name of a change -> the last layer of two tokens; None of one that fails."""
    with np.load(DATA / "config_changes.npz") as arrays:
        return {**arrays, **dict.fromkeys(arrays["failed"].tolist())}


def states(config, checkpoint):
    ids = np.array([IDS])
    encoder = NumpyEncoder(config, read_weights(replace(checkpoint, config=config)))
    return encoder(ids, np.ones_like(ids), np.zeros_like(ids))[-1][0, [0, -1]]


def test_each_key_of_the_reader_is_changed():
    known = {*BertConfig.model_fields, *NEUTRAL} - {"model_type"}
    for each in ARCHITECTURES.values():
        known |= {*each.keys, *each.older, *each.switches, *each.neutral.split()}
        known |= {*each.fixed_keys(), *each.unread.split(), *each.aliases.split()}
    assert known <= {*keys()}


@pytest.mark.parametrize("model_type", FAMILIES)
def test_each_change_means_the_same_as_to_transformers(model_type, stored):
    checkpoint = families.checkpoint(FAMILIES[model_type][0])
    usual = stored[model_type]
    computed, problems = {}, []
    for key, change, values in [("", model_type, base(model_type)), *changes(model_type)]:
        try:
            config = BertConfig.from_dict(values, family="huggingface", source="")
            if config not in computed:
                computed[config] = states(config, checkpoint)
        except CheckpointError as error:
            other_shapes = "does not hold the BERT encoder" in str(error) and change in stored
            if not other_shapes and not re.search(rf"\b{key}\b", str(error)):
                problems.append((change, str(error)))
            continue
        # A change that fails there may be without effect here.
        wanted = usual if stored.get(change, usual) is None else stored.get(change, usual)
        if not np.allclose(computed[config], wanted, rtol=0, atol=2e-6):
            problems.append((change, np.abs(computed[config] - wanted).max()))
    assert not problems
