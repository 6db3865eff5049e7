"""Contextual features from BERT checkpoints. Importing this does not import TensorFlow."""

import importlib
import importlib.metadata
import os
from typing import TYPE_CHECKING, Any

from bert_features.machine.quiet_tensorflow import import_tensorflow

# TensorFlow writes a dozen lines to the terminal when it is imported, errors about absent GPUs
# among them. What goes wrong reaches the user as an exception; a setting of theirs stands.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

try:
    __version__ = importlib.metadata.version("bert_features")
except importlib.metadata.PackageNotFoundError:  # on sys.path, but not installed
    __version__ = "unknown"

if TYPE_CHECKING:
    from bert_features.batches.input_fn import TextInputFn as TextInputFn
    from bert_features.batches.input_fn import input_fn_builder as input_fn_builder
    from bert_features.checkpoints.find import find_checkpoint as find_checkpoint
    from bert_features.checkpoints.find import read_weights as read_weights
    from bert_features.config.bert_config import BertConfig as BertConfig
    from bert_features.config.extract_config import ExtractConfig as ExtractConfig
    from bert_features.config.input_format import InputFormat as InputFormat
    from bert_features.config.outputs import OutputConfig as OutputConfig
    from bert_features.encoder.modeling import BertEncoder as BertEncoder
    from bert_features.export.loading import load_export as load_export
    from bert_features.export.savedmodel import export_savedmodel as export_savedmodel
    from bert_features.extraction.extractor import FeatureExtractor as FeatureExtractor
    from bert_features.extraction.extractor import extract as extract
    from bert_features.extraction.extractor import get_features as get_features
    from bert_features.extraction.planning import Plan as Plan
    from bert_features.extraction.planning import plan as plan
    from bert_features.formats import read_features as read_features
    from bert_features.layers.features import BertFeatures as BertFeatures
    from bert_features.layers.text_input import BertTextInput as BertTextInput
    from bert_features.official.estimator import Estimator as Estimator
    from bert_features.official.estimator import RunConfig as RunConfig
    from bert_features.official.features import InputFeatures as InputFeatures
    from bert_features.official.features import (
        convert_examples_to_features as convert_examples_to_features,
    )
    from bert_features.official.model_fn import EstimatorSpec as EstimatorSpec
    from bert_features.official.model_fn import ModeKeys as ModeKeys
    from bert_features.official.model_fn import model_fn_builder as model_fn_builder
    from bert_features.readers.examples import InputExample as InputExample
    from bert_features.readers.examples import read_examples as read_examples
    from bert_features.text.tokenization import FullTokenizer as FullTokenizer

_MODULE_OF = {
    "BertConfig": "config.bert_config",
    "BertEncoder": "encoder.modeling",
    "BertFeatures": "layers.features",
    "BertTextInput": "layers.text_input",
    "Estimator": "official.estimator",
    "EstimatorSpec": "official.model_fn",
    "ExtractConfig": "config.extract_config",
    "FeatureExtractor": "extraction.extractor",
    "FullTokenizer": "text.tokenization",
    "InputExample": "readers.examples",
    "InputFeatures": "official.features",
    "ModeKeys": "official.model_fn",
    "RunConfig": "official.estimator",
    "TextInputFn": "batches.input_fn",
    "InputFormat": "config.input_format",
    "OutputConfig": "config.outputs",
    "Plan": "extraction.planning",
    "convert_examples_to_features": "official.features",
    "export_savedmodel": "export.savedmodel",
    "extract": "extraction.extractor",
    "find_checkpoint": "checkpoints.find",
    "get_features": "extraction.extractor",
    "input_fn_builder": "batches.input_fn",
    "load_export": "export.loading",
    "model_fn_builder": "official.model_fn",
    "plan": "extraction.planning",
    "read_examples": "readers.examples",
    "read_features": "formats",
    "read_weights": "checkpoints.find",
}

_ON_TENSORFLOW = {
    "official.estimator",
    "export.savedmodel",
    "export.loading",
    "extraction.extractor",
    "batches.input_fn",
    "layers.features",
    "layers.text_input",
    "official.model_fn",
    "encoder.modeling",
    "extraction.planning",
    "text.tokenization",
}

__all__ = sorted([*_MODULE_OF, "__version__"])


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if _MODULE_OF[name] in _ON_TENSORFLOW:
        import_tensorflow()
    return getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return __all__
