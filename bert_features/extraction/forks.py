"""Processes that share the memory of what they import: forks of one that has imported it."""

import multiprocessing
import sys
from multiprocessing.context import ForkServerContext, SpawnContext

from bert_features.config.extract_config import ExtractConfig
from bert_features.machine.hardware import nvidia_gpus, tpu_chips
from bert_features.machine.quiet_tensorflow import is_own_process
from bert_features.machine.selection import choose_runtime

PRELOADED = "bert_features.extraction.preloaded"


def process_context(config: ExtractConfig) -> ForkServerContext | SpawnContext:
    """How the processes of a run or a service start that share out this machine.

    On a CPU those of a command are forks of a process that has imported TensorFlow and done nothing
    else: the import takes seconds and 160 MB, once for all. Not those of a program, which may have
    forks of its own; nor where there are GPUs or TPUs, which are chosen before the import; nor on
    JAX, whose threads do not outlive a fork.
    """
    forks = (
        sys.platform == "linux"
        and is_own_process()
        and not (nvidia_gpus() or tpu_chips())
        and choose_runtime(config.runtime, config.device) == "tensorflow"
    )
    if not forks:
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([PRELOADED])
    return context
