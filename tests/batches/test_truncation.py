"""kept_lengths against the official script's own way, one token at a time."""

from bert_features.batches.truncation import kept_lengths


def official_truncation(length_a, length_b, seq_length):
    """_truncate_seq_pair of the official script, one token at a time."""
    limit = seq_length - (3 if length_b else 2)
    while length_a + length_b > limit:
        if length_a > length_b:
            length_a -= 1
        else:
            length_b -= 1
    return length_a, length_b


def test_truncation_is_the_official_one():
    for a in range(15):
        for b in range(15):
            for seq_length in range(3, 24):
                assert kept_lengths(a, b, seq_length) == official_truncation(a, b, seq_length)
