"""The graph tokenizer beside the plain-Python one of `tests.reference`; characters to try."""

import functools
import unicodedata

import tensorflow as tf

from tests.reference.full_tokenizer import CJK_RANGES, ReferenceTokenizer, is_chinese


def _is_alike(char):
    if unicodedata.category(char) in ("Cn", "Co"):
        return True
    return is_chinese(char) and not unicodedata.decomposition(char)


# Of the 830,000 code points without a character, and of the 97,000 ideographs that are like each
# other, every 97th and the ends of their ranges stand for their kin.
_ENDS = {c for ends in CJK_RANGES for end in ends for c in (end - 1, end, end + 1)}


@functools.cache
def characters():
    return [
        chr(c)
        for c in range(0x110000)
        if not 0xD800 <= c < 0xE000 and (c % 97 == 0 or c in _ENDS or not _is_alike(chr(c)))
    ]


def graph_ids(tokenizer, texts):
    return tokenizer(tf.constant([text.encode() for text in texts])).to_list()


def assert_equals_reference(tokenizer, texts):
    switches = tokenizer.switches
    reference = ReferenceTokenizer.from_tokens(
        tokenizer.tokens,
        lower=tokenizer.do_lower_case,
        strip=switches.get("strip_accents"),
        chinese=switches.get("tokenize_chinese_chars", True),
    )
    texts = list(texts)
    got = graph_ids(tokenizer, texts)
    wrong = [t for t, ids in zip(texts, got, strict=True) if ids != reference.ids(t)]
    assert not wrong, f"{len(wrong)} of {len(texts)} texts differ, first {wrong[0]!r}"
