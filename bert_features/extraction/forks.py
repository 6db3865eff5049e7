"""Processes that share the memory of what they import: forks of one that has imported it."""

import multiprocessing
import sys
from collections.abc import Iterable
from multiprocessing.context import ForkServerContext, SpawnContext

from bert_features.config.extract_config import ExtractConfig
from bert_features.machine.quiet_tensorflow import is_own_process
from bert_features.machine.selection import choose_runtime
from bert_features.machine.shares import Share


def process_context(
    config: ExtractConfig, shares: Iterable[Share]
) -> ForkServerContext | SpawnContext:
    """How the processes of a run or a service start, each with its share of this machine.

    Those of a command that share cores are forks of a process that has imported TensorFlow and done
    nothing else: the import takes seconds and 160 MB, once for all. Not those of a program, which
    may have forks of its own; nor on GPUs and TPUs, which are chosen before the import; nor on JAX,
    whose threads do not outlive a fork.
    """
    forks = (
        sys.platform == "linux"
        and is_own_process()
        and not any(share.environment for share in shares)
        and choose_runtime(config.runtime, config.device) == "tensorflow"
    )
    if not forks:
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["bert_features.extraction.preloaded"])
    return context
