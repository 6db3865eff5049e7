"""Outputs of tokens, words and sequences, end to end, against NumPy loops over single examples."""

from itertools import chain

import numpy as np
import pytest

from bert_features import FeatureExtractor
from bert_features.config.poolings import POOLINGS
from bert_features.errors import ConfigError
from bert_features.extraction.counts import ExampleCounts
from bert_features.readers.input_example import InputExample
from bert_features.text.vocabulary import CLS, SEP
from tests.reference import numpy_outputs
from tests.reference.full_tokenizer import ReferenceTokenizer, basic_tokenize
from tests.reference.numpy_encoder import NumpyEncoder
from tests.toy import TOY, TOY_VOCAB, random_weights

SETTINGS = {"max_seq_length": 16, "buckets": (8,), "batch_size": 4, "do_lower_case": True}
WEIGHTS = random_weights(TOY)
TOKENIZER = ReferenceTokenizer.from_tokens(TOY_VOCAB, lower=True)
ENCODER = NumpyEncoder(TOY, WEIGHTS)
WORD_POOLINGS = POOLINGS["word"]
TEXTS = ["Is this Jacksonville?", "", "the a b", "not a jackson, is it? No.", "B", "zzz the zzz"]


def states_of(pieces_a, pieces_b=()):
    """The tokens of one row, and its states, [T, H] each."""
    tokens = [CLS, *pieces_a, SEP, *([*pieces_b, SEP] if pieces_b else [])]
    ids = np.array([[TOKENIZER.vocab[t] for t in tokens]])
    types = (np.arange(len(tokens)) >= len(pieces_a) + 2).astype(int)[None]
    return tokens, [s[0] for s in ENCODER(ids, np.ones_like(ids), types)]


def close(got, wanted):
    assert got.shape == wanted.shape
    np.testing.assert_allclose(got, wanted, rtol=0, atol=2e-5)


@pytest.mark.slow
def test_many_outputs_from_one_pass(toy):
    outputs = [
        {"name": "tokens", "layers": [-1, "embeddings"], "combine": "concat"},
        {"name": "half", "layers": [0], "dtype": "float16"},
        {"name": "words", "level": "word", "layers": [-1, -2], "combine": "sum"},
        {"name": "mean", "level": "sequence", "layers": [-2], "special_tokens": False},
        {"name": "pooled", "level": "sequence", "pooling": "pooler"},
        {"name": "unit", "level": "sequence", "pooling": "CLS_TOKEN", "layers": [0], "dim": 5,
         "normalize": True},
    ]  # fmt: skip
    extractor = FeatureExtractor.from_checkpoint(toy, outputs=outputs, **SETTINGS)
    for text, record in zip(TEXTS, extractor(TEXTS), strict=True):
        tokens, states = states_of(TOKENIZER.tokenize(text))
        assert list(record.tokens) == tokens
        special = np.isin(tokens, [CLS, SEP])
        features = record.features
        close(features["tokens"], numpy_outputs.combine(states, outputs[0]))
        assert features["half"].dtype == np.float16
        np.testing.assert_allclose(features["half"], states[1], rtol=0, atol=4e-3)
        close(features["mean"], numpy_outputs.pool_sequence(states[-2], special, "mean", False))
        close(features["pooled"], ENCODER.pooled(states[-1][None])[0])
        close(features["unit"], numpy_outputs.finish(states[1][0], outputs[5]))
        close(features["words"], words_of(states[-1] + states[-2], text, "mean"))
        assert list(record.words) == split_as_bert(text)


def split_as_bert(text):
    """Words as BERT splits them, in the text's own letters; of texts that lower-casing keeps."""
    words, rest = [], text
    for word in basic_tokenize(text, lower=True):
        at = rest.lower().index(word)
        words.append(rest[at : at + len(word)])
        rest = rest[at + len(word) :]
    return words


def words_of(vectors, text, pooling):
    """[words, D]: the words of a text that fits its row, from its tokens' vectors."""
    pooled, at = [], 1
    for word in basic_tokenize(text, lower=True):
        count = len(TOKENIZER.tokenize(word))
        pooled.append(numpy_outputs.pool_word(vectors[at : at + count], pooling))
        at += count
    width = vectors.shape[1] * (2 if pooling == "first_last" else 1)
    return np.array(pooled).reshape(-1, width)


def test_words_of_texts_come_with_their_places(toy):
    outputs = [{"name": p, "level": "word", "layers": [-1], "pooling": p} for p in WORD_POOLINGS]
    extractor = FeatureExtractor.from_checkpoint(toy, outputs=outputs, **SETTINGS)
    for text, record in zip(TEXTS, extractor(TEXTS), strict=True):
        assert record.tokens is None
        spans = record.word_spans
        places = zip(spans.starts, spans.ends, strict=True)
        assert [text[a:b] for a, b in places] == list(record.words) == split_as_bert(text)
        assert not spans.type_ids.any()
        _, states = states_of(TOKENIZER.tokenize(text))
        for pooling in WORD_POOLINGS:
            close(record.features[pooling], words_of(states[-1], text, pooling))


def test_words_split_at_white_space_keep_their_punctuation(toy):
    extractor = FeatureExtractor.from_checkpoint(
        toy, layers=(-1,), level="word", word_split="whitespace", **SETTINGS
    )
    (record,) = extractor(["Is  this Jacksonville?"])
    assert record.words == ("Is", "this", "Jacksonville?")
    assert record.word_spans.starts.tolist() == [0, 4, 9]
    assert record.word_spans.num_pieces.tolist() == [1, 1, 4]
    _, states = states_of(TOKENIZER.tokenize("is this jacksonville?"))
    wanted = [states[-1][1], states[-1][2], states[-1][3:7].mean(axis=0)]
    close(record.features["features"], np.array(wanted))


WORDS = [
    (("Is", "this", "\u200b", "Jacksonville"), ("", "no", "a-b")),
    (("\u00ad",), None),
    ((), None),
    (("zzz", "Jackson's"), None),
]


def given_words():
    return [
        InputExample(i, " ".join(a), None if b is None else " ".join(b), a, b)
        for i, (a, b) in enumerate(WORDS)
    ]


def test_exactly_one_vector_for_each_word_of_the_input(toy):
    extractor = FeatureExtractor.from_checkpoint(toy, layers=(-1,), level="word", **SETTINGS)
    told = []
    (batch,) = extractor.batches(given_words, ledger=told.append)
    records = list(batch.records(extractor.features()))
    for (a, b), record in zip(WORDS, records, strict=True):
        words = [*a, *(b or ())]
        assert list(record.words) == words
        pieces_a = [TOKENIZER.tokenize(word) for word in a]
        pieces_b = [TOKENIZER.tokenize(word) for word in b or ()]
        _, states = states_of([*chain(*pieces_a)], [*chain(*pieces_b)])
        at, wanted = 1, []
        for i, pieces in enumerate(pieces_a + pieces_b):
            at += i == len(pieces_a)  # the [SEP] between the texts
            part = states[-1][at : at + len(pieces)]
            wanted.append(part.mean(axis=0) if len(pieces) else np.zeros(TOY.hidden_size))
            at += len(pieces)
        close(record.features["features"], np.array(wanted).reshape(-1, TOY.hidden_size))
        counts = [len(pieces) for pieces in pieces_a + pieces_b]
        assert record.word_spans.num_pieces.tolist() == counts
        assert record.word_spans.type_ids.tolist() == [0] * len(a) + [1] * len(b or ())
        assert (record.word_spans.starts == -1).all()
    assert [(c.words, c.words_vanished, c.words_lost) for c in told] == [
        (7, 2, 0), (1, 1, 0), (0, 0, 0), (2, 0, 0)
    ]  # fmt: skip


@pytest.mark.slow
def test_words_that_are_cut_off_are_zero_and_told(toy):
    extractor = FeatureExtractor.from_checkpoint(
        toy, layers=(-1,), level="word", **{**SETTINGS, "max_seq_length": 6, "buckets": ()}
    )
    words = ("a", "b", "jacksonville", "the", "is")
    told = []
    examples = [InputExample(7, " ".join(words), None, words)]
    (batch,) = extractor.batches(lambda: examples, ledger=told.append)
    (record,) = batch.records(extractor.features())
    assert told == [ExampleCounts(7, tokens_kept=4, tokens_lost=3, words=5, words_lost=2)]
    assert record.word_spans.num_pieces.tolist() == [1, 1, 2, 0, 0]
    _, states = states_of(["a", "b", "jack", "##son"])
    vectors = record.features["features"]
    close(vectors[2], states[-1][3:5].mean(axis=0))
    assert (vectors[3:] == 0).all()
    assert (np.abs(vectors[:3]).max(axis=1) > 0).all()


def windows_of(pieces, room, stride):
    begins = [0]
    while begins[-1] + room < len(pieces):
        begins.append(min(begins[-1] + stride, len(pieces) - room))
    return [(b, pieces[b : b + room]) for b in begins]


@pytest.mark.parametrize("stride", [None, 7])
def test_windows_against_single_rows(toy, stride):
    """Tokens from the window with the most context; sequences averaged by real tokens."""
    outputs = [
        {"name": "tokens", "layers": [-1]},
        {"name": "words", "layers": [-1], "level": "word", "pooling": "first"},
        {"name": "mean", "layers": [-1], "level": "sequence", "normalize": True},
    ]
    extractor = FeatureExtractor.from_checkpoint(
        toy,
        outputs=outputs,
        long_text="window",
        stride=stride,
        **{**SETTINGS, "max_seq_length": 10, "buckets": (5,)},
    )
    texts = ["the a b is no it not . " * n for n in (1, 4, 9, 2)] + ["a b", ""]
    told = []
    examples = [InputExample(i, text) for i, text in enumerate(texts)]
    (batch,) = extractor.batches(lambda: examples, ledger=told.append)
    for text, record in zip(texts, batch.records(extractor.features()), strict=True):
        pieces = TOKENIZER.tokenize(text)
        windows = windows_of(pieces, 8, stride or 4)
        rows = [states_of(part)[1][-1] for _, part in windows]
        assert list(record.tokens) == [CLS, *pieces, SEP]
        wanted = [rows[0][0]]
        for i in range(len(pieces)):
            contexts = [
                min(i - b, b + len(p) - 1 - i) if b <= i < b + len(p) else -1 for b, p in windows
            ]
            best = contexts.index(max(contexts))
            wanted.append(rows[best][1 + i - windows[best][0]])
        wanted.append(rows[-1][-1])
        close(record.features["tokens"], np.array(wanted))
        close(record.features["words"], np.array(wanted[1:-1]).reshape(-1, TOY.hidden_size))
        mean = np.average([r.mean(axis=0) for r in rows], axis=0, weights=[len(r) for r in rows])
        close(record.features["mean"], mean / np.linalg.norm(mean))
    assert [c.windows for c in told][-2:] == [1, 1]
    assert [c.tokens_kept for c in told] == [8, 32, 72, 16, 2, 0]
    assert not any(c.tokens_lost for c in told)


def test_some_of_the_outputs_alone(toy):
    outputs = [{"name": "first", "layers": [0]}, {"name": "both", "layers": [0, -1]}]
    extractor = FeatureExtractor.from_checkpoint(toy, outputs=outputs, **SETTINGS)
    alone = extractor.with_outputs(["both_1", "first"])
    assert [output.name for output in alone.outputs] == ["first", "both_1"]
    wanted, found = extractor(["a b"])[0], alone(["a b"])[0]
    assert list(found.features) == ["first", "both_1"]
    for name, values in found.features.items():
        np.testing.assert_allclose(values, wanted.features[name], atol=1e-6)
    for names in ([], ["both"]):
        with pytest.raises(ConfigError, match="'first', 'both_0'"):
            extractor.with_outputs(names)
