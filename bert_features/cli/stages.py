"""The table of stages at the end of a run: which stage limits it, and what to change."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bert_features.cli.tables import table
from bert_features.config.extract_config import ExtractConfig
from bert_features.config.kinds import KINDS, unused
from bert_features.config.layers import DEFAULT_LAYERS
from bert_features.errors import ConfigError
from bert_features.files import STDOUT, is_url
from bert_features.machine.shares import share_out
from bert_features.monitor.run import RunMonitor
from bert_features.monitor.stages import STAGES, Stage, StageTimes
from bert_features.readers.decompression import COMPRESSED_SUFFIXES

# A smaller run says little: starting up and the first batches take most of it.
_MIN_SECONDS, _MIN_TOKENS = 5.0, 1000
_MUCH_PADDING = 0.4  # of the computed tokens


@dataclass(frozen=True)
class RunFacts:
    """What an advice depends on; inputs and output are as the user named them."""

    settings: ExtractConfig
    inputs: Sequence[str]
    output: str
    monitor: RunMonitor
    tokens: int
    on_ray: bool = False
    pad_waste: float = 0.0

    @property
    def is_text(self) -> bool:
        """Whether the output is JSON lines."""
        suffixed = self.settings.format is None and self.output.endswith(".jsonl")
        return suffixed or self.settings.format == "jsonl" or self.output == STDOUT


def describe_stages(times: StageTimes, facts: RunFacts) -> list[str]:
    """The lines of the table and the advice; none for a small run."""
    advice = advise(times, facts)
    if not advice:
        return []
    processes, waited = facts.monitor.processes, times.waited
    rows = [
        [f"  {stage}", *_share(times.busy[stage], times), *_share(waited[stage], times)]
        for stage in STAGES
    ]
    name = "stage" if processes == 1 else f"stage, sum of {processes} processes"
    head = [name, "busy", "of the time", "waited for", "of the time"]
    return [table(rows, head=head, right=range(1, 5)), f"limit      {advice}"]


def advise(times: StageTimes, facts: RunFacts) -> str:
    """One sentence: which stage limits the run, and what to change; empty for a small run."""
    stage = times.limiting
    is_short = times.elapsed / facts.monitor.processes < _MIN_SECONDS
    if stage is None or is_short or facts.tokens < _MIN_TOKENS:
        return ""
    share = times.waited[stage] / times.elapsed
    *changes, last = _CHANGES[stage](facts)
    joined = f"{', '.join(changes)}, or {last}" if changes else last
    return f"{stage}: the run waited for it {share:.0%} of its time; to go faster, {joined}"


def _share(seconds: float, times: StageTimes) -> tuple[str, str]:
    return f"{seconds:,.1f} s", f"{seconds / times.elapsed:.0%}"


def _for_read(facts: RunFacts) -> list[str]:
    if list(facts.inputs) == ["-"]:
        return ["speed up the program that writes to standard input"]
    changes = []
    if any(map(is_url, facts.inputs)):
        changes.append("copy the input to a local disk first")
    if any(name.lower().endswith(tuple(COMPRESSED_SUFFIXES)) for name in facts.inputs):
        changes.append("decompress the input first")
    return [*(changes or ["put the input on a faster disk"]), *_more_processes(facts)]


def _for_host(facts: RunFacts) -> list[str]:
    return _more_processes(facts) or ["use a machine with faster CPU cores"]


def _for_device(facts: RunFacts) -> list[str]:
    device, precision = facts.monitor.device, facts.monitor.precision
    faster = "a GPU or a TPU" if device == "cpu" else f"more or faster {device.upper()}s"
    changes = [*_less_padding(facts), f"use {faster}"]
    if precision == "float32" and device != "cpu":  # the flags of a CPU do not show its speed
        changes.append("try --precision bfloat16")
    outputs = facts.settings.outputs
    # The masked-LM head gives other values at a lower layer.
    layered = [output for output in outputs if KINDS[output.kind].needs != "head"]
    used = [output for output in layered if "layers" not in unused(dict(output))]
    layers = {layer for output in used for layer in output.layers or DEFAULT_LAYERS}
    if layers - {0, "embeddings"}:
        changes.append("take lower --layers (blocks above the highest are not computed)")
    return [*changes, "take a smaller --checkpoint"]


def _less_padding(facts: RunFacts) -> list[str]:
    """Settings by which less padding is computed: each length ends with a batch of masked rows."""
    if facts.pad_waste < _MUCH_PADDING:
        return []
    settings, waste = facts.settings, f"{facts.pad_waste:.0%} of what was computed is padding"
    if settings.packing is False:
        return [f"leave --no-packing out ({waste})"]
    if settings.batch_tokens is not None or settings.batch_size is not None:
        name = "--batch-tokens" if settings.batch_size is None else "--batch-size"
        return [f"pass a smaller {name} ({waste})"]
    return []


def _for_write(facts: RunFacts) -> list[str]:
    changes = ["write Parquet instead of JSON lines"] if facts.is_text else []
    changes += _fewer_bytes(facts)
    if is_url(facts.output):  # while a shard is uploaded, its process computes nothing
        return [*changes, "compute nearer to the store", *_more_processes(facts)]
    return [*changes, "write to a faster disk"]


def _fewer_bytes(facts: RunFacts) -> list[str]:
    """Settings by which the output has fewer bytes."""
    outputs = facts.settings.outputs
    changeable = [output for output in outputs if "dtype" not in unused(dict(output))]
    dtypes = {output.dtype for output in changeable}
    changes = []
    if "float32" in dtypes and not facts.is_text:
        changes.append("pass --dtype float16 (half the bytes)")
    if any(o.level != "sequence" and "sequence" in KINDS[o.kind].levels for o in outputs):
        changes.append("take --level sequence if one vector for each text is enough")
    return changes


def _more_processes(facts: RunFacts) -> list[str]:
    """Another process, where this machine can have one and the input can be shared."""
    if list(facts.inputs) == ["-"]:
        return []
    if facts.on_ray:
        return ["let Ray have more --ray-actors"]
    count = 2 * facts.monitor.processes
    try:
        share_out(count, facts.settings.device)
    except ConfigError:
        return []
    is_folder = facts.monitor.shards is not None
    folder = "" if is_folder else "write a folder (--output FOLDER/) and "
    return [f"{folder}pass --processes {count}"]


_CHANGES: dict[Stage, Callable[[RunFacts], list[str]]] = {
    "read": _for_read,
    "tokenize": _for_host,
    "batch": _for_host,
    "device": _for_device,
    "assemble": lambda facts: [*_fewer_bytes(facts), *_more_processes(facts)] or _for_host(facts),
    "write": _for_write,
}
