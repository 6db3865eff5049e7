"""The public names and where they live; `__init__.py` imports each when it is asked for."""

from .batches.input_fn import TextInputFn as TextInputFn
from .checkpoints.find import find_checkpoint as find_checkpoint
from .checkpoints.read import read_weights as read_weights
from .config.bert_config import BertConfig as BertConfig
from .config.extract_config import ExtractConfig as ExtractConfig
from .config.input_format import InputFormat as InputFormat
from .config.outputs import OutputConfig as OutputConfig
from .corpus.job import extract as extract
from .corpus.preview import Plan as Plan
from .corpus.preview import plan as plan
from .corpus.shuffle import shuffle_features as shuffle_features
from .encoder.modeling import BertEncoder as BertEncoder
from .errors import BertFeaturesError as BertFeaturesError
from .errors import CheckpointError as CheckpointError
from .errors import ConfigError as ConfigError
from .errors import DeviceError as DeviceError
from .errors import InputError as InputError
from .errors import MissingExtraError as MissingExtraError
from .errors import OutputError as OutputError
from .errors import ServiceError as ServiceError
from .export.loading import load_export as load_export
from .export.savedmodel import export_savedmodel as export_savedmodel
from .extraction.encoding import Padded as Padded
from .extraction.encoding import Ragged as Ragged
from .extraction.extractor import FeatureExtractor as FeatureExtractor
from .formats import read_features as read_features
from .layers.features import BertFeatures as BertFeatures
from .layers.text_input import BertTextInput as BertTextInput
from .neighbors.nearest import nearest as nearest
from .neighbors.searchers import Neighbor as Neighbor
from .official.estimator import Estimator as Estimator
from .official.estimator import RunConfig as RunConfig
from .official.features import InputFeatures as InputFeatures
from .official.features import convert_examples_to_features as convert_examples_to_features
from .official.input_fn import input_fn_builder as input_fn_builder
from .official.model_fn import EstimatorSpec as EstimatorSpec
from .official.model_fn import ModeKeys as ModeKeys
from .official.model_fn import model_fn_builder as model_fn_builder
from .official.tutorial import get_features as get_features
from .readers.examples import read_examples as read_examples
from .readers.input_example import InputExample as InputExample
from .serving.client import Client as Client
from .serving.compare import compare as compare
from .text.tokenization import FullTokenizer as FullTokenizer

__version__: str
