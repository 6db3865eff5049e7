"""Labels of words stay with their words, from the input to every format."""

import json

import pytest

from bert_features import FeatureExtractor, extract, read_features
from bert_features.config.extract_config import ExtractConfig
from bert_features.errors import ConfigError, InputError, OutputError
from bert_features.formats import SUFFIXES
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


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_labels_are_in_every_format(config, path, tmp_path, suffix):
    target = tmp_path / f"out{suffix}"
    extract(config, path, target)
    file = read_features(target)
    assert [record.word_labels for record in file] == KEPT
    assert file[1:2][0].word_labels == KEPT[1]
    frame = file.to_pandas(level="word")
    assert frame["word_labels"].tolist() == [label for labels in KEPT for label in labels]
    assert frame["words"].tolist()[:4] == ["this", "is", "a", "dog"]
    assert file.to_arrow()["word_labels"].to_pylist() == [list(labels) for labels in KEPT]
    file.verify()


def test_jsonl_names_each_label(config, path, tmp_path):
    extract(config, path, tmp_path / "out.jsonl")
    first = json.loads((tmp_path / "out.jsonl").read_text().splitlines()[0])
    assert [word["label"] for word in first["words"]] == list(KEPT[0])


@pytest.mark.parametrize(
    "settings",
    [{"long_text": "window"}, {"packing": True}, {"dedupe": True, "uniform_batches": True}],
)
def test_labels_stay_with_their_words(config, path, tmp_path, settings):
    extract(config.model_copy(update=settings), path, tmp_path / "out.parquet")
    whole = [*KEPT[:-1], tuple("12345678")] if "long_text" in settings else KEPT
    assert [r.word_labels for r in read_features(tmp_path / "out.parquet")] == whole


def test_a_cache_serves_the_labels_of_each_run(config, path, tmp_path):
    cached = config.model_copy(update={"cache": str(tmp_path / "cache"), "dedupe": True})
    for run in "ab":
        extract(cached, path, tmp_path / f"{run}.npz")
        assert [record.word_labels for record in read_features(tmp_path / f"{run}.npz")] == KEPT
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


@pytest.mark.slow
def test_a_folder_is_continued_with_the_same_labels(config, path, tmp_path):
    folder = tmp_path / "folder"
    sharded = config.model_copy(update={"shard_examples": 2})
    extract(sharded, path, f"{folder}/")
    shards = sorted(folder.glob("*.parquet"))
    before = shards[1].read_bytes()
    shards[1].unlink()
    extract(sharded, path, f"{folder}/")
    assert shards[1].read_bytes() == before
    assert [record.word_labels for record in read_features(folder)] == KEPT
    with pytest.raises(OutputError, match="label_field 'y', now None"):
        extract(sharded.model_copy(update={"label_field": None}), path, f"{folder}/")


def test_examples_bring_labels_of_their_own(config):
    example = InputExample.from_words(0, ["this", "is"], labels=("DET", ""))
    (record,) = FeatureExtractor(config)([example])
    assert record.word_labels == ("DET", "")
    wrong = InputExample.from_words(0, ["this", "is"], labels=("DET",))
    with pytest.raises(InputError, match=r"texts\[0\]\.labels has 1 labels for 2 words; pass one"):
        list(FeatureExtractor(config)([wrong]))


def test_without_a_label_field_there_is_no_column(config, path, tmp_path):
    plain = config.model_copy(update={"label_field": None})
    extract(plain, path, tmp_path / "out.parquet")
    file = read_features(tmp_path / "out.parquet")
    assert file[0].word_labels is None
    assert "word_labels" not in file.to_arrow().column_names
    assert "labelled" not in file.metadata["features"][0]


def test_labels_need_an_output_of_words(config):
    with pytest.raises(ConfigError, match="no output uses label_field; leave label_field out"):
        ExtractConfig(label_field="y")
