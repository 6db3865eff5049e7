"""Rows [CLS] a [SEP] b [SEP] made in the TensorFlow graph, for exports and Keras layers.

Shape legend: `B` texts, `S` the length of the rows.
"""

import tensorflow as tf

from bert_features.text.tokenizer import Tokenizer


def encode_texts(
    tokenizer: Tokenizer,
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
    encode = tf.autograph.experimental.do_not_convert(_pack)
    rows, type_starts, lost = encode(tokenizer, first, second, seq_length=seq_length)
    frame = tokenizer.frame
    ids = rows.to_tensor(frame.pad_id, shape=[None, seq_length if pad else None])
    position = tf.range(tf.shape(ids, rows.row_splits.dtype)[1], dtype=rows.row_splits.dtype)
    mask = position < rows.row_lengths()[:, None]
    is_second = mask & (position >= tf.cast(type_starts, position.dtype)[:, None])
    is_second &= frame.has_types
    shape = ids.shape
    return {
        "input_word_ids": ids,
        "input_mask": tf.ensure_shape(tf.cast(mask, tf.int32), shape),
        "input_type_ids": tf.ensure_shape(tf.cast(is_second, tf.int32), shape),
        "tokens_lost": lost,
    }


def _pack(
    tokenizer: Tokenizer, first: tf.Tensor, second: tf.Tensor, *, seq_length: int
) -> tuple[tf.RaggedTensor, tf.Tensor, tf.Tensor]:
    """The ids, int32 ragged [B, tokens]; where text_b begins, and the pieces lost, int32 [B]."""
    count = tf.size(first, tf.int64)
    pieces = tokenizer(tf.concat([first, second], axis=0))
    lengths = pieces.row_lengths()
    frame = tokenizer.frame
    kept_a, kept_b = _kept_lengths(lengths[:count], lengths[count:], seq_length, frame.separators)
    starts = pieces.row_starts()
    a = _slices(pieces.values, starts[:count], kept_a)
    b = _slices(pieces.values, starts[count:], kept_b)
    column = tf.ones([count, 1], tf.int32)
    has_b = tf.cast(kept_b > 0, tf.int64)
    between = 1 + (frame.separators - 1) * has_b
    seps_a, seps_b = (
        tf.RaggedTensor.from_row_lengths(tf.fill([tf.reduce_sum(number)], frame.sep_id), number)
        for number in (between, has_b)
    )
    rows = tf.concat([frame.cls_id * column, a, seps_a, b, seps_b], axis=1)
    lost = lengths[:count] + lengths[count:] - kept_a - kept_b
    return rows, tf.cast(kept_a + 1 + between, tf.int32), tf.cast(lost, tf.int32)


def _kept_lengths(
    length_a: tf.Tensor, length_b: tf.Tensor, seq_length: int, separators: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """`truncation.kept_lengths` of a batch, int64 [B] each, in the graph."""
    limit = tf.maximum(seq_length - 2 - tf.where(length_b > 0, separators, 0), 0)
    limit = tf.cast(limit, tf.int64)
    kept_b = tf.minimum(length_b, tf.maximum(limit // 2, limit - length_a))
    return tf.minimum(length_a, limit - kept_b), kept_b


def _slices(values: tf.Tensor, starts: tf.Tensor, lengths: tf.Tensor) -> tf.RaggedTensor:
    indices = tf.ragged.range(starts, starts + lengths)
    return indices.with_values(tf.gather(values, indices.values))
