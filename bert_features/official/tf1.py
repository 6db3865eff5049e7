"""TensorFlow as its first version had it, for programs written for that version.

    from bert_features.official import tf1 as tf

The names come from `tf.compat.v1`, where TensorFlow keeps them: `tf.flags`, `tf.app`,
`tf.gfile`, `tf.logging`, `tf.get_variable`, `tf.train.init_from_checkpoint`, … TensorFlow has
dropped `tf.contrib` and `tf.estimator`. What programs for features from BERT use of them is here;
any other dropped name is an AttributeError.
"""

import sys
import threading
from types import SimpleNamespace
from typing import Any, NoReturn

import tensorflow as tf

from bert_features.errors import ConfigError
from bert_features.official import PAGE, tpu_estimator
from bert_features.official.model_fn import EstimatorSpec, ModeKeys


class _Names(SimpleNamespace):
    """Some names of a module that TensorFlow dropped."""

    def __getattr__(self, name: str) -> NoReturn:
        path, known = self.__dict__["path"], sorted(self.__dict__.keys() - {"path"})
        raise AttributeError(f"{path}.{name} is not here; {path} has {', '.join(known)}; {PAGE}")


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
    data=_Names(path="tf.contrib.data", map_and_batch=tf.data.experimental.map_and_batch),
)
estimator = _Names(
    path="tf.estimator",
    Estimator=tpu_estimator.OldEstimator,
    EstimatorSpec=EstimatorSpec,
    ModeKeys=ModeKeys,
    RunConfig=tpu_estimator.OldRunConfig,
    tpu=contrib.tpu,
)
# Other spellings, `tf.compat.v1.estimator` and `tf.distribute.cluster_resolver`.
compat = SimpleNamespace(**{**vars(tf.compat), "v1": sys.modules[__name__]})
distribute = SimpleNamespace(**vars(tf.compat.v1.distribute))
distribute.cluster_resolver = contrib.cluster_resolver


def disable_v2_behavior() -> None:
    """Does nothing but log a line: an Estimator builds its graph as TensorFlow 1 did."""
    tf.compat.v1.logging.info("eager execution stays on: an Estimator builds a graph of its own")


disable_eager_execution = disable_v2_behavior
_of_thread = threading.local()


def reset_default_graph() -> None:
    """Enters a new graph, in which this thread stays: for programs that make tensors in none."""
    if hasattr(_of_thread, "entered"):
        _of_thread.entered.__exit__(None, None, None)
    _of_thread.entered = tf.Graph().as_default()
    _of_thread.entered.__enter__()


def placeholder(*arguments: Any, **settings: Any) -> Any:
    """TensorFlow's own. ConfigError outside of a graph, which says how to enter one."""
    if tf.executing_eagerly():
        raise ConfigError(
            "tf.placeholder is called outside of a graph; call tf.reset_default_graph() above it"
        )
    return tf.compat.v1.placeholder(*arguments, **settings)


def __getattr__(name: str) -> Any:
    try:
        return getattr(tf.compat.v1, name)
    except AttributeError:
        raise AttributeError(f"tf.{name} is not in TensorFlow {tf.__version__}; {PAGE}") from None
