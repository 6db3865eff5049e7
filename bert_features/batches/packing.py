"""Texts to padded rows of ids, inside a TensorFlow graph: what layers and exports need.

Shape legend: `B` texts, `S` the length of the rows.
"""

import tensorflow as tf

from bert_features.batches.input_fn import pack
from bert_features.text.tokenization import FullTokenizer


def encode_texts(
    tokenizer: FullTokenizer,
    first: tf.Tensor,
    second: tf.Tensor,
    *,
    seq_length: int,
    pad: bool = True,
) -> dict[str, tf.Tensor]:
    """Tokenises texts into rows [CLS] a [SEP] b [SEP], truncated as the official script does.

    Args:
      tokenizer: the tokenizer of the checkpoint.
      first: string [B], text_a.
      second: string [B], text_b; empty for none.
      seq_length: the tokens of the longest row.
      pad: pad rows to `seq_length`; if false, to the longest row of the batch.

    Returns:
      `input_word_ids`, `input_mask`, `input_type_ids` int32 [B, S]; `tokens_lost` int32 [B].
    """
    # AutoGraph would read the source, which takes two seconds and changes nothing here.
    encode = tf.autograph.experimental.do_not_convert(pack)
    rows, type_starts, lost = encode(tokenizer, first, second, seq_length=seq_length)
    ids = rows.to_tensor(shape=[None, seq_length if pad else None])
    position = tf.range(tf.shape(ids, rows.row_splits.dtype)[1], dtype=rows.row_splits.dtype)
    mask = position < rows.row_lengths()[:, None]
    in_second = mask & (position >= tf.cast(type_starts, position.dtype)[:, None])
    shape = ids.shape
    return {
        "input_word_ids": ids,
        "input_mask": tf.ensure_shape(tf.cast(mask, tf.int32), shape),
        "input_type_ids": tf.ensure_shape(tf.cast(in_second, tf.int32), shape),
        "tokens_lost": lost,
    }
