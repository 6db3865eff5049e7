"""JsonTokenizer: any other tokenizer of a `tokenizer.json`, by the `tokenizers` library.

It runs on the host: RoBERTa's and ModernBERT's byte-level BPE is no operation of TensorFlow.
"""

from itertools import chain

import numpy as np
import tensorflow as tf

from bert_features.errors import ConfigError, check_process
from bert_features.text.json_model import JsonModel, library_errors
from bert_features.text.offsets import make_pieces
from bert_features.text.tokenizer import Pieces, Tokenizer
from bert_features.text.vocabulary import ids_of


class JsonTokenizer(Tokenizer):
    """A tokenizer of the `tokenizers` library.

    The family's special tokens typed in a text are ordinary characters; none are added. The model
    itself lower-cases or does not.

    Raises:
      CheckpointError: the library fails at a text; raised when the tokenizer is used.
      DeviceError: see `check_process`; also raised when the tokenizer is used.
    """

    in_graph = False

    def __init__(self, model: JsonModel, *, do_lower_case: bool = False) -> None:
        check_process()
        self._tokenizer, self.tokens, self.frame = model[:3]
        self._source, self.splits_words = model.source, model.splits_words
        self.vocab = ids_of(self.tokens)
        self.do_lower_case = do_lower_case

    def __repr__(self) -> str:
        kind = type(self._tokenizer.model).__name__
        return f"<JsonTokenizer: {kind}, {len(self.tokens):,} pieces>"

    def __call__(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """The ids of a batch of texts, see `Tokenizer`; a ConfigError in a graph."""
        if not tf.executing_eagerly():
            raise ConfigError(
                f"the tokenizer of {self._source} is no TensorFlow operation, so it cannot be part "
                "of a graph; tokenize before the graph, and pass ids to it"
            )
        ids, lengths = self.ids_of(tf.convert_to_tensor(texts, tf.string))
        return tf.RaggedTensor.from_row_lengths(ids, lengths, validate=False)

    def ids_of(self, texts: tf.Tensor) -> tuple[np.ndarray, np.ndarray]:
        """The ids of a batch of texts as flat arrays, see `Tokenizer`."""
        check_process()
        with library_errors(self._source, "fails at a text"):
            encodings = self._tokenizer.encode_batch_fast(_strings(texts), add_special_tokens=False)
        rows = [encoding.ids for encoding in encodings]
        ids = np.fromiter(chain.from_iterable(rows), np.int32)
        return ids, np.array([len(row) for row in rows], np.int64)

    def tokenize_with_offsets(self, texts: tf.Tensor) -> Pieces:
        """The ids of a batch of texts and where each came from, see `Tokenizer`.

        White space around a piece is left out; the pieces of one character all have its place.
        """
        check_process()
        strings = _strings(texts)
        with library_errors(self._source, "fails at a text"):
            encodings = self._tokenizer.encode_batch(strings, add_special_tokens=False)
        places = np.array(list(chain.from_iterable(e.offsets for e in encodings)), np.int64)
        return make_pieces(
            np.fromiter(chain.from_iterable(e.ids for e in encodings), np.int32),
            np.array([len(encoding) for encoding in encodings], np.int64),
            *places.reshape(-1, 2).T,
            codes=np.frombuffer("".join(strings).encode("utf-32-le"), np.int32),
            text_lengths=np.array([len(text) for text in strings], np.int64),
        )


def _strings(texts: tf.Tensor) -> list[str]:
    return [text.decode("utf-8", "ignore") for text in texts.numpy().tolist()]
