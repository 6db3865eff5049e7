"""Contextual features from BERT checkpoints. Importing this does not import TensorFlow."""

import importlib
import importlib.metadata
import os
from typing import TYPE_CHECKING, Any

from bert_features.quiet_tensorflow import import_tensorflow

# TensorFlow writes a dozen lines to the terminal when it is imported, errors about absent GPUs
# among them. What goes wrong reaches the user as an exception; a setting of theirs stands.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

try:
    __version__ = importlib.metadata.version("bert_features")
except importlib.metadata.PackageNotFoundError:  # on sys.path, but not installed
    __version__ = "unknown"

if TYPE_CHECKING:
    from bert_features.bert_config import BertConfig as BertConfig
    from bert_features.checkpoints import find_checkpoint as find_checkpoint
    from bert_features.checkpoints import read_weights as read_weights
    from bert_features.config import ExtractConfig as ExtractConfig
    from bert_features.estimator import Estimator as Estimator
    from bert_features.estimator import RunConfig as RunConfig
    from bert_features.examples import InputExample as InputExample
    from bert_features.examples import read_examples as read_examples
    from bert_features.export import export_savedmodel as export_savedmodel
    from bert_features.export import load_export as load_export
    from bert_features.extraction import FeatureExtractor as FeatureExtractor
    from bert_features.extraction import extract as extract
    from bert_features.extraction import get_features as get_features
    from bert_features.features import InputFeatures as InputFeatures
    from bert_features.features import convert_examples_to_features as convert_examples_to_features
    from bert_features.input_pipeline import TextInputFn as TextInputFn
    from bert_features.input_pipeline import input_fn_builder as input_fn_builder
    from bert_features.keras_layer import BertFeatures as BertFeatures
    from bert_features.keras_layer import BertTextInput as BertTextInput
    from bert_features.model_fn import EstimatorSpec as EstimatorSpec
    from bert_features.model_fn import ModeKeys as ModeKeys
    from bert_features.model_fn import model_fn_builder as model_fn_builder
    from bert_features.modeling import BertEncoder as BertEncoder
    from bert_features.outputs import OutputConfig as OutputConfig
    from bert_features.planning import Plan as Plan
    from bert_features.planning import plan as plan
    from bert_features.readers.input_format import InputFormat as InputFormat
    from bert_features.tokenization import FullTokenizer as FullTokenizer
    from bert_features.writers import read_features as read_features

_MODULE_OF = {
    "BertConfig": "bert_config",
    "BertEncoder": "modeling",
    "BertFeatures": "keras_layer",
    "BertTextInput": "keras_layer",
    "Estimator": "estimator",
    "EstimatorSpec": "model_fn",
    "ExtractConfig": "config",
    "FeatureExtractor": "extraction",
    "FullTokenizer": "tokenization",
    "InputExample": "examples",
    "InputFeatures": "features",
    "ModeKeys": "model_fn",
    "RunConfig": "estimator",
    "TextInputFn": "input_pipeline",
    "InputFormat": "readers.input_format",
    "OutputConfig": "outputs",
    "Plan": "planning",
    "convert_examples_to_features": "features",
    "export_savedmodel": "export",
    "extract": "extraction",
    "find_checkpoint": "checkpoints",
    "get_features": "extraction",
    "input_fn_builder": "input_pipeline",
    "load_export": "export",
    "model_fn_builder": "model_fn",
    "plan": "planning",
    "read_examples": "examples",
    "read_features": "writers",
    "read_weights": "checkpoints",
}

_ON_TENSORFLOW = {
    "estimator",
    "export",
    "extraction",
    "input_pipeline",
    "keras_layer",
    "model_fn",
    "modeling",
    "planning",
    "tokenization",
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
