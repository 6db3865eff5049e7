"""What a run and its processes say to each other, through a pipe."""

import traceback
from collections.abc import Mapping
from dataclasses import dataclass

from bert_features.config.extract_config import ExtractConfig
from bert_features.errors import BertFeaturesError, DeviceError
from bert_features.extraction.feature_store import StorePlace
from bert_features.formats.manifest import FinishedEntry, Manifest
from bert_features.monitor.stages import StageTimes

_MAX_CHARACTERS = 300
_DEVICE_LIBRARIES = ("tensorflow", "jax", "jaxlib")


@dataclass(frozen=True)
class Job:
    """What a process needs to know before its first shard.

    Attributes:
      config: the settings.
      manifest: the run.
      cores: the CPU cores to run on; None for all.
      place: where the features of texts that repeat are; None for nowhere.
    """

    config: ExtractConfig
    manifest: Manifest
    cores: frozenset[int] | None
    place: StorePlace | None = None


@dataclass(frozen=True)
class Ready:
    """The model is on its device.

    Attributes:
      device: what the device is, as `tensorflow, cpu, float32`.
      processor: see `describe_processor`.
    """

    device: str
    processor: str


@dataclass(frozen=True)
class Progress:
    """How far a process has come.

    Attributes:
      counts: totals of the shard that is being computed, by the names of `Counts`.
      stages: the times of all shards of the process.
    """

    counts: Mapping[str, int]
    stages: StageTimes


@dataclass(frozen=True)
class Finished:
    """A shard is in its place.

    Attributes:
      shard: its number.
      entry: its record.
      stages: the times of all shards of the process.
    """

    shard: int
    entry: FinishedEntry
    stages: StageTimes


@dataclass(frozen=True)
class Log:
    """A message for the log."""

    level: int
    text: str


@dataclass(frozen=True)
class Failed:
    """The process gives up.

    Attributes:
      error: what happened.
      trace: the traceback.
    """

    error: Exception
    trace: str

    @classmethod
    def of(cls, error: Exception) -> "Failed":
        """Makes an error fit for another process, which need not have the library it came from."""
        return cls(_portable(error), traceback.format_exc())

    def exception(self) -> Exception:
        """The error to raise."""
        self.error.add_note(f"In a process of the run:\n{self.trace}")
        return self.error


def _portable(error: Exception) -> Exception:
    """The error, or one of Python's own or of this package that says the same."""
    if isinstance(error, BertFeaturesError) or type(error).__module__ == "builtins":
        return error
    line = next(iter(str(error).strip().splitlines()), "no message")[:_MAX_CHARACTERS]
    text = f"{type(error).__name__}: {line}"
    if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in text or "Exhausted" in text:
        return MemoryError(line)
    if type(error).__module__.partition(".")[0] in _DEVICE_LIBRARIES:
        return DeviceError(f"the device of a process failed: {text}")
    return RuntimeError(text)  # a bug


Message = Ready | Progress | Finished | Log | Failed
