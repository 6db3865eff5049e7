"""InputFormat: settings that contradict each other."""

import pytest

from bert_features.config.input_format import InputFormat
from bert_features.errors import ConfigError


@pytest.mark.parametrize("field", ["text_field", "text_b_field"])
def test_texts_and_words_are_not_both_read(field):
    with pytest.raises(ConfigError, match=r"'a'.* or words .*'b'"):
        InputFormat(**{field: "a", "tokens_field": "b"})
