"""The names of `tf.contrib.tpu` and `tf.contrib.cluster_resolver` that programs for BERT use.

Arguments that have no meaning any more (the address of a TPU, the number of its shards) are
accepted, and a line of TensorFlow's log names them (`tf.logging`, level INFO). What would change
numbers is refused.
"""

import os
from typing import Any

import tensorflow as tf

from bert_features.errors import ConfigError
from bert_features.official.estimator import Estimator, RunConfig
from bert_features.official.model_fn import ModelFn
from bert_features.official.user_inputs import eagerly
from bert_features.runtime.base import Runtime
from bert_features.runtime.start import make_runtime

log = tf.compat.v1.logging


class InputPipelineConfig:
    """Where input pipelines ran; the devices of this machine share one."""

    PER_SHARD_V1, PER_HOST_V1, PER_HOST_V2, BROADCAST = 1, 2, 3, 4


class TPUConfig:
    """The settings of a TPU, kept as attributes: none has a meaning any more."""

    def __init__(
        self, iterations_per_loop: int | None = None, num_shards: int | None = None, **others: Any
    ) -> None:
        vars(self).update(iterations_per_loop=iterations_per_loop, num_shards=num_shards, **others)
        _log_unused("TPUConfig", vars(self), "all devices of this machine share each batch")


class TPUClusterResolver:
    """The address of a TPU: the devices of this machine are used, whatever it says."""

    def __init__(self, tpu: str | None = None, **others: Any) -> None:
        self._tpu = tpu
        arguments = {"tpu": tpu, **others}
        _log_unused("TPUClusterResolver", arguments, "the devices of this machine are used")

    def master(self) -> str:
        """The address, as it was passed; empty if none was."""
        return self._tpu or ""

    get_master = master


class OldRunConfig(RunConfig):
    """`tf.estimator.RunConfig`: `model_dir` has a meaning, the others are kept as attributes."""

    def __init__(self, model_dir: str | os.PathLike[str] | None = None, **others: Any) -> None:
        super().__init__(model_dir=None if model_dir is None else os.fspath(model_dir))
        # A resolver and a TPUConfig have logged what they hold.
        unused = {n: v for n, v in others.items() if n not in ("cluster", "tpu_config")}
        _log_unused("RunConfig", unused, "the devices of this machine are used")
        vars(self).update(others)  # past the frozen dataclass


class TPURunConfig(OldRunConfig):
    """`tf.contrib.tpu.RunConfig`; see `OldRunConfig`."""

    def __init__(self, *places: Any, **others: Any) -> None:
        names = ("tpu_config", "evaluation_master", "master", "cluster")  # in the original's order
        by_place = dict(zip(names, places, strict=False))
        super().__init__(**{**dict.fromkeys(names), **by_place, **others})


class TPUEstimator(Estimator):
    """`tf.contrib.tpu.TPUEstimator`, which predicts; see `Estimator`.

    Args:
      model_fn: a model_fn, see `Estimator`.
      model_dir: a folder whose latest checkpoint holds the variables; overrides `config.model_dir`.
      config: a `tf.contrib.tpu.RunConfig`, or one of this package.
      params: further entries of `params`.
      use_tpu: whether to take a TPU if one is here, rather than a GPU or the CPU. Each computes
        in float32.
      train_batch_size: not used.
      eval_batch_size: not used.
      predict_batch_size: rows of each batch, over all devices together.
      batch_axis: not used.
      **others: `warm_start_from` is refused if given; others are not used.

    Raises:
      ConfigError: `warm_start_from` is given.
    """

    @eagerly
    def __init__(
        self,
        model_fn: Any = None,
        model_dir: str | os.PathLike[str] | None = None,
        config: RunConfig | None = None,
        params: dict[str, Any] | None = None,
        use_tpu: bool = True,
        train_batch_size: int | None = None,
        eval_batch_size: int | None = None,
        predict_batch_size: int | None = None,
        batch_axis: Any = None,
        **others: Any,
    ) -> None:
        if others.pop("warm_start_from", None) is not None:
            raise ConfigError(
                "warm_start_from is given; call tf.train.init_from_checkpoint in the model_fn "
                "instead"
            )
        sizes = {"train_batch_size": train_batch_size, "eval_batch_size": eval_batch_size}
        _log_unused("TPUEstimator", {**sizes, "batch_axis": batch_axis, **others}, "it predicts")
        config = config or RunConfig()
        super().__init__(
            model_fn,
            config,
            predict_batch_size=predict_batch_size,
            params=params,
            runtime=_runtime(config, use_tpu=use_tpu, ours=isinstance(model_fn, ModelFn)),
            model_dir=None if model_dir is None else os.fspath(model_dir),
        )

    def train(self, *arguments: Any, **settings: Any) -> None:
        """Raises ConfigError: training is left out."""
        raise ConfigError(
            "this estimator predicts only; to train, use the Keras layer "
            "bert_features.BertFeatures (docs/python.md)"
        )

    evaluate = export_saved_model = export_savedmodel = train


class OldEstimator(TPUEstimator):
    """`tf.estimator.Estimator`: as TPUEstimator with `use_tpu=False`, with its own arguments."""

    def __init__(
        self,
        model_fn: Any,
        model_dir: str | os.PathLike[str] | None = None,
        config: RunConfig | None = None,
        params: dict[str, Any] | None = None,
        warm_start_from: Any = None,
    ) -> None:
        super().__init__(
            model_fn, model_dir, config, params, use_tpu=False, warm_start_from=warm_start_from
        )


def _runtime(config: RunConfig, *, use_tpu: bool, ours: bool) -> Runtime:
    """The runtime for a device that the config names, or else that `use_tpu` asks for."""
    name = config.runtime if ours or config.runtime != "auto" else "tensorflow"
    if config.device != "auto":
        return make_runtime(name, config.device)
    if use_tpu:
        runtime = make_runtime(name)
        if runtime.devices.kind != "tpu":
            log.warning("use_tpu is True: %s", runtime.devices.describe())
        return runtime
    try:
        return make_runtime(name, "gpu")
    except ConfigError:
        return make_runtime(name, "cpu")


def _log_unused(what: str, arguments: dict[str, Any], because: str) -> None:
    """Logs in one line which of the given arguments are not used."""
    unused = [f"{name}={value!r}" for name, value in arguments.items() if value is not None]
    if unused:
        log.info("%s: not used any more (%s): %s", what, because, ", ".join(unused))
