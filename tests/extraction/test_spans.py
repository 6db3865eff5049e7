"""Spans end to end: each vector is the pooled vectors of its tokens, by float64 NumPy."""

import json
from dataclasses import replace

import numpy as np
import pytest

from bert_features import FeatureExtractor, extract, nearest, plan, read_features
from bert_features.config.extract_config import ExtractConfig
from bert_features.config.poolings import POOLINGS
from bert_features.errors import ConfigError, InputError, OutputError
from bert_features.extraction.prompts import _prepare
from bert_features.readers.input_example import InputExample, Span
from tests import families
from tests.reference.numpy_outputs import pool_word

WORDS = ["is", "this", "jacksonville", "?", "no", "it", "is", "not", ".", "the", "a", "b"]
OUTPUTS = [
    {"name": "t", "layers": [-1]},
    *(
        {"name": pooling, "layers": [-1], "level": "span", "pooling": pooling}
        for pooling in POOLINGS["span"]
    ),
    # Of two vectors of 8 values or more, the second one cut, and scaled as a whole.
    {"name": "unit", "layers": [-1], "level": "span", "pooling": "first_last", "dim": 11}
    | {"normalize": True},
]


def examples_of(seed=0):
    """Short, long and paired texts with random spans, some of them empty or nested."""
    rng = np.random.default_rng(seed)
    examples = []
    for i, count in enumerate((3, 9, 40, 22, 12)):
        texts = [" ".join(rng.choice(WORDS, count)), "is this" if i % 2 else None]
        spans = []
        for _ in range(6 if i else 3):
            kind = int(texts[1] is not None and rng.integers(2))
            begin, end = np.sort(rng.integers(0, len(texts[kind]) + 1, 2)).tolist()
            spans.append(Span(begin, end, f"L{begin}", kind))
        examples.append(InputExample(i, *texts, spans=tuple(spans)))
    return examples


def tokens_of(record, span):
    """The numbers of the tokens that overlap a span."""
    separators = [i for i, offset in enumerate(record.offsets) if offset is None]
    first = separators[1] if span.type_id else 0
    last = len(record.offsets) if span.type_id else separators[1]
    return [
        i
        for i in range(first, last)
        if record.offsets[i] is not None
        and span.begin < min(record.offsets[i][1], span.end)
        and record.offsets[i][0] < span.end
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "outputs", "settings"),
    [
        ("bert", OUTPUTS, {"long_text": "window", "max_seq_length": 12, "packing": True}),
        # Two [SEP]s between the texts, no token types, no outputs that take long to trace.
        ("roberta", OUTPUTS[:2], {"long_text": "window", "max_seq_length": 14, "stride": 4}),
        # Local attention, and rotary positions of packed rows.
        ("modernbert", OUTPUTS[:2], {"long_text": "window", "max_seq_length": 14, "packing": True}),
    ],
)
def test_a_span_is_the_pooled_vectors_of_its_tokens(family, outputs, settings, tmp_path):
    folder = families.folder(family, tmp_path)
    extractor = FeatureExtractor.from_checkpoint(folder, outputs=outputs, device="cpu", **settings)
    examples = examples_of()
    several = 0
    for record, example in zip(extractor(examples), examples, strict=True):
        units = record.units["span"]
        assert units["span_labels"] == tuple(span.label for span in example.spans)
        for k, span in enumerate(example.spans):
            text = (example.text_a, example.text_b)[span.type_id]
            assert units["spans"][k] == text[span.begin : span.end]
            tokens = tokens_of(record, span)
            assert units["span_num_pieces"][k] == len(tokens)
            several += len(tokens) > 12
            for pooling in record.features.keys() & POOLINGS["span"]:
                got = record.features[pooling][k]
                if not tokens:
                    assert not got.any()
                    continue
                want = pool_word(record.features["t"][tokens].astype(np.float64), pooling)
                np.testing.assert_allclose(got, want, rtol=0, atol=1e-5 + 2e-6 * abs(want).max())
            if "unit" in record.features:
                want = record.features["first_last"][k][:11].astype(np.float64)
                want /= max(np.linalg.norm(want), 1e-12)
                np.testing.assert_allclose(record.features["unit"][k], want, rtol=0, atol=1e-6)
    assert several  # longer than a window


@pytest.fixture(scope="module")
def settings(toy):
    return {"checkpoint": toy, "do_lower_case": True, "max_seq_length": 12, "layers": [-1]} | {
        "level": "span",
        "normalize": True,
    }


TEXT = "is this jackson ? no it is not ."


@pytest.mark.slow
def test_more_spans_than_tokens_are_counted_and_do_not_end_the_run(settings, caplog):
    extractor = FeatureExtractor.from_checkpoint(**settings, packing=True, long_text="window")
    spans, others = [(0, 1)] * 7, [(0, 1), (0, 3)]
    values, splits = extractor.encode(["a b", "a b"], spans=[spans, others], ragged=True)
    assert splits.tolist() == [0, 7, 9]
    assert (np.abs(values).max(axis=1) > 0).tolist() == [True] * 4 + [False] * 3 + [True] * 2
    np.testing.assert_allclose(values[:4], values[[7]].repeat(4, axis=0), atol=1e-6)
    assert "3 of 9 spans have a vector of zeros: they were cut off, or their row" in caplog.text


def lines(*records):
    return "".join(json.dumps(record) + "\n" for record in records)


@pytest.mark.slow
def test_the_counts_of_a_run_and_of_the_cache(settings, tmp_path):
    (path := tmp_path / "in.jsonl").write_text(
        lines(
            {"text": TEXT, "s": [[0, 7, "one"], [8, 15], [15, 16]]},
            {"text": TEXT, "s": [[0, 7, "two"]]},
            {"text": TEXT, "s": [[0, 7, "one"], [8, 15], [15, 16]]},
            {"text": "a", "s": []},
            {"text": "it " * 20, "s": [[0, 60, "cut"], [57, 59, "lost"]]},
        )
    )
    config = ExtractConfig.of({**settings, "span_field": "s", "cache": str(tmp_path / "cache")})
    alone, again = (
        extract(config, path, tmp_path / f"{n}.npz", ledger_path=tmp_path / f"{n}.jsonl").counts
        for n in "ab"
    )
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()
    for counts in (alone, again):
        found = counts.spans, counts.spans_blank, counts.spans_cut, counts.spans_lost
        assert found == (9, 2, 1, 1)
    ledger = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert [each.get("spans") for each in ledger] == [3, 1, 3, None, 2]
    assert (ledger[4]["spans_cut"], ledger[4]["spans_lost"]) == (1, 1)

    file = read_features(tmp_path / "a.npz")
    labels = [record.units["span"]["span_labels"] for record in file]
    assert labels == [("one", "", ""), ("two",), ("one", "", ""), (), ("cut", "lost")]
    planned = plan(config, path)
    assert planned.spans == 9
    assert planned.output_bytes("npz") == file.ragged("features")[0].nbytes


def test_rows_of_tables_and_neighbors(settings, tmp_path):
    (path := tmp_path / "in.jsonl").write_text(
        lines(
            {"id": "x", "text": TEXT, "s": [[0, 16, "q"], [18, 32]]},
            {"id": "y", "text": "", "s": []},
        )
    )
    extract(ExtractConfig.of({**settings, "span_field": "s"}), path, tmp_path / "a.parquet")
    file = read_features(tmp_path / "a.parquet")
    frame = file.to_pandas()
    assert frame["unique_id"].tolist() == ["x", "x"]
    assert frame["spans"].tolist() == [TEXT[:16], TEXT[18:32]]
    assert frame["span_labels"].tolist() == ["q", ""]
    np.testing.assert_array_equal(frame["features"][1], file[0].features["features"][1])
    assert len(file.to_pandas(level="sequence")) == 2
    with pytest.raises(OutputError, match="level"):
        file.to_pandas(level="word")
    hit, other = nearest(file, TEXT[:16])
    assert (hit.unique_id, hit.position, hit.span, hit.tokens) == ("x", 0, TEXT[:16], None)
    assert other.span == TEXT[18:32]
    # A part of the query has its vector in the context of the whole query.
    first, _ = nearest(file, TEXT, token=TEXT[18:32])
    assert first.position == 1
    assert first.similarity == pytest.approx(1, abs=1e-6)
    with pytest.raises(ConfigError, match="token is 'zz'"):
        nearest(file, TEXT, token="zz")


def test_prompts_move_no_span_and_spans_are_made(settings, monkeypatch):
    from bert_features.readers import sentences
    from tests.readers.test_spans import Splitter

    monkeypatch.setattr(sentences, "check_installed", lambda: Splitter)
    plain = FeatureExtractor.from_checkpoint(**settings)
    spans = [(0, 4), (8, 15)]
    prompted = FeatureExtractor.from_checkpoint(**settings, prompt="the b ")
    (got,) = prompted([TEXT[:15]], spans=[spans])
    moved = [(begin + 6, end + 6) for begin, end in spans]
    (want,) = plain(["the b " + TEXT[:15]], spans=[moved])
    assert got.units["span"]["spans"] == want.units["span"]["spans"] == (TEXT[0:4], TEXT[8:15])
    assert got.units["span"]["span_begins"].tolist() == [0, 8]
    np.testing.assert_array_equal(got.features["features"], want.features["features"])
    for rule, found in (("sentences", ["is it.", "no."]), ("2/1", ["is it", "it.", ". no", "no."])):
        made = FeatureExtractor.from_checkpoint(**settings, spans=rule, prompt="the b ")
        (record,) = made(["is it. no."])
        assert list(record.units["span"]["spans"]) == found
    part, whole = (plain.encode("is", spans=[(0, end)]) for end in (1, 2))
    np.testing.assert_array_equal(part, whole)


def test_a_letter_that_lower_case_makes_two():
    example = InputExample(7, "a\u0130b", spans=(Span(2, 3),))
    options = {"lower_case": True, "is_query": False}
    assert _prepare(replace(example, text_a="AB"), prompt="p ", **options).text_a == "p ab"
    with pytest.raises(InputError, match="example 7 has a letter"):
        _prepare(example, prompt="", **options)
