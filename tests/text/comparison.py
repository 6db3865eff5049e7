"""The graph tokenizer beside the plain-Python one of `tests.reference`."""

import tensorflow as tf

from tests.reference.full_tokenizer import ReferenceTokenizer

CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def graph_ids(tokenizer, texts):
    return tokenizer(tf.constant([text.encode() for text in texts])).to_list()


def assert_equals_reference(tokenizer, texts):
    reference = ReferenceTokenizer.from_tokens(tokenizer.tokens, lower=tokenizer.do_lower_case)
    texts = list(texts)
    got = graph_ids(tokenizer, texts)
    wrong = [t for t, ids in zip(texts, got, strict=True) if ids != reference.ids(t)]
    assert not wrong, f"{len(wrong)} of {len(texts)} texts differ, first {wrong[0]!r}"
