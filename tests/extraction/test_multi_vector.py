"""Kind `multi_vector`: late interaction, compared with sentence-transformers and NumPy."""

import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file

from bert_features import (
    ExtractConfig,
    FeatureExtractor,
    extract,
    find_checkpoint,
    plan,
    read_features,
)
from bert_features.checkpoints.convert import convert
from bert_features.checkpoints.modules.sentence_transformers import read_dense
from bert_features.checkpoints.read import read_weights
from bert_features.errors import CheckpointError, ConfigError
from bert_features.export.savedmodel import export_savedmodel
from tests import families
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
    queries, documents = extractor.encode_query(TEXTS), extractor.encode_document(TEXTS)
    similarity = extractor.similarity(queries, documents)
    assert similarity.dtype == np.float32
    close(similarity, scores(name), atol=1e-4)
    ragged = extractor.encode_document(TEXTS, ragged=True)
    single = extractor.encode_query(TEXTS[1])
    close(extractor.similarity(single, ragged), scores(name)[[1]], atol=1e-4)
    with pytest.raises(ConfigError, match="function is 'cosine'"):
        extractor.similarity(queries, documents, function="cosine")
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


def test_queries_longer_than_the_window_of_their_tokens(tmp_path):
    """Copies of [MASK] that attend to nothing, in ModernBERT: their attention is zero."""
    folder = families.folder("modernbert", tmp_path)
    config = json.loads((folder / "config.json").read_text()) | {"local_attention": 4}
    (folder / "config.json").write_text(json.dumps(config))
    classic = write("classic", tmp_path / "classic", config_sentence_transformers={"prompts": {}})
    for name in ("tokenizer.json", "tokenizer_config.json", "config.json", "model.safetensors"):
        (classic / name).unlink()
    shutil.copytree(classic, folder, dirs_exist_ok=True)
    extractor = FeatureExtractor.from_checkpoint(folder, **KIND)
    query = [2, *extractor.tokenizer.encode_ids(["the a"])[0], 3]
    checkpoint = find_checkpoint(folder)
    encoder = NumpyEncoder(checkpoint.config, read_weights(checkpoint))
    linear = load_file(folder / "1_Dense" / "model.safetensors")["linear.weight"]
    assert (len(query), extractor.tokenizer.frame.mask_id) == (4, 4)
    wanted = late_vectors(encoder, [*query, *[4] * 8], linear=linear, unseen=8)
    close(encoded(extractor, "query", ["the a"])[0], wanted)


CHANGES = [
    ({"1_Dense__config": {"module_input_name": "sentence_embedding"}}, "module_input_name is"),
    ({"sentence_bert_config": {"do_lower_case": True}}, "do_lower_case is True"),
    ({"sentence_bert_config": {"query_length": 4}}, "query_length is 4"),
    ({"sentence_bert_config": {"query_expansion": {"strategy": "max"}}}, "strategy is 'max'"),
]


@pytest.mark.parametrize(("changes", "message"), CHANGES, ids=[m for _, m in CHANGES])
def test_settings_that_would_change_the_numbers_are_refused_by_name(tmp_path, changes, message):
    folder = write("classic", tmp_path / "in", **changes)
    with pytest.raises(CheckpointError, match="multi-vectors") as raised:
        FeatureExtractor.from_checkpoint(folder, **KIND)
    assert message in str(raised.value)
    assert find_checkpoint(folder).multi_vector.unsupported  # and its layers can be computed


def test_what_a_run_may_not_ask_for(tmp_path):
    folder = write("classic", tmp_path / "in")
    with pytest.raises(ConfigError, match="max_seq_length is 8"):
        FeatureExtractor.from_checkpoint(folder, **KIND, max_seq_length=8)
    # Modules that are not known, by their names.
    modules = json.loads((folder / "modules.json").read_text())
    modules[1]["type"] = "sentence_transformers.multi_vector_encoder.modules.HierarchicalPooling"
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(CheckpointError, match="HierarchicalPooling"):
        FeatureExtractor.from_checkpoint(folder, **KIND)


OUTPUTS = [
    {"name": "late", **KIND},
    {"name": "int8", **KIND, "dtype": "int8", "scale_from": 3},
    {"name": "bits", **KIND, "dtype": "binary"},
    {"name": "states", "layers": [-1]},
    {"name": "dense", "level": "sequence", "pooling": "cls", "layers": [-1]},
    {"name": "attention", "kind": "attention", "layers": [-1]},
]


def test_no_other_column_looks_like_a_vector(tmp_path):
    """LanceDB makes vectors of all lists of numbers whose names contain `vector` or `embedding`."""
    folder = write("classic", tmp_path / "in")
    (tmp_path / "in.txt").write_text("".join(f"{text}\n" for text in TEXTS))
    settings = ExtractConfig.of({"checkpoint": str(folder), **KIND})
    extract(settings, tmp_path / "in.txt", tmp_path / "out.parquet")
    names = read_features(tmp_path / "out.parquet").to_arrow().column_names
    assert names == ["unique_id", "scored_tokens", "scored_token_ids", "multi_vector"]


def test_dense_tokens_attention_and_multi_vectors_come_from_one_pass(tmp_path):
    """The vectors are those of the tokens, projected: without the skip list, of length 1."""
    folder = write("classic", tmp_path / "in")
    linear = load_file(folder / "1_Dense" / "model.safetensors")["linear.weight"]
    (tmp_path / "in.txt").write_text("".join(f"{text}\n" for text in TEXTS))
    settings = ExtractConfig.of({"checkpoint": str(folder), "outputs": OUTPUTS})
    extract(settings, tmp_path / "in.txt", tmp_path / "out.npz")
    planned = plan(settings, tmp_path / "in.txt")
    records = list(read_features(tmp_path / "out.npz"))
    floats = list(read_features(tmp_path / "out.npz", floats=True))
    sizes = 0
    for record, restored, wanted in zip(
        records, floats, vectors("classic", "document"), strict=True
    ):
        kept = [token not in ".,?" for token in record.tokens]
        projected = record.features["states"][kept] @ linear.T
        projected /= np.linalg.norm(projected, axis=1, keepdims=True)
        close(record.features["late"], projected)
        close(record.features["late"], wanted)
        close(record.features["dense"], record.features["states"][0])
        units = record.units["vector"]
        assert units["scored_tokens"] == tuple(np.array(record.tokens)[kept])
        assert units["scored_token_ids"].tolist() == record.token_ids[kept].tolist()
        assert record.features["attention"].shape == (2, len(kept), len(kept))
        if record.unique_id < 3:  # whose scale int8 has: half a step of them, at most
            assert np.abs(restored.features["int8"] - wanted).max() < 1 / 255
        bits = np.unpackbits(record.features["bits"], axis=1, count=8)
        assert (bits == (record.features["late"] > 0)).all()
        assert record.features["int8"].dtype == np.int8
        sizes += sum(record.features[name].nbytes for name in record.features)
    assert planned.output_bytes("npz") == sizes


def test_long_documents_in_windows_have_each_token_once(tmp_path):
    """From the row that owns it, as tokens; a query is cut and filled all the same."""
    folder = write("classic", tmp_path / "in")
    extractor = FeatureExtractor.from_checkpoint(
        folder, outputs=[OUTPUTS[0], OUTPUTS[3]], long_text="window", max_seq_length=14
    )
    linear = load_file(folder / "1_Dense" / "model.safetensors")["linear.weight"]
    (record,) = extractor([f"{TEXTS[3]} {TEXTS[3]}"])
    assert record.tokens.count("[CLS]") == record.tokens.count("[SEP]") == 1
    assert len(record.tokens) > 2 * 14
    kept = [token not in ".,?" for token in record.tokens]
    projected = record.features["states"][kept] @ linear.T
    projected /= np.linalg.norm(projected, axis=1, keepdims=True)
    close(record.features["late"], projected)
    found = encoded(extractor, "query", output="late")
    close(np.concatenate(found), np.concatenate(vectors("classic", "query")))


def test_queries_share_no_entry_of_a_cache_with_documents(tmp_path):
    folder = write("classic", tmp_path / "in")
    (tmp_path / "in.txt").write_text("".join(f"{text}\n" for text in TEXTS if text))
    cached = {"checkpoint": str(folder), **KIND, "cache": str(tmp_path / "cache")}
    for name, prompt in (("documents", None), ("queries", "query")):
        settings = ExtractConfig(**cached, prompt=prompt)
        extract(settings, tmp_path / "in.txt", tmp_path / f"{name}.npz")
    file = read_features(tmp_path / "queries.npz")
    assert file.recipe.texts["task"] == "query"
    assert {len(record.features["multi_vector"]) for record in file} == {12}


def test_documents_may_pack_and_queries_may_not(tmp_path):
    folder = write("classic", tmp_path / "in")
    assert not FeatureExtractor.from_checkpoint(folder, **KIND).preparation.packing
    packed = FeatureExtractor.from_checkpoint(folder, **KIND, packing=True)
    close(packed.encode(TEXTS, ragged=True)[0], np.concatenate(vectors("classic", "document")))
    with pytest.raises(ConfigError, match="filled with tokens"):
        packed.encode_query(TEXTS)


def test_copies_keep_the_projection(tmp_path):
    """`convert` writes modules and weights; an export and a Keras layer have no multi-vectors."""
    folder = write("plain", tmp_path / "in")
    convert(find_checkpoint(folder), tmp_path / "copy", to="safetensors")
    copy, own = find_checkpoint(tmp_path / "copy"), find_checkpoint(folder)
    assert copy.multi_vector.modules == own.multi_vector.modules
    for name, values in read_dense(own, own.dense).items():
        np.testing.assert_array_equal(read_dense(copy, copy.dense)[name], values)
    with pytest.raises(ConfigError, match="'multi_vector'"):
        export_savedmodel(tmp_path / "export", checkpoint=own, outputs=[KIND])


def test_a_query_that_is_cut_is_said_with_its_own_length(tmp_path, caplog):
    """The limit of queries is in the checkpoint's files, and no setting changes it."""
    caplog.set_level("INFO", "bert_features")
    folder = write("stanford", tmp_path / "in")
    extractor = FeatureExtractor.from_checkpoint(folder, **KIND)
    assert "ignoring the heads" not in caplog.text  # the projection is used
    extractor.encode_query(["a " * 30, "a"])
    assert (
        f"1 of 2 queries did not fit the 12 tokens that the files of {folder} allow a query, and "
        "lost 21 tokens; ask in fewer words" in caplog.text
    )


def test_a_document_that_is_cut_is_said_with_its_own_length(tmp_path, caplog):
    """Queries may be longer than documents, and so may rows."""
    path = write("stanford", tmp_path / "in") / "artifact.metadata"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"query_maxlen": 24}))
    FeatureExtractor.from_checkpoint(path.parent, **KIND).encode_document(["a " * 30, "a"])
    assert (
        "1 of 2 texts did not fit max_seq_length 15 and lost 18 tokens; to keep more, pass "
        "long_text='window' or max_seq_length=24" in caplog.text
    )
