"""Export of features as a TensorFlow SavedModel that needs nothing from this package.

An export of `text` takes strings and contains the tokenizer. One of `ids` is an encoder in the form
of TF-Hub's BERTs (https://www.tensorflow.org/hub/common_saved_model_apis/text, transformer
encoders). Both hold all weights of the checkpoint under the Model Garden's names, its config and
vocabulary as assets, and the settings of sentence-transformers: so an export is a checkpoint too.
Heads, such as the masked-LM head, are not in it, which a warning says.

Shape legend: `B` batch, `S` sequence, `H` hidden, `L` blocks.
"""

import json
import tempfile
from pathlib import Path
from typing import Any, get_args

import tensorflow as tf

from bert_features import __version__
from bert_features.checkpoints.checkpoint import Checkpoint
from bert_features.checkpoints.convert import config_values
from bert_features.checkpoints.description import describe_checkpoint, describe_vocabulary
from bert_features.checkpoints.find import find_checkpoint
from bert_features.checkpoints.modules.sentence_transformers import write_settings
from bert_features.checkpoints.read import read_weights
from bert_features.checkpoints.weights import weight_names
from bert_features.config.layers import Layers
from bert_features.config.outputs import Outputs
from bert_features.config.recipe import RECIPE, Recipe, describe_output
from bert_features.encoder.forms import check_backend
from bert_features.errors import ConfigError
from bert_features.export.checks import (
    RECIPE_FILE,
    ExportSource,
    Options,
    Signature,
    check_source,
    check_target,
)
from bert_features.export.signatures import build_signatures
from bert_features.files import replacing
from bert_features.text.sentencepiece import SentencePieceTokenizer
from bert_features.text.tokenizer_files import write_tokenizer
from bert_features.text.tokenizer_settings import CONFIG


def export_savedmodel(
    to: str | Path,
    *,
    signature: Signature = "text",
    checkpoint: str | Path | Checkpoint = "minilm",
    outputs: Outputs | None = None,
    layers: Layers | None = None,
    max_seq_length: int | None = None,
    config_file: str | Path | None = None,
    vocab_file: str | Path | None = None,
    do_lower_case: bool | None = None,
    hidden_act: Any = None,
    overwrite: bool = False,
) -> Path:
    """Writes a SavedModel, whole or not at all; it computes in float32.

    `text`: called with strings [B] (`serving_default`: `text`), it returns the outputs by name, and
    `input_word_ids` and `input_mask` int32 [B, S], S the longest row of the batch.

    `ids`: called with a dict of `input_word_ids`, `input_mask` and `input_type_ids`, int32 [B, S],
    it returns `sequence_output` [B, S, H], `encoder_outputs`, a list of L [B, S, H],
    `pooled_output` [B, H] and the same as `default`; and the wanted outputs. It can be trained,
    with dropout.

    Args:
      to: the directory to write.
      signature: `text` or `ids`.
      checkpoint: anything `find_checkpoint` accepts, or what it found.
      outputs: the wanted outputs, each an `OutputConfig` or its settings. The default for `text` is
        each of `layers` by itself, as `layer_output_0`, …; for `ids` no further output.
      layers: LAYERS for outputs that name none.
      max_seq_length: for `text`, the tokens of the longest row; longer texts are truncated as the
        official script does. By default as many as the checkpoint has positions; with pooling
        `auto`, as many as sentence-transformers recorded.
      config_file: the config, if it is not beside the weights.
      vocab_file: the vocabulary, if it is not beside the weights.
      do_lower_case: whether to lower-case; by default what the checkpoint records.
      hidden_act: the form of GELU; by default the form of the checkpoint's family.
      overwrite: whether an existing SavedModel may be replaced.

    Returns:
      `to`.

    Raises:
      CheckpointError: the checkpoint is not usable; or it has no pooler weights, and an export of
        `ids` has no outputs to return instead of the pooled one.
      ConfigError: there is no such signature, an output is wrong or unavailable, or its pooling
        `auto` changes texts in a way that an export of `text` cannot.
      OutputError: the directory exists, or cannot be written.
    """
    if signature not in get_args(Signature):
        raise ConfigError(
            f"signature is {signature!r}; allowed: {', '.join(map(repr, get_args(Signature)))}"
        )
    check_backend("tensorflow", "a SavedModel")
    if not isinstance(checkpoint, Checkpoint):
        checkpoint = find_checkpoint(
            checkpoint, config_file=config_file, vocab_file=vocab_file, hidden_act=hidden_act
        )
    to = Path(to)
    check_target(to, checkpoint.files(), overwrite=overwrite)
    options = Options(
        signature=signature,
        outputs=outputs,
        layers=layers,
        max_seq_length=max_seq_length,
        do_lower_case=do_lower_case,
    )
    source = check_source(checkpoint, options)
    _save(source, signature, to, overwrite=overwrite)
    return to


def _save(source: ExportSource, signature: Signature, to: Path, *, overwrite: bool) -> None:
    # A plain trackable object whose attributes have the names of TF-Hub's interface.
    root = tf.train.Checkpoint()
    weights = read_weights(source.checkpoint, pooler=source.pooler)
    variables = {
        name: tf.Variable(value, name=name)
        for name, value in weight_names.garden_weights(weights, source.checkpoint.config).items()
    }
    root.variables = list(variables.values())
    root.trainable_variables = list(variables.values())
    root.regularization_losses = []
    signatures = build_signatures(root, source, variables, signature)
    if signature == "text" and isinstance(source.tokenizer, SentencePieceTokenizer):
        root.tokenizer = source.tokenizer.operation  # its model is a resource of the graph
    with (
        replacing(to, overwrite=overwrite, folder=True, every=True) as folder,
        tempfile.TemporaryDirectory() as assets,
    ):
        _add_assets(root, source, Path(assets))
        tf.saved_model.save(root, str(folder), signatures=signatures)
        if source.checkpoint.sentence_transformers is not None:
            write_settings(source.checkpoint.sentence_transformers, folder)
        (folder / RECIPE_FILE).write_text(json.dumps(_describe(source)) + "\n", encoding="utf-8")


def _describe(source: ExportSource) -> dict[str, Any]:
    """How the outputs are made, as the metadata of a features file says it."""
    checkpoint, layers = source.checkpoint, source.checkpoint.config.num_hidden_layers
    recipe = Recipe(
        settings={},
        checkpoint=describe_checkpoint(checkpoint, source.outputs),
        vocabulary=describe_vocabulary(checkpoint),
        versions={"bert_features": __version__, "tensorflow": tf.__version__},
        texts={
            "max_seq_length": source.max_seq_length,
            "long_text": "truncate",
            "do_lower_case": source.tokenizer is not None and source.tokenizer.do_lower_case,
        },
        outputs={output.name: describe_output(output, layers) for output in source.outputs},
        arithmetic={"precision": "float32", "runtime": "tensorflow"},
    )
    features = [output.to_metadata() for output in source.outputs]
    return {RECIPE: recipe.to_json(), "features": features}


def _add_assets(root: Any, source: ExportSource, folder: Path) -> None:
    config = folder / "bert_config.json"
    values = config_values(source.checkpoint.config, "google")
    config.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
    root.config_file = tf.saved_model.Asset(str(config))
    if source.checkpoint.vocab_file is not None:
        # Assets keep their file names, by which readers find them.
        kind = source.checkpoint.config.model_type
        vocab = write_tokenizer(source.checkpoint.vocab_file, folder, kind)
        root.vocab_file = tf.saved_model.Asset(str(vocab))
        settings = vocab.with_name(CONFIG)
        if settings.is_file():
            root.tokenizer_config = tf.saved_model.Asset(str(settings))
    if source.tokenizer is not None:
        root.do_lower_case = tf.Variable(
            source.tokenizer.do_lower_case, trainable=False, name="do_lower_case"
        )
