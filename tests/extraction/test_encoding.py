"""encode: arrays of one output, against the records of a call and NumPy."""

import gc
import signal
import subprocess
import sys
import weakref

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

from bert_features import BertFeatures, FeatureExtractor, FullTokenizer, Padded, Ragged
from bert_features.errors import DeviceError, InputError
from bert_features.readers import text as text_reader
from bert_features.readers.input_example import InputExample
from bert_features.runtime import loop

SETTINGS = {"max_seq_length": 20, "buckets": (5, 10), "batch_size": 8, "do_lower_case": True}
OUTPUTS = [
    {"name": "token", "layers": [-1]},
    {"name": "word", "level": "word", "layers": [-1]},
    {"name": "sequence", "level": "sequence", "layers": [-1]},
    {"name": "half", "layers": [0], "dtype": "bfloat16"},
]
WORDS = ["a", "b", "the", "jackson", "is", "not"]
# More than one batch of the assembler's 512 rows, of many lengths; some have no piece at all.
TEXTS = [" ".join(WORDS[(i + j) % 6] for j in range(i * 7 % 14)) for i in range(520)]


@pytest.fixture(scope="module")
def extractor(toy):
    return FeatureExtractor.from_checkpoint(toy, outputs=OUTPUTS, **SETTINGS)


@pytest.fixture(scope="module")
def records(extractor):
    return extractor(TEXTS)


def test_a_sequence_output_is_one_array(extractor, records):
    wanted = np.stack([record.features["sequence"] for record in records])
    vectors = extractor.encode(TEXTS, "sequence")
    assert (vectors.shape, vectors.dtype) == ((520, 8), np.float32)
    np.testing.assert_array_equal(vectors, wanted)
    # Of an iterator the number is unknown, and nothing else changes.
    np.testing.assert_array_equal(extractor.encode(iter(TEXTS), "sequence"), wanted)


def test_a_pair_in_the_notation_of_files_is_one_text_and_a_warning(extractor, caplog, monkeypatch):
    monkeypatch.setattr(text_reader, "_noticed", False)
    for texts in (["a ||| b"], [("a", "b")], {"text": ["a ||| b"]}, [["a", "|||", "b"]]):
        field = {"text_field": "text"} if isinstance(texts, dict) else {}
        (record,) = extractor(texts, **field)
        assert ("[UNK]" in record.tokens) == (texts != [("a", "b")])  # the toy has no bar
    (message,) = [message for message in caplog.messages if "|||" in message]
    assert message.startswith("a text has ' ||| ' and is computed as one text")


def test_a_batch_is_free_once_its_user_has_dropped_it(extractor):
    examples = [InputExample(i, "a b") for i in range(600)]
    batches = extractor.batches(lambda: iter(examples), threads=False)
    values = weakref.ref(next(batches).features["token"])
    assert values() is None


@pytest.mark.slow
@pytest.mark.parametrize("output", ["token", "word", "half"])
def test_tokens_and_words_are_padded_or_ragged(extractor, records, output):
    wanted = [record.features[output] for record in records]
    lengths = [len(values) for values in wanted]
    padded = extractor.encode(TEXTS, output)
    assert isinstance(padded, Padded)
    assert padded.values.shape == (520, max(lengths), 8)
    assert padded.mask.dtype == bool
    assert padded.mask.sum(axis=1).tolist() == lengths
    for row, mask, values in zip(padded.values, padded.mask, wanted, strict=True):
        np.testing.assert_array_equal(row[: len(values)], values)
        assert mask[: len(values)].all()
        assert not row[len(values) :].any()
    ragged = extractor.encode(TEXTS, output, ragged=True)
    assert isinstance(ragged, Ragged)
    assert ragged.row_splits.tolist() == [0, *np.cumsum(lengths)]
    np.testing.assert_array_equal(ragged.values, np.concatenate(wanted))
    np.testing.assert_array_equal(padded.values[padded.mask], ragged.values)
    assert padded.values.dtype == ragged.values.dtype == wanted[0].dtype


@pytest.mark.slow
def test_a_single_text_gives_its_own_array(extractor):
    (record,) = extractor("is this jacksonville ?")
    for text in ("is this jacksonville ?", InputExample("x", "is this jacksonville ?")):
        for output, shape in {"sequence": (8,), "token": (8, 8), "word": (4, 8)}.items():
            vector = extractor.encode(text, output)
            assert vector.shape == shape
            np.testing.assert_array_equal(vector, record.features[output])


def test_no_texts(extractor):
    assert extractor.encode([], "sequence").shape == (0, 8)
    values, mask = extractor.encode([], "token")
    assert (values.shape, mask.shape) == ((0, 0, 8), (0, 0))
    values, row_splits = extractor.encode([], "half", ragged=True)
    assert (values.shape, row_splits.tolist()) == ((0, 8), [0])
    assert values.dtype.name == "bfloat16"


FEW = ["is this a ?", "", "a b", ("a", "the b"), ["not", "jackson"], "the is"]


@pytest.fixture
def no_threads(monkeypatch):
    monkeypatch.setattr(loop.threading, "Thread", lambda **_: pytest.fail("a thread was started"))


def test_a_few_texts_start_no_thread(extractor, no_threads):
    assert len(extractor(FEW)) == 6
    for text in ("a", "a " * 99):
        assert extractor.encode(text, "sequence").shape == (8,)
    for texts in (TEXTS, ["a"] * 9, ["a", "a " * 9], iter(FEW)):  # nine are more than a batch
        with pytest.raises(pytest.fail.Exception):
            extractor.encode(texts, "sequence")


def test_a_few_texts_have_the_features_that_they_have_among_many(extractor):
    alone = extractor(FEW)
    among_many = extractor([*FEW, *TEXTS])[: len(FEW)]
    assert [record.unique_id for record in alone] == [*range(6)]
    for one, other in zip(alone, among_many, strict=True):
        assert (one.tokens, one.words) == (other.tokens, other.words)
        np.testing.assert_array_equal(one.token_ids, other.token_ids)
        assert one.features.keys() == other.features.keys()
        for name, values in one.features.items():
            wide, wanted = (v.astype(np.float32) for v in (values, other.features[name]))
            tolerance = 0.02 if name == "half" else 1e-5
            np.testing.assert_allclose(wide, wanted, atol=tolerance, rtol=0)


@pytest.mark.parametrize("threads", [True, False])
def test_counts_with_threads_and_without(extractor, threads):
    examples = [InputExample(i, text) for i, text in enumerate(["a b", "", "a xx", "a " * 30])]
    totals, ledger = [], []
    (batch,) = extractor.batches(
        lambda: examples, progress=totals.append, ledger=ledger.append, threads=threads
    )
    assert batch.unique_ids.tolist() == [0, 1, 2, 3]
    assert [counts.tokens_lost for counts in ledger] == [0, 0, 0, 12]
    assert [counts.tokens_unknown for counts in ledger] == [0, 0, 1, 0]
    assert (totals[-1].examples, totals[-1].tokens_lost) == (4, 12)


def test_names_of_other_libraries(extractor):
    with pytest.raises(AttributeError, match="has no encode_async"):
        extractor.encode_async  # noqa: B018
    with pytest.raises(AttributeError, match="attribute 'encodes'"):
        extractor.encodes  # noqa: B018
    assert FeatureExtractor.from_pretrained == FeatureExtractor.from_checkpoint


def test_strings_of_tensorflow(extractor):
    texts = ["a b", "naïve", ""]
    wanted = extractor.encode(texts, "sequence")
    np.testing.assert_array_equal(extractor.encode(tf.constant(texts), "sequence"), wanted)


def test_the_index_of_a_series_need_not_be_unique(extractor):
    """No ids come back; a call, which gives them, asks for it."""
    series = pd.Series(["a b", "it is"], index=[5, 5])
    vectors = extractor.encode(series, "sequence")
    np.testing.assert_array_equal(vectors, extractor.encode(["a b", "it is"], "sequence"))
    with pytest.raises(InputError, match="5 occurs more than once"):
        extractor(series)


def test_without_eager_execution_it_is_refused(extractor, toy):
    calls = [
        lambda: extractor.encode("a", "sequence"),
        lambda: FullTokenizer(f"{toy}/vocab.txt"),
        lambda: extractor.tokenizer.encode_ids(["a"]),
        lambda: BertFeatures.from_checkpoint(toy),
    ]
    with tf.Graph().as_default():
        for call in calls:
            with pytest.raises(DeviceError, match="eager execution is off"):
                call()


def test_the_settings_of_an_extractor_choose_the_backend_of_keras():
    """In a process that has imported neither TensorFlow nor Keras."""
    program = """
import sys
from bert_features import FeatureExtractor
from bert_features.extraction import pipeline

def chosen(runtime, device):
    sys.exit(f"{runtime}, {device}, {sorted({'keras', 'tensorflow'} & sys.modules.keys())}")

pipeline.import_tensorflow = chosen
FeatureExtractor.from_checkpoint(runtime="jax", device="cpu")
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ended.stderr == "jax, cpu, []\n"


@pytest.mark.parametrize("dropped_by", ["the garbage collector", "a library"])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_ctrl_c_ends_a_call_wherever_it_comes(extractor, monkeypatch, dropped_by):
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        pytest.skip("SIGINT is ignored here, as in a background job of a shell")

    def interrupt(*_):
        if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:  # in the call
            monkeypatch.undo()
            signal.raise_signal(signal.SIGINT)

    def run(*arguments, **options):
        if dropped_by == "a library":
            try:
                interrupt()
            except KeyboardInterrupt:
                raise ValueError("cannot convert this") from None
        gc.collect()
        return type(extractor)._run(extractor, *arguments, **options)

    monkeypatch.setattr(extractor, "_run", run)
    if dropped_by == "the garbage collector":
        gc.callbacks.append(interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            extractor.encode(["a b"], "sequence")
    finally:
        if interrupt in gc.callbacks:
            gc.callbacks.remove(interrupt)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert extractor.encode(["a b"], "sequence").shape == (1, 8)


def test_progress_is_shown_on_standard_error_if_asked_for(extractor, capfd):
    extractor.encode(TEXTS[:20], "sequence", show_progress=True)
    out, error = capfd.readouterr()
    assert "20/20 texts" in error
    assert out == ""
    extractor.encode(TEXTS[:20], "sequence")
    assert capfd.readouterr() == ("", "")
