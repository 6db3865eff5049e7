"""InputFormat: settings that contradict each other, or have no meaning in a format."""

import pytest

from bert_features.config.input_format import InputFormat
from bert_features.errors import ConfigError


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"format": "xml"}, "format is 'xml'; allowed: 'auto', 'text', 'words', 'jsonl'"),
        ({"conll_column": 0}, "conll_column is 0; allowed: an integer of at least 1"),
        ({"delimiter": ";;"}, r"delimiter is ';;'; allowed: one character, as ';', '\|' or"),
        ({"text_field": "a", "tokens_field": "b"}, "'a'.* or words .*'b'"),
        ({"text_b_field": "a", "tokens_field": "b"}, "'a'.* or words .*'b'"),
    ],
)
def test_formats_that_cannot_be(settings, message):
    with pytest.raises(ConfigError, match=message):
        InputFormat(**settings)
