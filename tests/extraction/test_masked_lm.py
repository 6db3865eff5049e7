"""Outputs of the masked-LM head, against transformers on the same small checkpoint."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from bert_features import ExtractConfig, FeatureExtractor, extract, read_features
from bert_features.checkpoints.find import find_checkpoint
from bert_features.checkpoints.read import read_weights
from bert_features.encoder import masked_lm
from tests import families
from tests.reference.numpy_encoder import NumpyEncoder
from tests.reference.numpy_masked_lm import log_probabilities

FOLDER = Path(__file__).resolve().parents[1] / "data" / "masked_lm"
GOLDEN = json.loads((FOLDER / "scores.json").read_text())
TEXTS = [tuple(r["texts"]) if len(r["texts"]) > 1 else r["texts"][0] for r in GOLDEN["masked"]]
OPTIONS = {"checkpoint": str(FOLDER), "do_lower_case": True}
OUTPUT = {"kind": "masked_lm", "name": "likely", "top_k": 4}


def make_config(**settings):
    return ExtractConfig(**{**OPTIONS, "outputs": [OUTPUT], **settings})


def make(**settings):
    return FeatureExtractor(make_config(**settings))


def assert_golden(records, atol=1e-5):
    for record, golden in zip(records, GOLDEN["masked"], strict=True):
        want = np.array(golden["log_probs"])
        ids = np.argsort(-want, axis=-1)[:, :4]
        assert record.features["likely_ids"].dtype == np.int32
        np.testing.assert_array_equal(record.features["likely_ids"], ids)
        values = np.take_along_axis(want, ids, -1)
        np.testing.assert_allclose(record.features["likely"], values, rtol=0, atol=atol)


@pytest.mark.parametrize("settings", [{}, {"packing": True}, {"dedupe": True}])
def test_the_likeliest_pieces_of_each_token(settings):
    records = make(**settings)(TEXTS)
    assert [r.token_ids.tolist() for r in records] == [r["ids"] for r in GOLDEN["masked"]]
    assert_golden(records)


def test_positions_that_are_computed_in_parts(monkeypatch):
    monkeypatch.setattr(masked_lm, "MOST_LOGITS", 30 * 5)
    assert_golden(make()(TEXTS))


@pytest.mark.slow
def test_mask_is_a_token_only_beside_such_an_output():
    outputs = [OUTPUT, {"name": "words", "level": "word", "layers": [-1]}]
    (record,) = make(outputs=outputs)(["jack[MASK] is[MASK]"])
    assert record.tokens == ("[CLS]", "jack", "[MASK]", "is", "[MASK]", "[SEP]")
    assert record.words == ("jack", "[MASK]", "is", "[MASK]")
    assert record.word_spans.starts.tolist() == [0, 4, 11, 13]
    assert record.word_spans.ends.tolist() == [4, 10, 13, 19]
    (record,) = make(outputs=outputs)([["jack", "[MASK]", "a[MASK]b"]])
    assert record.tokens[1:-1] == ("jack", "[MASK]", "a", "[MASK]", "b")
    assert record.words == ("jack", "[MASK]", "a[MASK]b")
    assert record.word_spans.num_pieces.tolist() == [1, 1, 3]
    (record,) = make(outputs=outputs[1:])(["[MASK]"])
    assert record.words == ("[", "MASK", "]")


def test_a_file_has_both_features(tmp_path):
    source = tmp_path / "in.txt"
    source.write_text("\n".join(" ||| ".join(r["texts"]) for r in GOLDEN["masked"]) + "\n")
    extract(make_config(), source, tmp_path / "out.npz")
    opened = read_features(tmp_path / "out.npz")
    assert [(f.name, f.dtype, f.kind) for f in opened.features] == [
        ("likely", "float32", "masked_lm"),
        ("likely_ids", "int32", "masked_lm"),
    ]
    records = list(opened)
    assert records[0].tokens[2] == "[MASK]"
    assert_golden(records, 1e-5)


def test_windows_and_truncation():
    text = "the [MASK] is not it. " * 8
    records = make(long_text="window", max_seq_length=24)([text])
    assert len(records[0].tokens) == 8 * 6 + 2
    assert np.isfinite(records[0].features["likely"]).all()


def test_spare_rows_are_filled_in_by_their_ids(tmp_path):
    """They are a part of the softmax, as in transformers, and have no piece."""
    folder = shutil.copytree(FOLDER, tmp_path / "spare")
    pieces = (FOLDER / "vocab.txt").read_text().split()[:18]
    (folder / "vocab.txt").write_text("\ufeff" + "\n".join(pieces) + "\n\n")
    extractor = make(checkpoint=str(folder), outputs=[OUTPUT | {"top_k": 30}])
    assert [*extractor.tokenizer.tokens] == pieces
    (record,) = extractor([GOLDEN["masked"][0]["texts"][0]])
    want = np.array(GOLDEN["masked"][0]["log_probs"])
    np.testing.assert_array_equal(record.features["likely_ids"], np.argsort(-want))
    np.testing.assert_allclose(record.features["likely"], -np.sort(-want), rtol=0, atol=1e-5)


# Of each family [CLS], [SEP], [UNK], [PAD] and [MASK] with their ids.
SPECIALS = {
    "modernbert": {"[CLS]": 2, "[SEP]": 3, "[UNK]": 1, "[PAD]": 0, "[MASK]": 4},
    "roberta": {"<s>": 0, "</s>": 2, "<unk>": 3, "<pad>": 1, "<mask>": 29},
}


@pytest.fixture(scope="module", params=SPECIALS)
def byte_level(request, tmp_path_factory):
    """A checkpoint with a head and a small tokenizer of byte-level BPE, and that tokenizer."""
    from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, processors

    name, specials = request.param, SPECIALS[request.param]
    free = iter(number for number in range(5, 29) if number not in specials.values())
    vocab = specials | dict(zip(["a", "b", "s", "t", "Ġ", ".", "at", "Ġs"], free, strict=False))
    tokenizer = Tokenizer(models.BPE(vocab, [("a", "t"), ("Ġ", "s")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokens = list(specials)
    tokenizer.post_processor = processors.TemplateProcessing(
        f"{tokens[0]} $A {tokens[1]}",
        f"{tokens[0]} $A {tokens[1]} $B {tokens[1]}",
        [(token, specials[token]) for token in tokens[:2]],
    )
    tokenizer.add_special_tokens([*tokens[:4], AddedToken(tokens[4], lstrip=True)])
    folder = shutil.copytree(families.DATA / name, tmp_path_factory.mktemp(name) / name)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder, tokenizer, tokens[4]


def log_probs(folder, ids):
    """Of every piece at each place of one row, by float64 NumPy."""
    found = find_checkpoint(folder)
    weights, row = read_weights(found, head=True), np.array([ids])
    states = NumpyEncoder(found.config, weights)(row, np.ones_like(row), np.zeros_like(row))
    return log_probabilities(states[-1][0], weights, found.config)


@pytest.mark.slow
def test_heads_with_byte_level_bpe(byte_level):
    """Blanks before a mask belong to it, as `tokenizers` has them."""
    folder, tokenizer, mask = byte_level
    texts = [f"a {mask} sat.", f"{mask}{mask} b  {mask}", f"bat{mask}s t"]
    outputs = [OUTPUT, {"name": "w", "level": "word", "layers": [-1]}]
    settings = {"outputs": outputs, "word_split": "whitespace", "device": "cpu"}
    records = FeatureExtractor.from_checkpoint(folder, **settings)(texts)
    for text, record in zip(texts, records, strict=True):
        ids = tokenizer.encode(text).ids
        assert record.token_ids.tolist() == ids
        assert list(record.words) == text.split()
        want = log_probs(folder, ids)
        likely = record.features["likely_ids"]
        np.testing.assert_allclose(
            record.features["likely"], np.take_along_axis(want, likely, -1), rtol=0, atol=2e-5
        )
        np.testing.assert_allclose(
            record.features["likely"], -np.sort(-want)[:, :4], rtol=0, atol=2e-5
        )
    spans = records[0].word_spans
    assert spans.starts.tolist() == [0, 2, 3 + len(mask)]
    assert spans.ends.tolist() == [1, 2 + len(mask), 7 + len(mask)]


def test_scores_with_byte_level_bpe(byte_level):
    folder, tokenizer, mask = byte_level
    extractor = FeatureExtractor.from_checkpoint(folder, kind="score", device="cpu")
    (record,) = extractor(["a sat."])
    ids = tokenizer.encode("a sat.").ids
    want = [0.0] * len(ids)
    for place in range(1, len(ids) - 1):
        masked = [*ids[:place], tokenizer.token_to_id(mask), *ids[place + 1 :]]
        want[place] = log_probs(folder, masked)[place, ids[place]]
    np.testing.assert_allclose(record.features["score"][:, 0], want, rtol=0, atol=2e-5)
