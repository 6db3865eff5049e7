"""Sparse vectors: equal to SparseEncoder's, in windows, files, searches and answers."""

import json
import logging
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from bert_features import ExtractConfig, FeatureExtractor, extract, nearest, plan, read_features
from bert_features.checkpoints.convert import convert
from bert_features.checkpoints.find import find_checkpoint
from bert_features.errors import BertFeaturesError, CheckpointError, ConfigError, OutputError
from bert_features.readers.input_example import InputExample
from tests import sparse_encoder
from tests.serving.conftest import make_client
from tests.serving.over_http import make_service
from tests.sparse_encoder import TEXTS, VECTORS

V = 17
BARE = str(sparse_encoder.WEIGHTS)
OUTPUT = {"kind": "sparse"}


def make(checkpoint=BARE, **settings):
    return FeatureExtractor.from_checkpoint(str(checkpoint), **{**OUTPUT, **settings})


@pytest.mark.slow
@pytest.mark.parametrize("name", sparse_encoder.CASES)
def test_documents_and_queries_are_those_of_sparse_encoder(tmp_path, name):
    extractor = make(sparse_encoder.write(name, tmp_path / name))
    assert extractor.config.max_seq_length == 24
    got = sparse_encoder.dense(extractor(TEXTS), V)
    np.testing.assert_allclose(got, VECTORS[name], rtol=1e-5, atol=1e-5)
    queries = VECTORS.get(f"{name}_queries", VECTORS[name])
    found = extractor.encode_query(TEXTS)
    products = found.toarray().astype(np.float64) @ got.astype(np.float64).T
    similarity = extractor.similarity(found, extractor.encode_document(TEXTS))
    assert (type(similarity), similarity.dtype) == (np.ndarray, np.float32)
    np.testing.assert_allclose(similarity, products, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found.toarray(), queries, rtol=1e-5, atol=1e-5)


def test_a_table_of_weights_by_piece(tmp_path):
    folder = sparse_encoder.write("inference_free", tmp_path / "idf")
    (folder / "query_0_SparseStaticEmbedding" / "model.safetensors").unlink()
    (folder / "idf.json").write_text(json.dumps({"boat": 1.5, "river": 0.25}))
    found = make(folder, pooling="lookup", min_weight=0.3).encode(["a river boat boat"])
    assert (found.indices.tolist(), found.data.tolist()) == ([7], [1.5])
    convert(find_checkpoint(folder), tmp_path / "converted", to="safetensors")
    converted = make(tmp_path / "converted", pooling="lookup", min_weight=0.3)
    assert (converted.encode(["boat"]).toarray() == found.toarray()).all()
    (folder / "idf.json").write_text(json.dumps({"ship": 1.5}))
    with pytest.raises(CheckpointError, match=r"tokenizer\.json"):
        make(folder)


def test_a_special_token_in_a_text_is_text_for_documents_as_for_queries(tmp_path):
    folder = sparse_encoder.write("inference_free", tmp_path / "uncased")
    for extractor in (make(folder), make(folder, pooling="lookup")):
        marked, text = extractor.encode(
            ["a [MASK] boat [SEP]", "a [ mask ] boat [ sep ]"]
        ).toarray()
        np.testing.assert_allclose(marked, text, rtol=0, atol=1e-5)


def test_rows_of_the_table_behind_the_vocabulary_are_no_terms(tmp_path, caplog):
    """As where the table is filled up to a multiple of 8; the rows have large logits here."""
    folder = shutil.copytree(BARE, tmp_path / "uncased")
    tensors = load_file(folder / "model.safetensors")
    for name, value in tensors.items():
        if value.shape[:1] == (V,):
            tensors[name] = np.concatenate([value, np.full((24 - V, *value.shape[1:]), 9.0, "f4")])
    save_file(tensors, folder / "model.safetensors")
    values = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(values | {"vocab_size": 24}))
    caplog.set_level(logging.INFO, "bert_features")
    found = make(folder, top_k=24).encode(TEXTS).toarray()
    assert found.shape[1] == 24
    assert not found[:, V:].any()
    np.testing.assert_allclose(found[:, :V], VECTORS["splade"], rtol=1e-5, atol=1e-5)
    assert sum("rows more than" in line for line in caplog.messages) == 1


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("1_SpladePooling/config.json", {"pooling_strategy": "mean"}, "is 'mean'"),
        ("1_SpladePooling/config.json", {"gamma": 2}, "gamma is 2; allowed: None"),
        ("sentence_bert_config.json", {"transformer_task": "x"}, "allowed: 'fill-mask'"),
        ("config_sentence_transformers.json", {"max_active_dims": "x"}, "max_active_dims is 'x'"),
    ],
)
def test_settings_of_a_folder_that_are_not_followed(tmp_path, file, change, message):
    path = sparse_encoder.write("splade", tmp_path / "f") / file
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(CheckpointError, match=message):
        make(path.parents[1] if "/" in file else path.parent)


@pytest.mark.slow
def test_the_heaviest_terms_are_kept_and_the_others_counted(caplog):
    with caplog.at_level(logging.WARNING, "bert_features"):
        got = sparse_encoder.dense(make(top_k=4, min_weight=0.7)(TEXTS), V)
    wanted = VECTORS["splade"]
    wanted = np.where(wanted > 0.7, wanted, 0)
    np.testing.assert_allclose(got, sparse_encoder.heaviest(wanted, 4), rtol=1e-5, atol=1e-5)
    cut = np.maximum((wanted > 0).sum(1) - 4, 0).sum()
    assert cut
    assert f"{cut} terms of 6 texts were lighter than the top_k heaviest" in caplog.text


@pytest.mark.slow
def test_of_several_windows_a_term_has_its_largest_weight():
    extractor = make(top_k=3, long_text="window", max_seq_length=8, stride=2)
    example = InputExample(0, "the river boat of a bank is this money " * 2)
    (whole,) = extractor([example])
    (megabatch,) = extractor.preparation.input_fn(lambda: [example]).megabatches()
    rows = np.split(megabatch.columns["values"], megabatch.columns["lengths"].cumsum()[:-1])
    texts = [" ".join(extractor.pieces[row[1:-1]]) for row in rows]
    assert len(texts) > 2
    windows = sparse_encoder.dense(make(max_seq_length=8)(texts), V)
    wanted = sparse_encoder.heaviest(windows.max(0, keepdims=True), 3)
    found = sparse_encoder.dense([whole], V)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.release
def test_files_searches_and_answers(tmp_path):
    folder = sparse_encoder.write("inference_free", tmp_path / "model")
    last = {"layers": [-1]}
    outputs = [
        {**OUTPUT, "name": "sparse"},
        {**last, "name": "mean", "level": "sequence", "special_tokens": False},
        {**last, "name": "span", "level": "span"},
    ]
    settings = {"checkpoint": str(folder), "outputs": outputs, "spans": "99"}
    config = ExtractConfig.of(settings)
    texts = [text for text in TEXTS if text] + [TEXTS[0]]
    (source := tmp_path / "in.txt").write_text("".join(text + "\n" for text in texts))
    wanted = VECTORS["inference_free"][[0, 2, 3, 4, 5, 0]]
    extractor = FeatureExtractor(config)
    for suffix in (".npz", ".jsonl", ".parquet"):
        extract(config, source, tmp_path / f"out{suffix}")
        with read_features(tmp_path / f"out{suffix}") as file:
            found = file.sparse().toarray()
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
            np.testing.assert_allclose(file[2:4].sparse().toarray(), found[2:4])
            np.testing.assert_allclose(sparse_encoder.dense(list(file), V), found, atol=1e-6)
            for record in file:  # one span, the whole text
                wanted_mean = record.features["mean"][None]
                np.testing.assert_allclose(record.features["span"], wanted_mean, atol=1e-5)
            terms = file[0].units["term"]["terms"]
            assert terms[0] == extractor.pieces[wanted[0].argmax()]
            with pytest.raises(OutputError, match="mean has kind 'layers'"):
                file.sparse("mean")

    planned = plan(config, source)
    sizes = [planned.output_bytes("npz", name) for name in ("sparse", "mean", "span")]
    assert sizes == [6 * V * (4 + 4), 6 * 16 * 4, 6 * 16 * 4]
    assert planned.output_bytes("npz") == sum(sizes)

    file = read_features(tmp_path / "out.parquet")
    query = "the river boat"
    products = wanted.astype(np.float64) @ extractor.encode_query([query], "sparse").toarray()[0]
    order = np.argsort(-products, kind="stable")
    hits = nearest(file, query, feature="sparse", top=4)
    assert [hit.unique_id for hit in hits] == order[:4].tolist()
    np.testing.assert_allclose([hit.similarity for hit in hits], products[order[:4]], rtol=1e-6)
    for wrong in ({"similarity": "cosine"}, {"token": "boat"}):
        with pytest.raises(ConfigError, match="the dot product compares"):
            nearest(file, query, feature="sparse", **wrong)
    with pytest.raises(ConfigError, match="query 0 has no terms"):
        nearest(file, "", feature="sparse")

    client = make_client(make_service(extractor))
    body = {"texts": texts, "outputs": ["sparse"]}
    answer = client.post("/v1/features", json=body).json()
    for result, row in zip(answer["results"], wanted, strict=True):
        weights = result["features"]["sparse"]
        assert [*weights] == sorted(weights, key=weights.get, reverse=True)
        ids = [extractor.pieces.tolist().index(term) for term in weights]
        np.testing.assert_allclose([*weights.values()], row[ids], rtol=1e-5)


def test_the_folder_is_dense_for_nobody(tmp_path):
    folder = sparse_encoder.write("splade", tmp_path / "f")
    with pytest.raises(BertFeaturesError, match="choose a pooling"):
        FeatureExtractor.from_checkpoint(str(folder), level="sequence", pooling="auto")
