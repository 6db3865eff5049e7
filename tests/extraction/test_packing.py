"""Packing, end to end: the features of a text are those of the text alone, wherever it lies."""

import numpy as np
import pytest

from bert_features import FeatureExtractor
from bert_features.config.extract_config import ExtractConfig
from bert_features.extraction import preparation as preparation_module
from bert_features.extraction.counts import Counts
from bert_features.extraction.preparation import Preparation
from bert_features.extraction.recipe import cache_key
from bert_features.readers.input_example import InputExample
from bert_features.runtime.base import Devices
from bert_features.runtime.tensorflow import TensorFlowRuntime
from tests import packed
from tests.reference.tf1_checkpoint import write_directory
from tests.toy import TOY, TOY_VOCAB, WORDS, random_weights

# Rows of 128 tokens, and of 512 for texts of up to 150.
CONFIG = TOY.model_copy(update={"max_position_embeddings": 150})
WEIGHTS = random_weights(CONFIG)
OUTPUTS = [{"name": name, **output} for name, output in packed.OUTPUTS.items()]
BY_LEVEL = [
    {"name": "token", "layers": [-1]},
    {"name": "word", "layers": [-1], "level": "word", "pooling": "first_last"},
    {"name": "sequence", "layers": [-1], "level": "sequence", "normalize": True},
]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model") / "uncased"
    return str(write_directory(folder, CONFIG, TOY_VOCAB, WEIGHTS, kind="tf1"))


def examples_of(seed, *, longest, count=80):
    """Mostly short texts, some empty, some pairs of short texts, some of the greatest length."""
    rng = np.random.default_rng(seed)
    words = [word for word in WORDS if not word.startswith("##")] + ["jackson", "zzz"]
    texts = [
        " ".join(rng.choice(words, rng.integers(0, rng.choice([6, 30, longest]))))
        for _ in range(count)
    ]
    pairs = [
        texts[i - 1][:60] or None if i % 4 == 3 and len(text) < 200 else None
        for i, text in enumerate(texts)
    ]
    return [InputExample(i, *pair) for i, pair in enumerate(zip(texts, pairs, strict=True))]


def extractor_of(checkpoint, outputs, **settings):
    # So few tokens that there are several batches of each length, and of each number of rows.
    settings = {"batch_tokens": 1024, "do_lower_case": True, **settings}
    return FeatureExtractor.from_checkpoint(checkpoint, outputs=outputs, **settings)


def alone(record):
    """The text of a record, for the reference."""
    pieces = np.array(record.tokens)
    inside = ~np.isin(pieces, ["[CLS]", "[SEP]"])
    begins = inside & ~np.char.startswith(pieces.astype(str), "##")
    types = np.cumsum(np.roll(pieces == "[SEP]", 1)) - 1
    types[0] = 0
    words = np.where(inside, np.cumsum(begins) - 1, -1)
    return packed.Text(0, 0, 0, np.array(record.token_ids), types, words)


@pytest.mark.slow
def test_every_output_is_that_of_a_float64_encoder(checkpoint):
    examples = examples_of(0, longest=200)
    extractor = extractor_of(checkpoint, OUTPUTS, packing=True)
    records = extractor(examples)
    assert max(len(record.tokens) for record in records) == 150
    texts = [alone(record) for record in records]
    for record, wanted in zip(records, packed.expected(CONFIG, WEIGHTS, texts), strict=True):
        for name, want in wanted.items():
            got = record.features[name]
            if packed.OUTPUTS[name].get("level") == "word":
                assert not got[len(want) :].any()  # words that were cut off
                got, want = got[: len(want)], want.reshape(-1, got.shape[-1])
            np.testing.assert_allclose(got, want, rtol=0, atol=5e-5, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, {"long_text": "window", "max_seq_length": 40}], ids=str)
def test_rows_that_are_shared_give_what_rows_of_their_own_give(checkpoint, settings):
    """Within the documented bound: in every call, with the same counts and ledger."""
    examples = examples_of(1, longest=120)
    found = []
    for packing in (False, True):
        extractor = extractor_of(checkpoint, BY_LEVEL, packing=packing, **settings)
        counts, ledger = Counts(), []
        batches = extractor.batches(lambda: examples, counts=counts, ledger=ledger.append)
        records = [record for batch in batches for record in batch.records(extractor.features())]
        found.append((extractor, records, counts, ledger))
    (_, unpacked, counts, ledger), (extractor, shared, counts_shared, ledger_shared) = found
    assert ledger_shared == ledger
    assert counts_shared.computed_tokens != counts.computed_tokens
    counts_shared.computed_tokens = counts.computed_tokens
    assert counts_shared == counts
    few = extractor.compute(examples, Counts())  # as the service computes several requests
    vectors = extractor.encode(examples, "sequence")
    for i, (one, other) in enumerate(zip(unpacked, shared, strict=True)):
        assert (one.unique_id, one.tokens, one.words) == (
            other.unique_id, other.tokens, other.words)  # fmt: skip
        for name, values in one.features.items():
            received = [other.features[name]]
            if name == "sequence":
                received += [vectors[i], few.features["sequence"][i]]
            for each in received:
                bound = 1e-5 + 2e-6 * np.abs(values).max(initial=0)
                np.testing.assert_allclose(each, values, rtol=0, atol=bound)


def test_the_same_input_gives_the_same_bytes(checkpoint):
    examples = examples_of(2, longest=100)
    records = [extractor_of(checkpoint, BY_LEVEL, packing=True)(examples) for _ in range(2)]
    for one, other in zip(*records, strict=True):
        for name, values in one.features.items():
            assert values.tobytes() == other.features[name].tobytes()


@pytest.mark.parametrize(
    ("kind", "settings", "packs"),
    [
        ("tpu", {}, True),
        ("gpu", {"batch_size": 16}, True),
        ("gpu", {"packing": False}, False),
        ("tpu", {"buckets": [64]}, False),
        ("tpu", {"dedupe": True}, False),
        ("cpu", {}, False),
        ("cpu", {"packing": True}, True),
        ("cpu of JAX", {}, True),
        ("cpu of JAX", {"packing": False}, False),
    ],
)
def test_who_packs(checkpoint, monkeypatch, kind, settings, packs):
    """By default where shapes are compiled, and neither buckets nor equal features asked for."""
    runtime = TensorFlowRuntime("cpu")
    monkeypatch.setattr(runtime, "any_shape", kind == "cpu")
    monkeypatch.setattr(runtime, "devices", Devices(kind[:3], 1))
    config = ExtractConfig.of({"checkpoint": checkpoint, "layers": [-1], **settings})
    preparation = Preparation(config, runtime=runtime)
    assert preparation.packing == preparation.shapes.packed == packs
    assert (preparation.buckets == (128, 512)) == packs


def test_a_window_that_grows_has_a_limit(checkpoint, monkeypatch):
    """2 GiB of features; here those of 50,000 tokens of 8 float32 values."""
    monkeypatch.setattr(preparation_module, "_MAX_MEGABATCH_TOKENS", 40_000)
    monkeypatch.setattr(preparation_module, "_MAX_PACKED_MEGABATCH_BYTES", 50_000 * 32)
    runtime = TensorFlowRuntime("cpu")
    monkeypatch.setattr(runtime, "any_shape", False)
    monkeypatch.setattr(runtime, "devices", Devices("tpu", 8))
    settings = {"checkpoint": checkpoint, "layers": [-1]}
    assert Preparation(ExtractConfig.of(settings), runtime=runtime).megabatch_tokens == 50_000


def test_buckets_beyond_the_longest_row_are_named(checkpoint, caplog):
    config = ExtractConfig(checkpoint=checkpoint, buckets=[8, 9999], layers=-1, max_seq_length=16)
    assert Preparation(config).buckets == (8, 16)
    assert "buckets has [9999]; rows have at most 16 tokens" in caplog.messages


def test_texts_that_may_fill_several_packed_batches_are_not_one(checkpoint):
    """The last rows of a window go to batches of an eighth: here of two rows, not of 16."""
    settings = {"checkpoint": checkpoint, "layers": [-1], "packing": True, "batch_size": 16}
    preparation = Preparation(ExtractConfig.of(settings))
    assert preparation.fit_one_batch([InputExample(i, "a") for i in range(2)])
    assert not preparation.fit_one_batch([InputExample(i, "a") for i in range(16)])


def test_what_changes_no_float_has_one_key_of_a_cache(checkpoint):
    """Packing excludes a cache; int8 is made from floats; labels stand beside them."""

    def facts(**settings):
        config = {"checkpoint": checkpoint, "layers": [-1], "dedupe": True, **settings}
        return cache_key(Preparation(ExtractConfig.of(config)))

    assert facts(level="sequence", dtype="int8", scale_from=3) == facts(level="sequence")
    assert facts(level="sequence", dtype="float16") != facts(level="sequence")
    assert facts(level="word", label_field="ner") == facts(level="word")


@pytest.mark.slow
def test_a_value_that_is_not_finite_spoils_its_row_and_the_warning_says_so(tmp_path, caplog):
    """The word embedding of `b` is broken; all texts fit one packed row."""
    weights = random_weights(CONFIG)
    weights["embeddings/word_embeddings"][TOY_VOCAB.index("b")] = np.nan
    broken = str(write_directory(tmp_path / "uncased_broken", CONFIG, TOY_VOCAB, weights))
    texts = ["the a", "a b", "the is"]
    said = []
    for packing in (True, False):
        caplog.clear()
        extractor = extractor_of(broken, BY_LEVEL, packing=packing)
        finite = [
            all(np.isfinite(values).all() for values in record.features.values())
            for record in extractor(texts)
        ]
        assert finite == ([False] * 3 if packing else [True, False, True])
        said += [message for message in caplog.messages if "NaN or infinite" in message]
    assert "of 3 of 3 examples" in said[0]
    assert "of 1 of 3 examples" in said[1]
    assert ["--no-packing" in message for message in said] == [True, False]
