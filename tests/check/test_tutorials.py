"""The numbers of the tutorials: by a small random checkpoint and expected values of its own."""

import json

import numpy as np
import pytest

from bert_features.check import tutorials
from bert_features.check.tutorials import check_tutorials
from bert_features.checkpoints.find import find_checkpoint
from bert_features.config.bert_config import BertConfig
from tests.families import folder
from tests.reference.numpy_encoder import NumpyEncoder
from tests.reference.tf1_checkpoint import write_directory
from tests.toy import random_weights

DATA = json.loads(
    (tutorials.files("bert_features.check") / "tutorials.json").read_text(encoding="utf-8")
)
SETTINGS = {"hidden_act": "gelu_erf", "do_lower_case": True, "device": "cpu"}


@pytest.fixture(scope="module")
def vocabulary(minilm_dir):
    """That of bert-base-uncased, which MiniLM has."""
    return find_checkpoint("minilm").vocab_file.read_text(encoding="utf-8").split("\n")[:-1]


@pytest.fixture(scope="module")
def config():
    return BertConfig(
        vocab_size=30522,
        hidden_size=12,
        num_hidden_layers=4,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=40,
        hidden_act="gelu_erf",
    )


@pytest.fixture(scope="module")
def expected(config):
    """What a tutorial would print of the random checkpoint, with segment 1: float64 NumPy."""
    encoder = NumpyEncoder(config, random_weights(config, scale=0.5))
    ids = np.array([DATA["texts"][0]["ids"]])
    _, *blocks = encoder(ids, np.ones_like(ids), np.ones_like(ids))
    vectors, places = sum(blocks[-4:])[0], DATA["positions"]

    def cosine(names):
        a, b = (vectors[places[name]] for name in names.split(", "))
        return round(float(a @ b / np.linalg.norm(a) / np.linalg.norm(b)), 4)

    edition = {
        "about": "its own",
        "first_values": {n: vectors[place][:6].round(4).tolist() for n, place in places.items()},
        "first_block": {"0": blocks[0][0][0][:3].round(4).tolist()},
        "cosine": {names: cosine(names) for names in DATA["editions"]["2019"]["cosine"]},
    }
    size = {"name": "a small one", "hidden_size": 12, "num_hidden_layers": 4}
    return DATA | {"checkpoint": size, "editions": {"its": edition}}


def rows(folder, expected, **settings):
    found = check_tutorials(str(folder), expected=expected, **(SETTINGS | settings))
    return {finding.check: finding for finding in found}


def write(folder, config, vocabulary, weights):
    return write_directory(folder, config, vocabulary, weights)


def test_a_checkpoint_agrees_by_the_segment_of_its_numbers(tmp_path, config, vocabulary, expected):
    folder = write(tmp_path / "c", config, vocabulary, random_weights(config, scale=0.5))
    found = rows(folder, expected)
    assert found["tutorials"].details["agrees"] == [{"edition": "its", "segment": 1}]
    assert found["river bank, segment 1"].status == "ok"
    assert found["river bank, segment 0"].status == "note"
    assert "agrees with its with segment 1 (its own)" in found["tutorials"].found
    assert not [f for f in found.values() if f.status == "broken"]


@pytest.mark.parametrize(
    ("change", "block_differs"),
    [("another third block", False), ("tanh", False), ("another vocabulary", True)],
)
def test_what_is_wrong_fails_at_its_row(
    tmp_path, config, vocabulary, expected, change, block_differs
):
    weights, settings = random_weights(config, scale=0.5), {}
    if change == "another third block":
        weights["encoder/layer_2/attention/output/dense/bias"][0] += 0.1
    elif change == "tanh":
        settings["hidden_act"] = "gelu_tanh"
    else:  # the words of a cased one are at other places
        vocabulary = [*vocabulary[:2000], *vocabulary[:1999:-1]]
    folder = write(tmp_path / "c", config, vocabulary, weights)
    found = rows(folder, expected, **settings)
    assert found["tutorials"].status == found["river bank, segment 1"].status == "broken"
    row = found["largest difference from its, segment 1"].found
    values, block = (float(part.rpartition(" ")[2]) for part in row.split("; "))
    assert values > 3e-4
    assert (block > 3e-4) is block_differs
    is_wrong = change == "another vocabulary"
    assert (found["tutorials, pieces of bank"].status == "broken") is is_wrong


def test_a_cased_vocabulary_fails_at_the_pieces(tmp_path, config, vocabulary, expected):
    cased = [{"[unused5]": "Paris", "[unused6]": "I"}.get(piece, piece) for piece in vocabulary]
    folder = write(tmp_path / "c", config, cased, random_weights(config, scale=0.5))
    found = rows(folder, expected, do_lower_case=False)
    pieces = found["tutorials, pieces of paris"]
    assert (pieces.status, "or its casing" in pieces.found) == ("broken", True)


@pytest.mark.slow
def test_another_checkpoint_has_its_own_numbers_and_the_ids_of_the_vocabulary(minilm_dir):
    found = {f.check: f for f in check_tutorials(device="cpu")}
    assert [f.status for f in found.values()][:4] == ["ok"] * 4  # pieces and shapes
    assert {f.status for f in [*found.values()][4:]} == {"note"}
    assert "these are of bert-base" not in found["tutorials"].found
    assert "and this is another checkpoint" in found["tutorials"].found
    assert "2019: 2.1319 -2.1413 -1.6260 0.8638 3.3173; 2020: 3.3596" in (
        found["bank vault, segment 1"].found
    )


@pytest.mark.slow
def test_a_vocabulary_of_another_size_is_another_checkpoint(tmp_path, config, vocabulary, expected):
    folder = write(tmp_path / "c", config, vocabulary, random_weights(config, scale=0.4))
    cased = expected["checkpoint"] | {"vocab_size": 28996}
    assert DATA["checkpoint"]["vocab_size"] == config.vocab_size
    assert rows(folder, expected)["tutorials"].status == "broken"
    assert rows(folder, expected | {"checkpoint": cased})["tutorials"].status == "note"


def test_a_family_without_segments_is_another_checkpoint(tmp_path):
    found = check_tutorials(str(folder("roberta", tmp_path)), expected=DATA | {"last_layers": 2})
    assert [(each.check, each.status) for each in found] == [("tutorials", "note")]
