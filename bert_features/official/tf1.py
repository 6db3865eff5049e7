"""TensorFlow as its first version had it, for programs written for that version.

    from bert_features.official import tf1 as tf

The names come from `tf.compat.v1`, where TensorFlow keeps them: `tf.flags`, `tf.app`,
`tf.gfile`, `tf.logging`, `tf.get_variable`, `tf.train.init_from_checkpoint`, … TensorFlow has
dropped `tf.contrib` and `tf.estimator`. What programs for features from BERT use of them is here;
any other dropped name is an AttributeError.
"""

from types import SimpleNamespace
from typing import Any, NoReturn

import tensorflow as tf

from bert_features.official import tpu_estimator
from bert_features.official.model_fn import EstimatorSpec, ModeKeys

_PAGE = "docs/migrating.md lists what is left out, and what to use"


class _Names(SimpleNamespace):
    """Some names of a module that TensorFlow dropped."""

    def __getattr__(self, name: str) -> NoReturn:
        path, known = self.__dict__["path"], sorted(self.__dict__.keys() - {"path"})
        raise AttributeError(f"{path}.{name} is not here; {path} has {', '.join(known)}; {_PAGE}")


contrib = _Names(
    path="tf.contrib",
    tpu=_Names(
        path="tf.contrib.tpu",
        InputPipelineConfig=tpu_estimator.InputPipelineConfig,
        RunConfig=tpu_estimator.TPURunConfig,
        TPUConfig=tpu_estimator.TPUConfig,
        TPUEstimator=tpu_estimator.TPUEstimator,
        TPUEstimatorSpec=EstimatorSpec,
    ),
    cluster_resolver=_Names(
        path="tf.contrib.cluster_resolver", TPUClusterResolver=tpu_estimator.TPUClusterResolver
    ),
)
estimator = _Names(
    path="tf.estimator",
    Estimator=tpu_estimator.OldEstimator,
    EstimatorSpec=EstimatorSpec,
    ModeKeys=ModeKeys,
    RunConfig=tpu_estimator.OldRunConfig,
)


def disable_v2_behavior() -> None:
    """Does nothing but log a line: an Estimator builds its graph as TensorFlow 1 did."""
    tf.compat.v1.logging.info("eager execution stays on: an Estimator builds a graph of its own")


disable_eager_execution = disable_v2_behavior


def __getattr__(name: str) -> Any:
    try:
        return getattr(tf.compat.v1, name)
    except AttributeError:
        raise AttributeError(f"tf.{name} is not in TensorFlow {tf.__version__}; {_PAGE}") from None
