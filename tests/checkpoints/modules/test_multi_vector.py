"""What the files of a checkpoint for late interaction say, in three forms."""

import json
import string

import pytest

from bert_features import ExtractConfig, find_checkpoint
from bert_features.extraction.recipe import plan_recipe
from tests.cli.command_line import run
from tests.multi_vector import KIND, write

MASKS = {"length": 12, "token": None, "attended": False}
WANTED = {
    "classic": {
        "form": "sentence-transformers",
        "width": 8,
        "query": {"prompt": "[unused0] ", "length": 12, "fill": MASKS},
        "document": {"prompt": "[unused1] ", "length": 16, "skip_words": tuple(string.punctuation)},
        "normalized": True,
        "similarity": "maxsim",
    },
    "plain": {
        "form": "sentence-transformers",
        "width": 6,
        "query": {
            "prompt": "query: ",
            "length": 14,
            "skip_words": ("the", "none"),
            "fill": {"length": 9, "token": "bank", "attended": True},
        },
        "document": {"length": 20},
        "normalized": False,
        "similarity": "meanmaxsim",
    },
    "pylate": {
        "form": "PyLate",
        "width": 8,
        "query": {"prompt": "[Q] ", "length": 10, "fill": MASKS | {"length": 10}},
        "document": {"prompt": "[D] ", "length": 18, "skip_words": (".", ",")},
        "normalized": True,
        "similarity": "maxsim",
    },
    "stanford": {
        "form": "Stanford",
        "width": 8,
        "query": {"prompt": "[unused0] ", "length": 12, "fill": MASKS | {"attended": True}},
        "document": {"prompt": "[unused1] ", "length": 15, "skip_words": tuple(string.punctuation)},
        "normalized": True,
        "similarity": "maxsim",
    },
}


@pytest.mark.parametrize("name", WANTED)
def test_the_settings_of_a_folder_are_read_and_shown(tmp_path, name):
    folder = write(name, tmp_path / "in")
    found = find_checkpoint(folder)
    assert found.multi_vector.describe() == WANTED[name]
    assert json.loads(run("inspect", folder, "--json").stdout)["multi_vector"]["width"]
    # A folder of the same encoder with another projection is another checkpoint.
    other = write(name, tmp_path / "other")
    (weights,) = {*find_checkpoint(other).dense.values()} - {other / "2_Dense/model.safetensors"}
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    before, changed = (
        plan_recipe(ExtractConfig(outputs=[KIND]), each).checkpoint
        for each in (found, find_checkpoint(other))
    )
    assert before["sha256"] == changed["sha256"]
    assert before["heads"] != changed["heads"]


# What a PyLate folder may leave out or say, and the expansion and the skip list that follow.
PYLATE = [
    ({"do_query_expansion": False}, None, 2),
    ({"model_type": None}, (10, None, False), 2),
    ({"attend_to_expansion_tokens": True, "query_length": None}, (32, None, True), 2),
    ({"query_expansion": None}, None, 2),
    ({"skiplist_words": None}, (10, None, False), len(string.punctuation)),
]


@pytest.mark.parametrize(("changes", "fill", "skipped"), PYLATE)
def test_what_pylate_leaves_out_has_its_defaults(tmp_path, changes, fill, skipped):
    folder = write("pylate", tmp_path / "in", config_sentence_transformers=changes)
    settings = find_checkpoint(folder).multi_vector
    found = settings.query.fill
    assert (found and (found.length, found.token, found.attended)) == fill
    # Without expansion queries are cut as long as with it.
    assert settings.query.length == (32 if "query_length" in changes else 10)
    assert len(settings.document.skip_words) == skipped


def test_a_stanford_folder_without_metadata_has_colberts_values(tmp_path):
    folder = write("stanford", tmp_path / "in")
    (folder / "artifact.metadata").write_text("{}")
    settings = find_checkpoint(folder).multi_vector
    assert (settings.query.fill.length, settings.query.fill.attended) == (32, False)
    (folder / "artifact.metadata").write_text('{"similarity": "l2"}')
    reason = find_checkpoint(folder).multi_vector.unsupported
    assert reason.endswith("artifact.metadata: similarity is 'l2'; allowed: 'cosine'")
    shown = run("inspect", folder).stdout
    assert "multi-vector unsupported" in shown
