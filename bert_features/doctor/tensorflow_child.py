"""Run as a child process: imports TensorFlow, tensorflow-text and Keras, and reports devices."""

import os
import sys
from typing import Any

from bert_features.doctor.stages import Stages
from bert_features.machine import hardware, tpu_installation


def main(*, with_tpu: bool) -> None:
    """Reports the stages `tensorflow`, `tensorflow_text`, `keras`, `gpu` and, if asked, `tpu`.

    Args:
      with_tpu: whether to initialise the TPU, as a run does.
    """
    os.environ["KERAS_BACKEND"] = "tensorflow"
    stages = Stages()
    tpu_installation.choose_pjrt()  # as a run does, so that both reach the TPU in the same way
    with stages.stage("tensorflow", vital=True) as result:
        import tensorflow as tf

        result["version"] = tf.__version__
    with stages.stage("tensorflow_text") as result:
        import tensorflow_text

        result["version"] = tensorflow_text.__version__
    with stages.stage("keras") as result:
        import keras

        result["version"] = keras.__version__
    with stages.stage("gpu") as result:
        result["devices"] = _gpus(tf)
    if with_tpu:
        with stages.stage("tpu") as result:
            result["devices"] = _tpus(tf)


def _gpus(tf: Any) -> list[dict[str, Any]]:
    """Name and usable bytes of each GPU; no GPU memory is reserved."""
    gpus = tf.config.list_physical_devices("GPU")
    if not gpus:
        return []
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
    # get_memory_info reports the bytes in use; only this reports the total.
    from tensorflow.python.client import device_lib

    local = [device for device in device_lib.list_local_devices() if device.device_type == "GPU"]
    return [
        {
            "name": tf.config.experimental.get_device_details(gpu).get("device_name", gpu.name),
            "memory_bytes": int(device.memory_limit),
        }
        for gpu, device in zip(gpus, local, strict=True)
    ]


def _tpus(tf: Any) -> list[dict[str, Any]]:
    """The TPU cores that a run takes; TensorFlow does not report their memory."""
    name = None if hardware.tpu_chips() else tpu_installation.remote_tpu()
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=name or "local")
    tf.config.experimental_connect_to_cluster(resolver)
    tf.tpu.experimental.initialize_tpu_system(resolver)
    cores = tf.config.list_logical_devices("TPU")
    return [{"name": core.name, "memory_bytes": None} for core in cores]


if __name__ == "__main__":
    main(with_tpu="--with-tpu" in sys.argv)
