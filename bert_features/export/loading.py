"""Loading an export and calling it with Python and NumPy values.

Shape legend: `B` batch, `S` sequence.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401 - registers the operations of exports of text

from bert_features.config.bert_config import BertConfig
from bert_features.encoder.step import MODEL_INPUTS
from bert_features.errors import ConfigError, InputError, OutputError
from bert_features.export.checks import SAVED_MODEL, Signature
from bert_features.files import local_path, storage_errors
from bert_features.text.tokenizer import utf8
from bert_features.text.tokenizer_files import NAMES, read_tokenizer


class Export:
    """A SavedModel that `export_savedmodel` wrote.

    Args:
      path: its directory.

    Attributes:
      path: its directory.
      signature: `text` or `ids`.
      outputs: the names of its outputs.
      model: the object that TensorFlow loaded.
      tokens: the pieces of its vocabulary in the order of their ids; empty if it has none.

    Raises:
      OutputError: there is no export at `path`, or it is damaged.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = local_path(path)
        with storage_errors(f"read {path}", advice="pass the folder of an export"):
            is_export = (self.path / SAVED_MODEL).is_file()
        if not is_export:
            raise OutputError(f"{path} is no export: it has no {SAVED_MODEL}")
        try:
            self.model = tf.saved_model.load(str(path))
            (served,) = self.model.signatures.values()
            _, arguments = served.structured_input_signature
            functions = self.model.__call__.concrete_functions
        except Exception as error:  # damaged files raise many types
            reason = " ".join(str(error).split())[:200]
            raise OutputError(f"{path} cannot be read as an export: {reason}") from error
        self.signature: Signature = "text" if "text" in arguments else "ids"
        self.outputs = tuple(sorted(functions[0].structured_outputs))
        vocabs = (self.path / "assets" / name for name in NAMES)
        vocab = next((path for path in vocabs if path.is_file()), None)
        config = self.path / "assets" / "bert_config.json"
        self._config = BertConfig.from_json_file(config) if config.is_file() else None
        kind = "" if self._config is None else self._config.model_type
        self.tokens = () if vocab is None else tuple(read_tokenizer(vocab, kind).tokens)

    def __call__(self, inputs: Any, output: str | None = None) -> Any:
        """Computes the outputs of a batch.

        Args:
          inputs: a list of texts for an export of `text`; for one of `ids` the dict of
            `input_word_ids`, `input_mask` and `input_type_ids`, integers [B, S] each.
          output: the name of one output; by default all.

        Returns:
          Output name -> array, or the array of the one output; `encoder_outputs` is a list.

        Raises:
          ConfigError: the export has no such output, or the model has no such token type.
          InputError: the inputs do not fit the signature.
        """
        if output is not None and output not in self.outputs:
            raise ConfigError(
                f"there is no output '{output}' in {self.path}; it has {', '.join(self.outputs)}"
            )
        batch = _PREPARE[self.signature](inputs)
        if self._config is not None and self.signature == "ids":
            self._config.check_types(int(batch["input_type_ids"].numpy().max(initial=0)))
        results = self.model(batch)
        names = self.outputs if output is None else (output,)
        arrays = {name: tf.nest.map_structure(np.asarray, results[name]) for name in names}
        return arrays if output is None else arrays[output]


def load_export(path: str | Path) -> Export:
    """Loads what `export_savedmodel` wrote.

    Raises:
      OutputError: there is no export at `path`, or it is damaged.
    """
    return Export(path)


def _text_batch(texts: Any) -> tf.Tensor:
    if isinstance(texts, str | bytes | Mapping):
        raise InputError(f"the texts are {type(texts).__name__}; allowed: a list of strings")
    strings = list(texts)
    return tf.constant([utf8(text) for text in strings], tf.string, shape=[len(strings)])


def _ids_batch(inputs: Any) -> dict[str, tf.Tensor]:
    if not isinstance(inputs, Mapping) or set(MODEL_INPUTS) - inputs.keys():
        raise InputError(
            f"the inputs are {type(inputs).__name__}; this export takes a dict of "
            f"{', '.join(MODEL_INPUTS)}"
        )
    return {name: tf.cast(inputs[name], tf.int32) for name in MODEL_INPUTS}


_PREPARE: dict[Signature, Callable[[Any], Any]] = {"text": _text_batch, "ids": _ids_batch}
