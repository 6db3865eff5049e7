"""How a child process ended: the line of its standard error that says why."""

import pytest

from bert_features.doctor.runtimes import last_words


@pytest.mark.parametrize(
    ("stderr", "words"),
    [
        ("", ""),
        ("one\ntwo\n\n", "two"),
        ("why\n=== Source Location Trace: ===\nlearning/a_b.cc:52\n", "why"),
        ("why\nI0000 00:00:1795.33 12 port.cc:153] oneDNN is on\n", "why"),
        (
            # https://github.com/jax-ml/jax/issues/19971
            "xla_bridge.py:146: UserWarning: TPU backend initialization is taking more than 60.0 "
            "seconds. Did you run your code on all TPU hosts?\n  warnings.warn(\n",
            "xla_bridge.py:146: UserWarning: TPU backend initialization is taking more than 60.0 "
            "seconds. Did you run your code on all TPU hosts?",
        ),
        ("F0000 00:00:1795.33 12 tpu.cc:1] fatal\n@ 0x7f stack\n", "fatal"),
    ],
)
def test_the_line_that_says_why(stderr, words):
    assert last_words(stderr) == words
