"""The TPU compiler: compiles the device step ahead of time, without a TPU.

Keras must run on JAX, in a separate process: the compiler's environment is set before JAX is
imported. Nothing runs on a TPU: the compiler gives the figures, and the speeds are bounds that
follow from published peaks.

Shape legend: `B` rows, `S` length.
"""

import dataclasses
import importlib.util
import logging
import os
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bert_features.config.features import ITEM_SIZES, OutputSpec
from bert_features.config.kinds import needs
from bert_features.config.packing import MAX_PACKED_TEXTS
from bert_features.errors import BertFeaturesError, ConfigError, MissingExtraError, first_line
from bert_features.tpu import hlo as tpu_hlo
from bert_features.tpu.chips import Topology, accepted
from bert_features.tpu.job import ChipJob
from bert_features.tpu.loops import FIGURES, uncounted
from bert_features.tpu.report import ShapeReport

if TYPE_CHECKING:
    from bert_features.encoder.step import DeviceStep

logger = logging.getLogger("bert_features")

# The compiler asks its machine for these values; with the answers of a TPU host it compiles on any
# machine. JAX must not look for a chip.
_ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "KERAS_BACKEND": "jax",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_WORKER_ID": "0",
    # Several compilers may run at a time, also beside a program that holds the chips.
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_STDERR_LOG_LEVEL": "3",
    "TPU_MIN_LOG_LEVEL": "3",
}
_EXTRA = "tpu-compile"
# The share of HBM that programs can use: 15.75 of 16 GiB of a v5e.
_USABLE = 0.984
# No BERT leaves room for more; the batch of a toy model must not outgrow the sizes of arrays.
_MAX_TOKENS = 1 << 22
_SIZE = r"([\d.]+)([KMGT]?)"
# "… required for HLO temporaries (230.32G) exceeds available HBM (15.75G)", where arguments and
# results are included; or, if it nearly fits, "Used 15.75G of 15.75G hbm".
_OUT_OF_MEMORY = re.compile(
    rf"\({_SIZE}\) exceeds available HBM \({_SIZE}\)|Used {_SIZE} of {_SIZE} hbm"
)
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
# The search ends when the largest batch is known to this share, or after this many compilations.
_CLOSE_ENOUGH = 0.02
_MAX_TRIES = 5


class DoesNotFitError(Exception):
    """A program that needs more HBM than a chip has; both in bytes."""

    def __init__(self, needed: float, available: float) -> None:
        super().__init__(needed, available)
        self.needed, self.available = needed, available


def prepare_process() -> None:
    """Sets the compiler's environment. Call it before JAX or Keras is imported.

    Raises:
      ConfigError: Keras or JAX was imported before, in another environment.
      MissingExtraError: the compiler is not installed.
    """
    for package in ("jax", "libtpu"):
        if importlib.util.find_spec(package) is None:
            raise MissingExtraError(package, _EXTRA)
    if any(os.environ.get(name) != value for name, value in _ENVIRONMENT.items()) and any(
        package in sys.modules for package in ("jax", "keras")
    ):
        raise ConfigError(
            "the TPU compiler needs a process of its own, but Keras or JAX is already imported; "
            "call prepare_process() first"
        )
    os.environ.update(_ENVIRONMENT)


class TpuCompiler:
    """Compiles the steps of a job, in a process that `prepare_process` has prepared.

    Raises:
      ConfigError: the compiler does not accept the topology.
    """

    def __init__(self, job: ChipJob) -> None:
        self.job = job
        self._mesh = make_mesh(job.topology)
        model_fn = _shapes_only(job)
        self._inputs = model_fn.inputs
        self._step = model_fn.step
        self._weights = [(tuple(w.shape), str(w.dtype)) for w in model_fn.weights]

    def reports(self, *, largest: bool = True) -> Iterator[ShapeReport]:
        """Compiles every shape of the job; yields a report for each.

        The search for the largest batch takes a few more compilations; attention has none, as a
        run bounds its batches anyway (`attention_tokens`). Raises ConfigError if a batch does not
        fit into the chip's memory, else BertFeaturesError.
        """
        largest &= not needs(self.job.outputs, "attention")
        largest_rows: dict[int, int] = {}  # the largest batch of each length
        for rows, length in self.job.shapes:
            logger.info("compiling %d x %d for %s", rows, length, self.job.topology.name)
            started = time.perf_counter()
            try:
                compiled = self.compile(rows, length)
            except DoesNotFitError as error:
                raise self._too_large(rows, length, error) from error
            seconds = time.perf_counter() - started
            report = self._describe(compiled, rows, length, seconds)
            if largest and length not in largest_rows:
                needed = report.weight_bytes + report.temporary_bytes + report.output_bytes
                share = needed / self._available()
                largest_rows[length] = self._largest(length, share=share, fits=rows, too_many=None)
            yield dataclasses.replace(report, largest_rows=largest_rows.get(length))

    def _too_large(self, rows: int, length: int, error: DoesNotFitError) -> ConfigError:
        fits = self._largest(length, share=error.needed / error.available, too_many=rows)
        advice = (
            f"the largest batch found to fit is {fits} x {length}: pass --batch {fits}"
            if fits
            else "no smaller batch that was tried fits either: choose a chip with more memory"
        )
        return ConfigError(
            f"a batch of {rows} x {length} on each chip needs {error.needed / 2**30:.1f} GiB, "
            f"but {self.job.topology.name} has {error.available / 2**30:.2f} GiB; {advice}"
        )

    def compile(self, rows: int, length: int) -> Any:
        """Compiles the step for `rows` rows on each chip."""
        step, weights, batch = self._arguments(rows, length)
        return compile_for_tpu(step, weights, batch, batch["input_mask"].sharding)

    def _arguments(self, rows: int, length: int) -> tuple[Callable[[Any, Any], Any], Any, Any]:
        """The step, and the shapes of its weights and of a batch."""
        import jax
        import jax.numpy as jnp
        from jax.sharding import NamedSharding, PartitionSpec

        from bert_features.runtime.jax import shared_out

        everywhere, shared = (
            NamedSharding(self._mesh, PartitionSpec(*axes)) for axes in ((), ("data",))
        )
        weights = [
            jax.ShapeDtypeStruct(shape, jnp.dtype(dtype), sharding=everywhere)
            for shape, dtype in self._weights
        ]
        shape = (rows * self.job.topology.chips, length)
        batch = {
            name: jax.ShapeDtypeStruct(shape, jnp.int32, sharding=shared) for name in self._inputs
        }
        return shared_out(self._traced_step, self._mesh), weights, batch

    def _traced_step(self, weights: Sequence[Any], batch: Mapping[str, Any]) -> dict[str, Any]:
        from bert_features.runtime.jax import traced_for_jax

        with traced_for_jax("tpu"):
            return self._step(weights, batch)

    def _cost(self, compiled: Any, rows: int, length: int) -> dict[str, float]:
        """The `FIGURES` of a program, with all passes of its loops."""
        import jax

        step, weights, batch = self._arguments(rows, length)
        more = uncounted(jax.make_jaxpr(step)(weights, batch), weights[0].sharding)
        return {name: compiled.cost_analysis()[name] + more[name] for name in FIGURES}

    def _describe(self, compiled: Any, rows: int, length: int, seconds: float) -> ShapeReport:
        memory, cost = compiled.memory_analysis(), self._cost(compiled, rows, length)
        text = program_text(compiled)
        devices = self.job.topology.chip.devices
        tokens = rows * length // devices  # per device, like all figures of the compiler
        hbm = None if text is None else tpu_hlo.hbm_bytes(text)
        batch_bytes = 4 * tokens * len(self._inputs)
        return ShapeReport(
            length=length,
            rows=rows,
            compile_seconds=seconds,
            weight_bytes=(memory.argument_size_in_bytes - batch_bytes) * devices,
            temporary_bytes=memory.temp_size_in_bytes * devices,
            output_bytes=memory.output_size_in_bytes * devices,
            largest_rows=None,
            flops_per_token=cost["flops"] / tokens,
            bytes_per_token=cost["bytes accessed"] / tokens,
            hbm_bytes_per_token=None if hbm is None else hbm / tokens,
            kernels=None if text is None else tpu_hlo.fusions(text),
            left_bytes_per_token=sum(self._left_bytes(o, length) for o in self.job.outputs),
            collectives=None if text is None else tuple(tpu_hlo.collectives(text)),
            host_callbacks=None if text is None else tuple(tpu_hlo.host_callbacks(text)),
        )

    def _left_bytes(self, output: OutputSpec, length: int) -> float:
        """Bytes of an output per token of a row."""
        vectors = MAX_PACKED_TEXTS if self.job.packed else 1
        size = output.device_width * ITEM_SIZES[output.dtype]
        if output.is_paired:
            return size * length
        return size * vectors / length if output.has_rows else size

    def _largest(self, length: int, *, share: float, fits: int = 0, too_many: int | None) -> int:
        """The largest number of rows of one length that fits; see `largest_rows`."""
        step = self.job.topology.chip.devices
        return largest_rows(
            lambda rows: self._memory(rows, length),
            share=share,
            step=step,
            max_rows=max(_MAX_TOKENS // length // step, 1) * step,
            fits=fits,
            too_many=too_many,
        )

    def _memory(self, rows: int, length: int) -> tuple[float, float]:
        """The bytes that a batch needs on a chip, and the bytes available."""
        logger.info("compiling %d x %d, in search of the largest batch", rows, length)
        memory = self.compile(rows, length).memory_analysis()
        taken = (
            memory.argument_size_in_bytes + memory.temp_size_in_bytes + memory.output_size_in_bytes
        )
        return taken * self.job.topology.chip.devices, self._available()

    def _available(self) -> float:
        return self.job.topology.chip.hbm_gib * 2**30 * _USABLE


def compile_for_tpu(
    step: Callable[[Any, Any], Any], weights: Any, batch: Any, out_sharding: Any
) -> Any:
    """Compiles a step of weights and a batch from shapes alone; the batch is donated.

    Raises DoesNotFitError if it needs more memory than the chip has, else BertFeaturesError.
    """
    import jax

    with warnings.catch_warnings():
        # No result has the shape and type of the ids, so none can reuse their memory.
        warnings.filterwarnings("ignore", "Some donated buffers were not usable")
        jitted = jax.jit(step, donate_argnums=(1,), out_shardings=out_sharding)
        try:
            return jitted.lower(weights, batch).compile()
        except jax.errors.JaxRuntimeError as error:
            memory = out_of_memory(str(error))
            if memory:
                raise DoesNotFitError(*memory) from error
            raise BertFeaturesError(f"the TPU compiler failed: {first_line(error)}") from error


def program_text(compiled: Any) -> str | None:
    """The text of a compiled program.

    It is None where a newer libtpu uses instructions that JAX cannot read: for a v6e, jax 0.10.2
    fails with libtpu 0.0.52.
    """
    import jax

    try:
        text: str = compiled.as_text()
    except jax.errors.JaxRuntimeError as error:
        logger.warning("JAX cannot read the compiled program: %s", first_line(error))
        return None
    return text


def make_mesh(topology: Topology) -> Any:
    """A one-dimensional mesh, `data`, of the devices of a topology.

    Raises ConfigError if the compiler does not accept it.
    """
    import jax
    import numpy as np
    from jax.experimental import topologies

    options = (
        {} if topology.chip.config_name is None else {"chip_config_name": topology.chip.config_name}
    )
    try:
        described = topologies.get_topology_desc(topology.compiler_name, "tpu", **options)
    except jax.errors.JaxRuntimeError as error:
        raise ConfigError(
            f"the TPU compiler does not accept the topology {topology.name!r} "
            f"({first_line(error)}); {accepted()}"
        ) from error
    return jax.sharding.Mesh(np.array(described.devices), ("data",))


def _shapes_only(job: ChipJob) -> "DeviceStep":
    """The device step with variables that have shapes and no values."""
    import keras

    from bert_features.encoder.forms import check_backend
    from bert_features.encoder.step import DeviceStep

    check_backend("jax", "the TPU compiler")
    with keras.StatelessScope(initialize_variables=False):
        return DeviceStep(
            job.config,
            None,
            job.outputs,
            special_ids=(101, 102),  # which ids these are does not change the program
            precision=job.precision,
            fuse_qkv=False,
            packed=job.packed,
        )


def out_of_memory(message: str) -> tuple[float, float] | None:
    """The bytes needed and available, from a compiler's error; None if it is another error."""
    match = _OUT_OF_MEMORY.search(message)
    if match is None:
        return None
    needed, needed_unit, available, available_unit = (x for x in match.groups() if x is not None)
    return float(needed) * _UNITS[needed_unit], float(available) * _UNITS[available_unit]


def largest_rows(
    memory_of: Callable[[int], tuple[float, float]],
    *,
    share: float,
    step: int,
    max_rows: int,
    fits: int = 0,
    too_many: int | None = None,
) -> int:
    """Finds the largest number of rows that fits, to within 2 %, in at most five tries.

    Args:
      memory_of: gives the bytes that a number of rows needs, and the bytes available; raises
        DoesNotFitError.
      share: part of the memory that `fits` or, if that is 0, `too_many` rows need.
      step: the result is a multiple of this.
      max_rows: largest number to try, a multiple of `step`.
      fits: a number of rows that fits; 0 if none is known.
      too_many: a number of rows that does not fit; None if none is known.

    Returns:
      The largest number that was tried and fits; `fits` if there was none.
    """
    guess = (fits or too_many or step) / share
    for _ in range(_MAX_TRIES):
        limit = max_rows if too_many is None else min(max_rows, too_many - step)
        rows = max(int(min(guess, limit)) // step * step, fits + step)
        if rows > limit:
            break
        try:
            needed, available = memory_of(rows)
            fits = rows
        except DoesNotFitError as error:
            needed, available = error.needed, error.available
            too_many = rows
        if too_many is not None and too_many - fits <= max(step, fits * _CLOSE_ENOUGH):
            break
        if available * (1 - _CLOSE_ENOUGH) < needed <= available:
            break
        guess = rows * available / needed
        if too_many is not None and not fits < guess < too_many:
            guess = (fits + too_many) / 2
    return fits
