"""Records in memory have the places of their tokens, as the service's answers do."""

import pytest

from bert_features import FeatureExtractor

TEXTS = ["Is this Jacksonville?", "", "the  a\tB", ("not a jackson , is it ?", "No . it is")]
# Settings, and the tokens of the last text, which is cut.
CASES = {
    "cut": ({}, "[CLS] not a jack ##son [SEP] no . it [SEP]"),
    "head and tail": ({"long_text": "head_tail"}, "[CLS] not is it ? [SEP] . it is [SEP]"),
    "a prompt": ({"prompt": "the "}, "[CLS] the not a jack [SEP] no . it [SEP]"),
}


@pytest.mark.parametrize("case", CASES)
def test_each_offset_is_the_place_of_its_piece(toy, case):
    settings, last = CASES[case]
    extractor = FeatureExtractor.from_checkpoint(
        toy, layers=-1, max_seq_length=10, do_lower_case=True, **settings
    )
    records = extractor(TEXTS)
    assert " ".join(records[-1].tokens) == last
    for text, record in zip(TEXTS, records, strict=True):
        parts = [text] if isinstance(text, str) else list(text)
        assert len(record.offsets) == len(record.tokens)
        prompt = 1 + settings.get("prompt", "").count(" ")
        assert record.offsets[0] is None
        for token, offset in list(zip(record.tokens, record.offsets, strict=True))[prompt:]:
            if token == "[SEP]":
                assert offset is None
                parts.pop(0)
            else:
                assert parts[0][slice(*offset)].lower() == token.removeprefix("##")
        assert not parts
        assert record.offsets[:prompt] == (None,) * prompt


def test_a_second_text_of_which_nothing_is_kept(toy):
    extractor = FeatureExtractor.from_checkpoint(
        toy, layers=-1, max_seq_length=4, do_lower_case=True
    )
    (record,) = extractor([("the a", "b")])
    assert record.tokens == ("[CLS]", "the", "[SEP]")
    assert record.offsets == (None, (0, 3), None)


def test_windows_have_all_offsets_and_sentences_none(toy):
    settings = {"max_seq_length": 6, "do_lower_case": True}
    (record,) = FeatureExtractor.from_checkpoint(
        toy, layers=-1, long_text="window", stride=2, **settings
    )(["the a b is it not"])
    assert record.offsets == (None, (0, 3), (4, 5), (6, 7), (8, 10), (11, 13), (14, 17), None)
    (record,) = FeatureExtractor.from_checkpoint(toy, layers=-1, level="sequence", **settings)(
        ["a"]
    )
    assert record.offsets is None
