"""nearest: over every format and folders; texts become vectors as those of the file did."""

import dataclasses
import json
import shutil

import numpy as np
import pytest

import bert_features
from bert_features import ExtractConfig, FeatureExtractor, find_checkpoint, nearest, read_features
from bert_features.checkpoints.convert import convert
from bert_features.errors import CheckpointError, ConfigError, OutputError
from bert_features.extraction.similarity import compute_similarity
from bert_features.neighbors import queries
from bert_features.neighbors.nearest import vectors_of_ids
from tests import multi_vector, sparse_encoder
from tests.formats.feature_files import (
    EVERYTHING,
    ONE,
    SUFFIX,
    all_formats,
    make_batch,
    mix,
    some_batches,
    write,
)
from tests.formats.feature_folders import write_folder
from tests.reference.tf1_checkpoint import write_directory
from tests.toy import TOY, TOY_VOCAB, random_weights

TEXTS = ["this is jackson", "is it ?", "no it is not .", "jacksonville is the a b", "the a b"]
OUTPUTS = [
    {"name": "text", "level": "sequence", "pooling": "mean", "layers": [-1, -2], "combine": "sum"},
    {"name": "piece", "level": "token", "layers": [-1], "dtype": "float16"},
    {"name": "word", "level": "word", "layers": ["embeddings"]},
]


@pytest.fixture(scope="module")
def extracted(tmp_path_factory, toy):
    """A folder with TEXTS and their features, three outputs of the toy checkpoint."""
    folder = tmp_path_factory.mktemp("nearest")
    (folder / "texts.txt").write_text("".join(f"{text}\n" for text in TEXTS))
    settings = ExtractConfig(checkpoint=toy, outputs=OUTPUTS, max_seq_length=16, dtype="float32")
    bert_features.extract(settings, folder / "texts.txt", folder / "features.tfrecord")
    return folder


@all_formats
@pytest.mark.parametrize("feature", EVERYTHING, ids=lambda feature: feature.level)
def test_every_format_gives_the_nearest_vectors(tmp_path, format, feature):
    path = tmp_path / f"f{SUFFIX[format]}"
    write(path, format, EVERYTHING, *some_batches(EVERYTHING))
    file = read_features(path)
    values, row_splits = file.ragged(feature.name)
    query = np.asarray(values[5 if len(values) > 5 else 1], np.float64) + 0.1
    found = nearest(path, query, feature=feature.name, top=4)
    similarities = compute_similarity(values, query)[:, 0]
    rows = np.argsort(-similarities, kind="stable")[:4]
    np.testing.assert_allclose([hit.similarity for hit in found], similarities[rows], rtol=1e-5)
    for hit, row in zip(found, rows, strict=True):
        record = row if row_splits is None else np.searchsorted(row_splits, row, "right") - 1
        assert (hit.record, hit.unique_id) == (record, file[int(record)].unique_id)
        if row_splits is None:
            assert (hit.position, hit.token) == (None, None)
        else:
            level = {"token": "tokens", "word": "words"}[feature.level]
            assert hit.position == row - row_splits[record]
            assert hit.token == getattr(file[int(record)], level)[hit.position]


def test_a_folder_is_one_file(tmp_path):
    batches = some_batches(EVERYTHING)
    write(tmp_path / "one.parquet", "parquet", EVERYTHING, *batches)
    write_folder(tmp_path / "folder", "parquet", EVERYTHING, *batches)
    for feature in EVERYTHING:
        query = np.ones(feature.width)
        assert nearest(tmp_path / "folder", query, feature=feature.name) == nearest(
            tmp_path / "one.parquet", query, feature=feature.name
        )


def test_several_queries_and_equal_vectors(tmp_path):
    path = tmp_path / "f.npz"
    batch = make_batch(ONE, [2, 2, 2])
    batch.features["layer_output_0"][:] = [[1, 0, 0], [0, 1, 0], [0, 0, 0], [2, 0, 0]] * 3
    write(path, "npz", ONE, batch)
    found = nearest(path, np.eye(3)[:2], top=4)
    assert [[(h.record, h.position) for h in hits] for hits in found] == [
        [(0, 0), (0, 3), (1, 0), (1, 3)],
        [(0, 1), (1, 1), (2, 1), (0, 0)],
    ]
    (longest, *_) = nearest(path, np.eye(3)[0], top=1, similarity="dot")
    assert (longest.record, longest.position, longest.similarity) == (0, 3, 2.0)


def test_an_open_file_keeps_the_lengths_of_each_feature(tmp_path, monkeypatch):
    monkeypatch.setattr("bert_features.formats.reader.CHUNK_BYTES", 100)  # several blocks
    path, features = tmp_path / "f.npz", (*ONE, dataclasses.replace(ONE[0], name="other"))
    batch, rng = make_batch(features, [2] * 9), np.random.default_rng(3)
    for values in batch.features.values():
        values[:] = rng.normal(size=values.shape) * 10 ** rng.uniform(-2, 2, (len(values), 1))
    write(path, "npz", features, batch)
    file = read_features(path)
    for query in rng.normal(size=(6, 3)):
        for feature in features:
            expected = nearest(path, query, feature=feature.name, top=2)
            assert nearest(file, query, feature=feature.name, top=2) == expected
    monkeypatch.setattr("bert_features.neighbors.search._norms", None)  # not computed again
    assert nearest(file, query, feature="other", top=2) == expected


def test_vectors_that_are_left_out_are_counted(tmp_path, caplog):
    path = tmp_path / "f.arrow"
    batch = make_batch(ONE, [2, 2, 2])
    batch.features["layer_output_0"][[1, 2, 5]] = [[0, 0, 0], [np.nan, 1, 1], [0, 0, 0]]
    write(path, "arrow", ONE, batch)
    assert len(nearest(path, np.ones(3), top=99)) == 9
    assert "3 of 12 vectors were left out: 2 zero, 1 not finite" in caplog.text


def test_a_text_of_the_file_finds_itself(extracted):
    path = extracted / "features.tfrecord"
    for number, found in enumerate(nearest(path, TEXTS, feature="text", top=2)):
        assert found[0].unique_id == number
        assert found[0].similarity == pytest.approx(1, abs=1e-5)
        assert found[1].similarity < 0.9999


@pytest.mark.slow
@pytest.mark.parametrize("change", ["none", "casing"])
def test_a_checkpoint_that_may_have_changed_is_read_again(extracted, monkeypatch, change):
    """None is a checkpoint that only TensorFlow reads: its weights are not known before."""
    path = extracted / "features.tfrecord"
    nearest(path, "is it", feature="text")
    make, found = FeatureExtractor.__init__, queries.find_without_tensorflow
    made = []

    def find(name, **options):
        if change == "none":
            return None
        return dataclasses.replace(found(name, **options), casing_evidence="another file")

    def count(self, *args, **options):
        made.append(self)
        make(self, *args, **options)

    monkeypatch.setattr(queries, "find_without_tensorflow", find)
    monkeypatch.setattr(FeatureExtractor, "__init__", count)
    for _ in range(2):
        nearest(path, "is it", feature="text")
    assert len(made) == {"none": 2, "casing": 1}[change]


@pytest.mark.slow
def test_a_query_becomes_the_vector_of_the_extractor(extracted, toy):
    path = extracted / "features.tfrecord"
    extractor = FeatureExtractor(
        ExtractConfig(checkpoint=toy, outputs=OUTPUTS, max_seq_length=16, dtype="float32")
    )
    query = "jackson it is"
    (record,) = extractor([query])
    assert record.tokens == ("[CLS]", "jack", "##son", "it", "is", "[SEP]")
    pieces = record.features["piece"][1:3].astype(np.float64).mean(axis=0)
    by_text = nearest(path, query, feature="piece", token="Jackson")
    assert [(h.record, h.position) for h in by_text] == [
        (h.record, h.position) for h in nearest(path, pieces, feature="piece")
    ]
    by_word = nearest(path, query, feature="word", token="jackson")
    assert by_word == nearest(path, record.features["word"][0], feature="word")
    assert by_word[0].token == "jackson"
    (alone,) = extractor(["it"])
    assert nearest(path, "it", feature="word") == nearest(
        path, alone.features["word"][0], feature="word"
    )


def test_a_piece_in_the_middle_of_a_word_is_no_word(extracted):
    path = extracted / "features.tfrecord"
    with pytest.raises(ConfigError, match="token is 'jack'"):
        nearest(path, "jackson it", feature="piece", token="jack")


@pytest.mark.parametrize("kind", ["score", "masked_lm", "attention"])
def test_what_is_no_vector_of_layers_has_no_neighbors(tmp_path, kind):
    feature = dataclasses.replace(EVERYTHING[0], kind=kind)
    write(tmp_path / "f.npz", "npz", (feature,), *some_batches((feature,)))
    with pytest.raises(ConfigError, match=f"has kind '{kind}', which has no neighbors"):
        nearest(tmp_path / "f.npz", "is it")


@pytest.mark.slow
def test_a_checkpoint_with_other_weights_is_refused(extracted, tmp_path):
    path, named = extracted / "features.tfrecord", read_features(extracted / "features.tfrecord")
    weights = random_weights(TOY, seed=5)
    other = write_directory(tmp_path / "uncased_other", TOY, TOY_VOCAB, weights, kind="tf1")
    moved = shutil.copytree(extracted, tmp_path / "moved") / "features.tfrecord"
    sidecar = moved.with_name("features.tfrecord.metadata.json")
    recorded = named.recipe.settings["checkpoint"]
    sidecar.write_text(
        sidecar.read_text().replace(f'"checkpoint": "{recorded}"', f'"checkpoint": "{other}"')
    )
    message = (
        r"feature 'text' .*uncased_other here \(checkpoint \w+… and \w+… \(the canaries differ by "
        r".*, cosine .*; pass checkpoint, the one that it was made with"
    )
    for arguments in ((moved, None), (path, str(other))):
        with pytest.raises(OutputError, match=message):
            nearest(arguments[0], "is it ?", feature="text", checkpoint=arguments[1])
    shutil.rmtree(other)
    with pytest.raises(CheckpointError, match="checkpoint"):
        nearest(moved, "is it ?", feature="text")
    assert nearest(moved, "is it ?", feature="text", checkpoint=recorded)[0].unique_id == 1


@pytest.mark.slow
@pytest.mark.parametrize("unused", [0.0, 1.0], ids=["other files", "an unused piece changed"])
def test_a_checkpoint_whose_canaries_agree_is_taken_in_silence(
    extracted, toy, tmp_path, caplog, unused
):
    weights = random_weights(TOY)
    weights["embeddings/word_embeddings"][TOY_VOCAB.index("jack")] += unused
    write_directory(tmp_path / "changed", TOY, TOY_VOCAB, weights, kind="tf1")
    other = convert(find_checkpoint(tmp_path / "changed"), tmp_path / "uncased", to="safetensors")
    path = extracted / "features.tfrecord"
    caplog.clear()
    found = nearest(path, "is it ?", feature="text", checkpoint=str(other))
    assert found == nearest(path, "is it ?", feature="text")
    assert not caplog.records


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "name", "kind"),
    [(sparse_encoder, "splade", "sparse"), (multi_vector, "classic", "multi_vector")],
)
def test_a_query_computes_the_output_that_is_searched(tmp_path, module, name, kind):
    outputs = [
        {"name": "text", "level": "sequence", "pooling": "mean", "layers": [-1]},
        {"name": "span", "level": "span", "layers": [-1]},
        {"name": "other", "kind": kind},
    ]
    examples = [{"text": text, "spans": [[0, 4]]} for text in TEXTS]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(each) + "\n" for each in examples))
    config = ExtractConfig(
        checkpoint=module.write(name, tmp_path / name), outputs=outputs, span_field="spans"
    )
    bert_features.extract(config, tmp_path / "in.jsonl", tmp_path / "f.parquet")
    for feature in ("text", "other", "span"):
        hits = nearest(tmp_path / "f.parquet", TEXTS, feature=feature, top=1)
        if (kind, feature) == ("sparse", "text"):  # queries have no marker of their own
            assert [hit.unique_id for (hit,) in hits] == [*range(len(TEXTS))]
            np.testing.assert_allclose([hit.similarity for (hit,) in hits], 1, atol=1e-5)
        ((_, extractors),) = queries._loaded.values()
        assert [output.name for output in extractors[feature].outputs] == [feature]


def test_a_file_without_its_settings_takes_vectors_only(tmp_path):
    path = tmp_path / "f.parquet"
    write(path, "parquet", ONE, make_batch(ONE, [1]))
    with pytest.raises(OutputError, match="does not record"):
        nearest(path, "it")


def test_vectors_need_no_tensorflow_and_no_pandas(tmp_path):
    import subprocess
    import sys

    path = tmp_path / "f.parquet"
    (feature,) = features = mix("sequence")
    write(path, "parquet", features, *some_batches(features))
    code = (
        "import sys, numpy, bert_features; "
        f"print(len(bert_features.nearest({str(path)!r}, numpy.ones({feature.width}), top=3))); "
        "assert not {'tensorflow', 'jax', 'keras', 'pandas'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("3\n", "")


@pytest.mark.parametrize("id_type", ["int", "str"])
def test_the_vectors_of_ids_are_those_of_their_records(tmp_path, id_type):
    path = tmp_path / "f.npz"
    write(path, "npz", EVERYTHING, *some_batches(EVERYTHING, id_type), id_type=id_type)
    file, records = read_features(path), (5, 0, 5)
    name = next(each.name for each in EVERYTHING if each.is_sequence and each.dtype == "float32")
    found = vectors_of_ids(file, [str(file.ids[n]) for n in records], name)
    np.testing.assert_array_equal(found, [file[n].features[name] for n in records])
