"""Checkpoints whose tokenizer has settings of its own: words, exports, copies, what runs record."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from bert_features import BertTextInput, ExtractConfig, FeatureExtractor, find_checkpoint
from bert_features.checkpoints.convert import convert
from bert_features.checkpoints.tokenizer import make_tokenizer
from bert_features.errors import CheckpointError, ConfigError
from bert_features.export.checks import check_before
from bert_features.export.savedmodel import _add_assets
from bert_features.extraction.counts import Counts
from bert_features.extraction.losses import warn
from bert_features.extraction.recipe import plan_recipe
from bert_features.text.tokenizer_files import read_tokenizer, rules_of
from tests import families
from tests.cli.command_line import run
from tests.reference.tf1_checkpoint import write_directory
from tests.toy import TOY, TOY_VOCAB, random_weights

ACCENTED = {"do_lower_case": True, "strip_accents": False, "tokenize_chinese_chars": False}
MARKS = {"[Q]": 28, "the-a": 29}
LAST = {"name": "t", "layers": [-1]}


@pytest.fixture
def accented(tmp_path):
    """A checkpoint that keeps accents, and Chinese words."""
    vocab = [*TOY_VOCAB[:26], "thé", "the", "東京", "東"]
    return _folder(tmp_path / "toy", vocab, {"tokenizer_config.json": ACCENTED})


@pytest.fixture
def marked(tmp_path):
    """A checkpoint with two added tokens, and blank lines of another in its vocabulary."""
    config = {"do_lower_case": True, "additional_special_tokens": ["[Q]"]}
    files = {"tokenizer_config.json": config, "added_tokens.json": MARKS}
    return _folder(tmp_path / "marked", TOY_VOCAB[:28], files)


def _folder(path, vocab, files):
    folder = write_directory(path, TOY, vocab, random_weights(TOY))
    for name, values in files.items():
        (folder / name).write_text(json.dumps(values))
    return folder


def test_switches_are_in_layers_exports_and_copies(accented, tmp_path):
    texts = ["Thé 東京", "the a"]
    wanted = [[26, 28], [27, 16]]
    checkpoint = find_checkpoint(accented)
    assert make_tokenizer(checkpoint).encode_ids(texts) == wanted
    layer = BertTextInput.from_checkpoint(accented, max_seq_length=5)
    for each in (layer, BertTextInput.from_config(layer.get_config())):
        rows = [[2, *ids, 3, 0] for ids in wanted]
        np.testing.assert_array_equal(each(texts)["input_word_ids"], rows)
    again = find_checkpoint(convert(checkpoint, tmp_path / "copy", to="safetensors"))
    assert again.do_lower_case is True
    assert make_tokenizer(again).encode_ids(texts) == wanted
    root = tf.Module()
    _add_assets(root, SimpleNamespace(checkpoint=checkpoint, tokenizer=None), tmp_path)
    file = read_tokenizer(Path(root.vocab_file.asset_path.numpy().decode()))
    assert rules_of(file, True) == rules_of(read_tokenizer(checkpoint.vocab_file), True)
    assert root.tokenizer_config.asset_path.numpy().endswith(b"tokenizer_config.json")


def test_a_layer_of_texts_has_the_frame_of_its_family(tmp_path):
    folder = families.folder("mpnet", tmp_path)
    layer = BertTextInput.from_checkpoint(folder, max_seq_length=8)
    frame = make_tokenizer(find_checkpoint(folder)).frame
    assert (frame.separators, frame.has_types) == (2, False)
    assert BertTextInput.from_config(layer.get_config()).tokenizer.frame == frame


def test_added_tokens_are_tokens_and_words(marked, tmp_path):
    words = {"name": "w", "level": "word", "layers": [-1]}
    extractor = FeatureExtractor.from_checkpoint(marked, outputs=[LAST, words], device="cpu")
    (record,) = extractor(["[Q] the-a b [CLS]"])
    assert record.tokens[:5] == ("[CLS]", "[Q]", "the-a", "b", "[UNK]")
    assert list(record.words)[:3] == ["[Q]", "the-a", "b"]
    np.testing.assert_allclose(record.features["w"][1], record.features["t"][2], atol=1e-6)
    copy = find_checkpoint(convert(find_checkpoint(marked), tmp_path / "copy", to="safetensors"))
    assert make_tokenizer(copy).encode_ids(["[Q] the-a"]) == [[28, 29]]
    message = "that TensorFlow has no operation for .*, added_tokens.*pass signature='ids'"
    with pytest.raises(ConfigError, match=message):
        check_before(tmp_path / "out", signature="text", checkpoint=str(marked), layers=-1)
    with pytest.raises(ConfigError, match="added_tokens"):
        BertTextInput.from_checkpoint(marked)


def test_inspect_and_warnings_name_the_rules(accented, marked, caplog):
    rows = run("inspect", accented).stdout
    assert "strip_accents false, tokenize_chinese_chars false" in rows
    facts = json.loads(run("inspect", marked, "--json").stdout)
    assert facts["added_tokens"] == ["[Q]", "the-a"]
    (marked / "tokenizer_config.json").write_text('{"tokenizer_class": "BertJapaneseTokenizer"}')
    assert "BertJapaneseTokenizer" in run("inspect", marked).stdout
    checkpoint = find_checkpoint(accented)
    warn(Counts(tokens_kept=10, tokens_unknown=9), None, checkpoint)
    assert "(strip_accents, tokenize_chinese_chars)" in caplog.text


def test_what_a_run_records_has_the_rules(accented, marked, toy):
    for folder, rules in {toy: [], accented: list(ACCENTED)[1:], marked: ["added_tokens"]}.items():
        recipe = plan_recipe(ExtractConfig(outputs=[LAST]), find_checkpoint(folder))
        assert list(recipe.vocabulary.get("rules", {})) == rules


def test_a_token_behind_the_table_is_refused(marked):
    (marked / "added_tokens.json").write_text(json.dumps(MARKS | {"[E1]": 30}))
    with pytest.raises(CheckpointError, match=r"31 pieces, .* 30 rows"):
        make_tokenizer(find_checkpoint(marked))
