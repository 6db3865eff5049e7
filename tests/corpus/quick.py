"""A model that computes nothing, so that a process which holds it starts in a second.

For tests of the processes of a run: they read, write, report and end as in any run. Only the
features are made up. While there is a file FOLDER.stalled, a run into FOLDER gets no further than
two shards.
"""

import itertools
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from bert_features.checkpoints.find import find_checkpoint
from bert_features.corpus import processes, ray_actors, run, worker
from bert_features.corpus.shards import ShardWriter
from bert_features.errors import ConfigError
from bert_features.extraction.pipeline import Pipeline
from bert_features.extraction.recipe import plan_recipe
from bert_features.formats.records import Feature, FeatureBatch

LENGTH = Feature("length", (-1,), "none", 1, "float32", "sequence", "mean")
STEP_SECONDS = 0.004


class QuickPipeline(Pipeline):
    """Stands for a `Pipeline`; the feature of a text is its length."""

    precision = "float32"
    recipe = None  # of each, no property
    devices = SimpleNamespace(kind="cpu")
    outputs = (LENGTH,)
    preparation = None  # only `dedupe` needs it

    def __init__(self, config, folder):
        if config.device != "auto":
            raise ConfigError(f"no {config.device}")
        self.canaries = {}
        self.config, self.checkpoint = config, find_checkpoint(config.checkpoint)
        arithmetic = {"device": "cpu", "precision": self.precision}
        self.recipe = replace(plan_recipe(config, self.checkpoint), arithmetic=arithmetic)
        self._stalled, self._finished = Path(f"{folder}.stalled"), Path(f"{folder}/.finished")

    def features(self):
        return (LENGTH,)

    def metadata(self):
        return {}

    def batches(self, examples, *, counts, progress, **others):
        found = iter(examples())
        while rows := list(itertools.islice(found, self.config.batch_size)):
            time.sleep(STEP_SECONDS)
            while self._stalled.exists() and len(list(self._finished.iterdir())) >= 2:
                time.sleep(STEP_SECONDS)
                progress(counts)
            counts.examples += len(rows)
            counts.tokens += len(rows)
            progress(counts)
            lengths = np.array([[len(row.text_a)] for row in rows], np.float32)
            yield FeatureBatch(np.array([row.unique_id for row in rows]), {"length": lengths})


class QuickWriter(ShardWriter):
    @classmethod
    def load(cls, job, checkpoint=None):
        return cls(job, QuickPipeline(job.config, job.manifest.folder))


class QuickActor(ray_actors.ShardActor):
    def load(self):
        worker.ShardWriter = QuickWriter
        return super().load()


_work = processes._work


def work(*arguments):
    """What a process of a run does, in that process."""
    worker.ShardWriter = QuickWriter
    _work(*arguments)


def install(patch=setattr):
    """Makes the runs of this process use the model, and the processes that they begin."""
    patch(run, "ShardWriter", QuickWriter)
    patch(worker, "ShardWriter", QuickWriter)
    patch(processes, "_work", work)
    patch(ray_actors, "ShardActor", QuickActor)


def main():
    """The command line with this model."""
    from bert_features.__main__ import main

    install()
    main()
