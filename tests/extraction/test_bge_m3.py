"""bge-m3: dense, sparse and multi-vectors of one pass, against float64 NumPy."""

import json
import logging

import numpy as np
import pytest

from bert_features import (
    ExtractConfig,
    FeatureExtractor,
    extract,
    find_checkpoint,
    nearest,
    plan,
    read_features,
)
from bert_features.checkpoints.convert import convert
from bert_features.errors import CheckpointError, ConfigError
from bert_features.extraction.recipe import plan_recipe
from tests import bge_m3, sparse_encoder
from tests.bge_m3 import LINEARS, OUTPUTS, TEXTS, UNKNOWN, H, V
from tests.cli.command_line import run
from tests.reference import torch_file
from tests.reference.late_interaction import max_sim
from tests.serving.conftest import make_client
from tests.serving.over_http import make_service

OWN = [{**output, "pooling": "own"} if output["name"] == "sparse" else output for output in OUTPUTS]


@pytest.fixture(scope="module")
def folder(tmp_path_factory, family_files):
    return bge_m3.write(tmp_path_factory.mktemp("m3") / "model", family_files)


@pytest.fixture(scope="module")
def reference(folder):
    return bge_m3.Reference(folder)


@pytest.fixture(scope="module")
def extractor(folder):
    return make(folder)


def make(folder, outputs=OUTPUTS, **settings):
    return FeatureExtractor.from_checkpoint(folder, outputs=outputs, **settings)


def close(got, wanted, atol=1e-5):
    np.testing.assert_allclose(got, wanted, rtol=0, atol=atol)


def assert_reference(records, reference, texts=TEXTS):
    for record, text in zip(records, texts, strict=True):
        close(record.features["dense"], reference.dense(text))
        close(record.features["late"], reference.late(text))
        close(sparse_encoder.dense([record], V)[0], reference.sparse(text))
        assert record.units["vector"]["scored_token_ids"].tolist() == [*reference.ids(text)[1:]]


def test_the_three_of_one_pass_are_those_of_the_definition(extractor, reference):
    records = list(extractor(TEXTS))
    assert_reference(records, reference)
    # Something is compared: a token of several places, an unknown one, and weights that are 0.
    ids = [reference.ids(text) for text in TEXTS]
    weights = [reference.token_weights(reference.states(each)) for each in ids]
    places = [weights[0][ids[0] == number] for number in np.unique(ids[0])]
    assert any(0 < each[-1] < each.max() for each in places)
    assert weights[3][ids[3] == UNKNOWN].max() > 0
    assert max(each[0] for each in weights) > 0
    assert max(each[-1] for each in weights) > 0
    assert 0.2 < (np.concatenate(weights) == 0).mean() < 0.8
    assert len(records[2].features["late"]) == 1  # of no text the vector of </s>
    close(extractor.encode(TEXTS, "sparse").toarray(), [*map(reference.sparse, TEXTS)])
    for encode in (extractor.encode_query, extractor.encode_document):
        close(encode(TEXTS, "sparse").toarray(), [*map(reference.sparse, TEXTS)])
        vectors, _ = encode(TEXTS, "late", ragged=True)
        close(vectors, np.concatenate([*map(reference.late, TEXTS)]))


def test_a_similarity_is_the_mean_over_the_tokens_of_the_query(extractor, reference):
    vectors = [reference.late(text) for text in TEXTS]
    wanted = [[max_sim(q, d) / len(q) for d in vectors] for q in vectors]
    queries, documents = (
        encode(TEXTS, "late", ragged=True)
        for encode in (extractor.encode_query, extractor.encode_document)
    )
    close(extractor.similarity(queries, documents), np.array(wanted))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("outputs", "settings"),
    [
        (OUTPUTS, {"batch_size": 1}),
        (OUTPUTS, {"batch_size": 8, "buckets": [64]}),
        (OWN, {"packing": True}),
        (OUTPUTS, {"dedupe": True}),
    ],
    ids=["alone", "padded", "packed", "each row once"],
)
def test_other_rows_of_a_batch_change_nothing(folder, reference, outputs, settings):
    texts = TEXTS * 3
    assert_reference(make(folder, outputs, **settings)(texts), reference, texts)


@pytest.mark.slow
def test_of_several_windows_each_token_counts_once(folder, reference):
    extractor = make(folder, long_text="window", max_seq_length=12, stride=4)
    (record,) = extractor([TEXTS[-1]])
    assert len(reference.ids(TEXTS[-1])) > 3 * 12
    late = record.units["vector"]["scored_token_ids"]
    assert late.tolist() == reference.ids(TEXTS[-1])[1:].tolist()
    states = make(folder, [{"layers": [-1]}], long_text="window", max_seq_length=12, stride=4)
    hidden = next(iter(states([TEXTS[-1]]))).features["layer_output_0"]
    found = sparse_encoder.dense([record], V)[0]
    close(found, reference.sparse(TEXTS[-1], hidden))
    assert np.abs(found - reference.sparse(TEXTS[-1])).max() > 0.01  # of other windows others


def test_all_terms_are_kept_and_others_counted_where_top_k_says_so(folder, reference, caplog):
    sparse = [{"name": "sparse", "kind": "sparse", "top_k": 3}]
    with caplog.at_level(logging.WARNING, "bert_features"):
        found = make(folder, sparse).encode(TEXTS).toarray()
    wanted = np.array([*map(reference.sparse, TEXTS)])
    close(found, sparse_encoder.heaviest(wanted, 3))
    cut = np.maximum((wanted > 0).sum(1) - 3, 0).sum()
    assert cut
    assert f"{cut} terms of " in caplog.text


@pytest.mark.slow
def test_files_searches_and_answers(folder, reference, extractor, tmp_path):
    (tmp_path / "in.txt").write_text("".join(f"{text}\n" for text in TEXTS if text))
    texts = [text for text in TEXTS if text]
    config = ExtractConfig.of({"checkpoint": str(folder), "outputs": OUTPUTS})
    for suffix in (".npz", ".parquet"):
        extract(config, tmp_path / "in.txt", tmp_path / f"out{suffix}")
        with read_features(tmp_path / f"out{suffix}") as file:
            assert_reference(file, reference, texts)
    tokens = sum(len(reference.ids(text)) for text in texts)
    planned = plan(config, tmp_path / "in.txt")
    assert planned.output_bytes("npz", "sparse") == tokens * (4 + 4)
    assert planned.output_bytes("npz", "late") == (tokens - len(texts)) * H * 4

    file, query = read_features(tmp_path / "out.parquet"), "the law of the river"
    scores = {
        "sparse": [reference.sparse(query) @ reference.sparse(text) for text in texts],
        "late": [max_sim(*map(reference.late, (query, text))) for text in texts],
    }
    scores["late"] = [score / len(reference.late(query)) for score in scores["late"]]
    for feature, wanted in scores.items():
        hits = nearest(file, query, feature=feature, top=2)
        order = np.argsort(-np.array(wanted), kind="stable")[:2]
        assert [hit.unique_id for hit in hits] == order.tolist()
        close([hit.similarity for hit in hits], np.array(wanted)[order], atol=1e-4)

    body = {"texts": texts, "outputs": ["dense", "sparse", "late"]}
    answer = make_client(make_service(extractor)).post("/v1/features", json=body).json()
    for result, text in zip(answer["results"], texts, strict=True):
        weights, wanted = result["features"]["sparse"], reference.sparse(text)
        assert len(weights) == (wanted > 0).sum()
        ids = [extractor.pieces.tolist().index(term) for term in weights]
        close([*weights.values()], wanted[ids])
        close(result["features"]["dense"], reference.dense(text))
        close(result["features"]["late"], reference.late(text))


def test_a_folder_may_have_one_of_the_two(tmp_path, family_files, reference):
    """And needs no modules.json for them, as FlagEmbedding."""
    name, other = LINEARS
    only = bge_m3.write(tmp_path / "only", family_files, linears=[name])
    (only / "modules.json").unlink()
    close(make(only, OUTPUTS[1:2]).encode(TEXTS[0]).toarray()[0], reference.sparse(TEXTS[0]))
    with pytest.raises(ConfigError, match=other.replace(".", r"\.")):
        make(only, OUTPUTS[2:])
    (only / name).rename(only / other)
    with pytest.raises(CheckpointError, match=r"sparse_linear\.pt"):
        make(only, OUTPUTS[1:2])
    with pytest.raises(ConfigError, match=r"'own', which needs sparse_linear\.pt"):
        make(only, OWN[1:2])


@pytest.mark.parametrize(
    ("name", "layer"),
    [
        ("sparse_linear.pt", {"weight": np.ones((2, H), np.float32)}),
        ("sparse_linear.pt", {"weight": np.ones((1, H), np.float32)}),
        ("colbert_linear.pt", {"weight": np.ones((H, 8), np.float32), "bias": np.ones(H, "f4")}),
    ],
    ids=["two weights", "no bias", "another width"],
)
def test_layers_of_another_shape_are_refused_in_one_line(tmp_path, family_files, name, layer):
    wrong = bge_m3.write(tmp_path / "wrong", family_files)
    (wrong / name).write_bytes(torch_file.zip_of(layer))
    with pytest.raises(CheckpointError, match=f"{name} holds .*; its config needs ") as raised:
        make(wrong)
    assert "\n" not in str(raised.value)
    assert make(wrong, OUTPUTS[:1]).encode(TEXTS).shape == (len(TEXTS), H)


@pytest.mark.parametrize("name", LINEARS)
def test_each_layer_counts_for_its_output_alone(folder, tmp_path, family_files, name):
    other = bge_m3.write(tmp_path / "other", family_files)
    shape = LINEARS[name]
    layer = {"weight": np.ones(shape, np.float32), "bias": np.ones(shape[:1], np.float32)}
    (other / name).write_bytes(torch_file.zip_of(layer))
    first, second = (
        plan_recipe(ExtractConfig(outputs=OUTPUTS), find_checkpoint(path)).checkpoint
        for path in (folder, other)
    )
    assert first["sha256"] == second["sha256"]
    heads = first["heads"].items() ^ second["heads"].items()
    assert {key for key, _ in heads} == {{"sparse_linear.pt": "sparse"}.get(name, "late")}


def test_copies_keep_the_layers(folder, tmp_path, extractor):
    copy = convert(find_checkpoint(folder), tmp_path / "copy", to="safetensors")
    found = make(copy)
    assert found.recipe.checkpoint["heads"] == extractor.recipe.checkpoint["heads"]
    convert(find_checkpoint(folder), copy, to="safetensors", overwrite=True)
    files = {path.name for _, path in find_checkpoint(copy).files()}
    assert {*LINEARS} <= files


def test_inspect_shows_them(folder):
    facts = json.loads(run("inspect", folder, "--json").stdout)
    assert facts["sparse"] == {"pooling": "own", "top_k": None, "queries": "a model"}
    late = facts["multi_vector"]
    assert (late["form"], late["width"], late["similarity"]) == ("bge-m3", H, "meanmaxsim")


def test_prompts_are_put_before_all_three(tmp_path, family_files, reference):
    prompts = {"query": "the law ", "all": "In 1948, "}
    prompted = bge_m3.write(
        tmp_path / "prompted", family_files, prompts=prompts, default_prompt_name="all"
    )
    extractor = make(prompted)
    assert_reference(extractor(TEXTS), reference, [f"In 1948, {text}" for text in TEXTS])
    query = extractor.encode_query(TEXTS[0], "late")
    close(query, reference.late(f"the law {TEXTS[0]}"))
    lower = bge_m3.write(tmp_path / "lower", family_files, do_lower_case=True)
    with pytest.raises(CheckpointError, match="do_lower_case is True"):
        make(lower)
