"""Labels of words stay with their words, from the input to every format."""

import json

import pytest

from bert_features import FeatureExtractor, extract, nearest, read_features
from bert_features.config.extract_config import ExtractConfig
from bert_features.errors import ConfigError, InputError
from bert_features.readers.input_example import InputExample

# Of the last sentence, as long as a row, two words are cut off; \x00 vanishes in cleaning.
SENTENCES = [
    ("this is a dog", "DET AUX _ NOUN"),
    ("this is a dog", "A B C D"),
    ("no", "INTJ"),
    ("is \x00 it", "AUX X PRON"),
    ("a b a b a b a b", "1 2 3 4 5 6 7 8"),
]
KEPT = [
    ("DET", "AUX", "", "NOUN"),
    ("A", "B", "C", "D"),
    ("INTJ",),
    ("AUX", "", "PRON"),
    ("1", "2", "3", "4", "5", "6", "", ""),
]


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "in.jsonl"
    rows = [{"tokens": words.split(" "), "y": tags.split()} for words, tags in SENTENCES]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def config(toy, kept_steps):
    settings = {"checkpoint": toy, "do_lower_case": True, "max_seq_length": 8, "layers": [-1]}
    return ExtractConfig.of({**settings, "level": "word", "label_field": "y"})


def test_labels_are_in_files_and_tables(config, path, tmp_path):
    extract(config, path, tmp_path / "out.npz")
    file = read_features(tmp_path / "out.npz")
    assert [record.word_labels for record in file] == KEPT
    frame = file.to_pandas(level="word")
    assert frame["word_labels"].tolist() == [label for labels in KEPT for label in labels]
    assert frame["words"].tolist()[:4] == ["this", "is", "a", "dog"]
    assert file.to_arrow()["word_labels"].to_pylist() == [list(labels) for labels in KEPT]


def test_jsonl_names_each_label(config, path, tmp_path):
    extract(config, path, tmp_path / "out.jsonl")
    first = json.loads((tmp_path / "out.jsonl").read_text().splitlines()[0])
    assert [word["label"] for word in first["words"]] == list(KEPT[0])
    (tmp_path / "out.jsonl.metadata.json").unlink()  # as on standard output
    assert [record.word_labels for record in read_features(tmp_path / "out.jsonl")] == KEPT


@pytest.mark.parametrize(
    "settings",
    [{"long_text": "window"}, {"packing": True}, {"dedupe": True}],
)
def test_labels_stay_with_their_words(config, path, tmp_path, settings):
    extract(config.model_copy(update=settings), path, tmp_path / "out.parquet")
    whole = [*KEPT[:-1], tuple("12345678")] if "long_text" in settings else KEPT
    assert [r.word_labels for r in read_features(tmp_path / "out.parquet")] == whole


def test_a_cache_serves_the_labels_of_each_run(config, path, tmp_path):
    """Runs with and without labels share it, and a text is computed once whatever its labels."""
    cached = config.model_copy(update={"cache": str(tmp_path / "cache"), "dedupe": True})
    plain = cached.model_copy(update={"label_field": None})
    counts = [
        extract(settings, path, tmp_path / f"{run}.npz").counts
        for run, settings in zip("apb", (cached, plain, cached), strict=True)
    ]
    assert [each.examples_reused for each in counts] == [1, 5, 5]
    labels = [[r.word_labels for r in read_features(tmp_path / f"{run}.npz")] for run in "apb"]
    assert labels == [KEPT, [None] * 5, KEPT]
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_neighbors_compares_a_text_with_labelled_words(config, path, tmp_path):
    extract(config, path, tmp_path / "out.parquet")
    hit, *_ = nearest(tmp_path / "out.parquet", "this is a dog", token="dog")
    assert (hit.record, hit.position) == (0, 3)


def test_labels_of_texts_are_none_of_words(config, tmp_path):
    (path := tmp_path / "texts.jsonl").write_text('{"id": "t", "text": "this is", "y": "X"}\n')
    for target in ("out.npz", "folder/"):
        with pytest.raises(InputError, match="example 't' is a text"):
            extract(config, path, f"{tmp_path}/{target}")
    with pytest.raises(InputError, match="example 0 is a text"):
        FeatureExtractor(config)({"t": ["this is"], "y": ["X"]}, text_field="t")


@pytest.mark.parametrize("field", ["y", None])
def test_examples_bring_labels_of_their_own(config, field):
    extractor = FeatureExtractor(config.model_copy(update={"label_field": field}))
    labelled = InputExample.from_words(0, ["this", "is"], labels=("DET", "AUX"))
    records = extractor([labelled, InputExample.from_words(1, ["no"])])
    assert [record.word_labels for record in records] == [("DET", "AUX"), ("",)]
    wrong = InputExample.from_words(0, ["this", "is"], labels=("DET",))
    for call in (extractor, extractor.encode):
        with pytest.raises(InputError, match="1 labels for 2 words"):
            call([wrong])


def test_a_table_in_memory_has_labels(config):
    plain = config.model_copy(update={"label_field": None})
    table = {"t": [["this", "is"], ["no"]], "y": [["DET", None], ["INTJ"]]}
    (first, second) = FeatureExtractor(plain)(table, tokens_field="t", label_field="y")
    assert (first.word_labels, second.word_labels) == (("DET", ""), ("INTJ",))
    (record,) = FeatureExtractor(plain)([["no"]])
    assert record.word_labels is None
    tokens = ExtractConfig(checkpoint=config.checkpoint, do_lower_case=True, layers=-1)
    with pytest.raises(ConfigError, match="label_field"):
        FeatureExtractor(tokens)(table, tokens_field="t", label_field="y")


def test_without_a_label_field_there_is_no_column(config, path, tmp_path):
    plain = config.model_copy(update={"label_field": None})
    extract(plain, path, tmp_path / "out.parquet")
    file = read_features(tmp_path / "out.parquet")
    assert file[0].word_labels is None
    assert "word_labels" not in file.to_arrow().column_names
    assert "labelled" not in file.metadata["features"][0]
