"""Kind `multi_vector`: late interaction, compared with sentence-transformers and NumPy."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file

from bert_features import FeatureExtractor, find_checkpoint
from bert_features.checkpoints.read import read_weights
from bert_features.errors import CheckpointError, ConfigError
from tests.multi_vector import KIND, NAMES, SIDES, TEXTS, scores, vectors, write
from tests.reference.late_interaction import late_vectors, max_sim
from tests.reference.numpy_encoder import NumpyEncoder

pytestmark = pytest.mark.usefixtures("kept_steps")


def close(got, wanted, atol=1e-5):
    np.testing.assert_allclose(got, wanted, rtol=0, atol=atol)


def encoded(extractor, side, texts=TEXTS, output=None):
    encode = {"query": extractor.encode_query, "document": extractor.encode_document}[side]
    values, splits = encode(texts, output, ragged=True)
    return np.split(values, splits[1:-1])


@pytest.mark.parametrize("name", NAMES)
def test_both_sides_are_those_of_sentence_transformers(tmp_path, name):
    """Four folders: saved by it, with text prompts and residuals, by PyLate, and by Stanford."""
    extractor = FeatureExtractor.from_checkpoint(write(name, tmp_path / "in"), **KIND)
    found = {side: encoded(extractor, side) for side in SIDES}
    for side, computed in found.items():
        wanted = vectors(name, side)
        assert list(map(len, computed)) == list(map(len, wanted))
        close(np.concatenate(computed), np.concatenate(wanted))
    factor = [len(query) if name == "plain" else 1 for query in found["query"]]  # a mean there
    computed = [[max_sim(q, d) for d in found["document"]] for q in found["query"]]
    close(np.array(computed) / np.array(factor)[:, None], scores(name), atol=1e-4)
    # Without a word about the side texts are documents.
    close(np.concatenate(encoded(extractor, "document")), extractor.encode(TEXTS, ragged=True)[0])


def test_queries_and_documents_are_as_colbert_defines_them(tmp_path):
    """[CLS] marker text [SEP]; a query is filled with [MASK], which no other token sees."""
    folder = write("classic", tmp_path / "in")
    extractor = FeatureExtractor.from_checkpoint(folder, **KIND)
    checkpoint = find_checkpoint(folder)
    encoder = NumpyEncoder(checkpoint.config, read_weights(checkpoint))
    linear = load_file(folder / "1_Dense" / "model.safetensors")["linear.weight"]
    river_bank = [7, 8, 10]
    query = [2, 5, *river_bank, 3, *[4] * 6]
    wanted = late_vectors(encoder, query, linear=linear, unseen=6)
    close(encoded(extractor, "query", ["the river bank"])[0], wanted)
    document = [2, 6, *river_bank, 17, 3]  # and a full stop
    (found,) = encoded(extractor, "document", ["the river bank."])
    close(found, late_vectors(encoder, document, linear=linear, skipped=[17]))
    assert len(found) == 6


CHANGES = [
    ({"2_MultiVectorMask__config": {"keep_only_token_ids": [3]}}, "keep_only_token_ids is [3]"),
    ({"1_Dense__config": {"module_input_name": "sentence_embedding"}}, "module_input_name is"),
    ({"1_Dense__config": {"activation_function": "mine.Tanh"}}, "activation_function is"),
    ({"sentence_bert_config": {"do_lower_case": True}}, "do_lower_case is True"),
    ({"sentence_bert_config": {"query_length": 4}}, "query_length is 4"),
    ({"sentence_bert_config": {"query_expansion": {"strategy": "max"}}}, "strategy is 'max'"),
    ({"2_MultiVectorMask__config": {"skiplist_tasks": ["image"]}}, "skiplist_tasks is ['image']"),
]


@pytest.mark.parametrize(("changes", "message"), CHANGES, ids=[m for _, m in CHANGES])
def test_settings_that_would_change_the_numbers_are_refused_by_name(tmp_path, changes, message):
    folder = write("classic", tmp_path / "in", **changes)
    with pytest.raises(CheckpointError, match=r"^multi-vectors are unavailable: ") as raised:
        FeatureExtractor.from_checkpoint(folder, **KIND)
    assert message in str(raised.value)
    assert find_checkpoint(folder).multi_vector.unsupported  # and its layers can be computed


def test_what_a_run_may_not_ask_for(tmp_path, toy):
    folder = write("classic", tmp_path / "in")
    refused = {
        "needs a checkpoint for late interaction": {"checkpoint": toy, "do_lower_case": True},
        "max_seq_length is 8; queries of this checkpoint have at least 12": {"max_seq_length": 8},
        "normalize has no meaning for kind 'multi_vector'": {"normalize": True},
        "level is 'word'; allowed for kind 'multi_vector': token": {"level": "word"},
        "layers has no meaning for kind 'multi_vector'": {"layers": [-1]},
    }
    for message, settings in refused.items():
        with pytest.raises(ConfigError) as raised:
            FeatureExtractor.from_checkpoint(**{"checkpoint": folder, **KIND, **settings})
        assert message in str(raised.value)
    # Modules that are not known, by their names.
    modules = json.loads((folder / "modules.json").read_text())
    modules[1]["type"] = "sentence_transformers.multi_vector_encoder.modules.HierarchicalPooling"
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(CheckpointError, match="HierarchicalPooling"):
        FeatureExtractor.from_checkpoint(folder, **KIND)
