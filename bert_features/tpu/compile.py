"""The device step, compiled ahead of time by the TPU compiler for chips that are not here.

Keras must run on JAX, and in a process of its own: the compiler's environment is set before JAX is
imported. Nothing runs on a TPU; the figures are the compiler's, the speeds bounds of the published
peaks.

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

from bert_features.config.outputs import ITEM_SIZES, OutputSpec
from bert_features.errors import BertFeaturesError, ConfigError, MissingExtraError
from bert_features.tpu import hlo as tpu_hlo
from bert_features.tpu.chips import Topology, accepted
from bert_features.tpu.job import Job
from bert_features.tpu.report import ShapeReport

if TYPE_CHECKING:
    from bert_features.encoder.step import DeviceStep

logger = logging.getLogger("bert_features")

# The compiler asks the machine that it runs on what it is; these are the answers of a TPU host, so
# that it compiles on any. JAX itself shall look for no chip.
_ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "KERAS_BACKEND": "jax",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_WORKER_ID": "0",
    # Several compilers may run at a time, and one beside a program that has the chips.
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_STDERR_LOG_LEVEL": "3",
    "TPU_MIN_LOG_LEVEL": "3",
}
_EXTRA = "tpu-compile"
# "… required for HLO temporaries (230.32G) exceeds available HBM (15.75G)", where arguments and
# results are counted too; or, of what nearly fits, "Used 15.75G of 15.75G hbm".
_OUT_OF_MEMORY = re.compile(
    r"\((?P<needed>[\d.]+)(?P<needed_unit>[KMGT]?)\) exceeds available HBM "
    r"\((?P<available>[\d.]+)(?P<available_unit>[KMGT]?)\)"
)
_NEARLY_FITS = re.compile(
    r"Used (?P<needed>[\d.]+)(?P<needed_unit>[KMGT]?) of "
    r"(?P<available>[\d.]+)(?P<available_unit>[KMGT]?) hbm"
)
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
# What the compiler leaves free of HBM: 15.75 of 16 GiB of a v5e.
_USABLE = 0.984
# The search for the largest batch ends when it is known to this share, or after so many compiles.
_CLOSE_ENOUGH = 0.02
_MOST_TRIES = 5
# More than any BERT leaves room for; a toy must not grow beyond what arrays can have.
_MOST_TOKENS = 1 << 22


def prepare_process() -> None:
    """Sets the compiler's environment; to be called before JAX or Keras is imported.

    Raises:
      ConfigError: Keras or JAX is imported already, and not for this.
      MissingExtraError: the compiler is not installed.
    """
    for package in ("jax", "libtpu"):
        if importlib.util.find_spec(package) is None:
            raise MissingExtraError(package, _EXTRA)
    if any(os.environ.get(name) != value for name, value in _ENVIRONMENT.items()) and any(
        package in sys.modules for package in ("jax", "keras")
    ):
        raise ConfigError(
            "the TPU compiler needs a process of its own; Keras or JAX is imported already"
        )
    os.environ.update(_ENVIRONMENT)


class TpuCompiler:
    """Compiles the steps of a job; made in a process that `prepare_process` has prepared.

    Args:
      job: what to compile.

    Raises:
      ConfigError: the compiler does not accept the topology.
    """

    def __init__(self, job: Job) -> None:
        self.job = job
        self._mesh = make_mesh(job.topology)
        model_fn = _shapes_only(job)
        self._inputs = model_fn.inputs
        self._step = model_fn.step
        self._weights = [(tuple(w.shape), str(w.dtype)) for w in model_fn.weights]

    def reports(self, *, largest: bool = True) -> Iterator[ShapeReport]:
        """A report for each shape of the job.

        Args:
          largest: whether to look for the largest batch, in some more compiles.

        Raises:
          ConfigError: a batch does not fit into the chip.
          BertFeaturesError: the compiler gives up.
        """
        for rows, length in self.job.shapes:
            yield self._report(rows, length, largest=largest)

    def _report(self, rows: int, length: int, *, largest: bool) -> ShapeReport:
        logger.info("compiling %d x %d for %s", rows, length, self.job.topology.name)
        started = time.perf_counter()
        try:
            compiled = self.compile(rows, length)
        except _DoesNotFitError as error:
            fits = self._largest(length, 0, rows, error.needed / error.available)
            advice = (
                f"the largest found to fit is {fits} x {length}: pass --batch {fits}"
                if fits
                else "nor does any smaller one that was tried fit: take a chip with more"
            )
            raise ConfigError(
                f"a batch of {rows} x {length} on each chip needs {error.needed / 2**30:.1f} GiB, "
                f"and {self.job.topology.name} has {error.available / 2**30:.2f} GiB; {advice}"
            ) from error
        seconds = time.perf_counter() - started
        report = self._describe(compiled, rows, length, seconds)
        if not largest:
            return report
        needed = report.weight_bytes + report.temporary_bytes + report.output_bytes
        share = needed / self._available()
        return dataclasses.replace(report, largest_rows=self._largest(length, rows, None, share))

    def compile(self, rows: int, length: int) -> Any:
        """The compiled step for `rows` rows of a chip."""
        import jax
        import jax.numpy as jnp

        everywhere, by_rows = _shardings(self._mesh)
        weights = [
            jax.ShapeDtypeStruct(shape, jnp.dtype(dtype), sharding=everywhere)
            for shape, dtype in self._weights
        ]
        shape = (rows * self.job.topology.chips, length)
        batch = {
            name: jax.ShapeDtypeStruct(shape, jnp.int32, sharding=by_rows) for name in self._inputs
        }
        return compile_for_tpu(self._traced_step, weights, batch, by_rows)

    def _traced_step(self, weights: Sequence[Any], batch: Mapping[str, Any]) -> dict[str, Any]:
        from bert_features.runtime.jax import traced_for_jax

        with traced_for_jax("tpu"):
            return self._step(weights, batch)

    def _describe(self, compiled: Any, rows: int, length: int, seconds: float) -> ShapeReport:
        memory, cost, text = (
            compiled.memory_analysis(),
            compiled.cost_analysis(),
            compiled.as_text(),
        )
        devices = self.job.topology.chip.devices
        tokens = rows * length // devices  # of a device, as all that the compiler says
        hbm = tpu_hlo.hbm_bytes(text)
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
            kernels=tpu_hlo.fusions(text),
            left_bytes_per_token=sum(_left_bytes(o, length) for o in self.job.outputs),
            collectives=tuple(tpu_hlo.collectives(text)),
            host_callbacks=tuple(tpu_hlo.host_callbacks(text)),
        )

    def _largest(self, length: int, fits: int, too_many: int | None, share: float) -> int:
        """The largest number of rows found that fits.

        Args:
          length: S.
          fits: rows that do.
          too_many: rows that do not, if there are any known.
          share: of the memory that `fits` or, if that is 0, `too_many` rows take.
        """
        step = self.job.topology.chip.devices
        most = max(_MOST_TOKENS // length // step, 1) * step
        rows = (fits or too_many or step) / share
        for _ in range(_MOST_TRIES):
            rows = min(rows, most, (too_many or most + 1) - step)
            rows = max(int(rows) // step * step, fits + step, step)
            if rows > most or rows == too_many:
                break
            try:
                needed, available = self._memory(rows, length)
                fits = rows
            except _DoesNotFitError as error:
                needed, available = error.needed, error.available
                too_many = rows
            if too_many is not None and too_many - fits <= max(step, fits * _CLOSE_ENOUGH):
                break
            if needed <= available and needed > available * (1 - _CLOSE_ENOUGH):
                break
            rows = rows * available / needed
            if too_many is not None and not fits < rows < too_many:
                rows = (fits + too_many) / 2
        return fits

    def _memory(self, rows: int, length: int) -> tuple[float, float]:
        """The bytes that a batch takes, and those there are."""
        memory = self.compile(rows, length).memory_analysis()
        taken = (
            memory.argument_size_in_bytes + memory.temp_size_in_bytes + memory.output_size_in_bytes
        )
        return taken * self.job.topology.chip.devices, self._available()

    def _available(self) -> float:
        return self.job.topology.chip.hbm_gib * 2**30 * _USABLE


class _DoesNotFitError(Exception):
    """A program that needs more HBM than there is, both in bytes."""

    def __init__(self, needed: float, available: float) -> None:
        super().__init__(needed, available)
        self.needed, self.available = needed, available


def compile_for_tpu(
    step: Callable[[Any, Any], Any], weights: Any, batch: Any, out_sharding: Any
) -> Any:
    """Compiles a step of weights and a batch, which is donated, from shapes alone.

    Raises:
      BertFeaturesError: the compiler gives up.
      _DoesNotFitError: for want of memory.
    """
    import jax

    with warnings.catch_warnings():
        # Ids have no result of their shape and type to leave their memory to.
        warnings.filterwarnings("ignore", "Some donated buffers were not usable")
        jitted = jax.jit(step, donate_argnums=(1,), out_shardings=out_sharding)
        try:
            return jitted.lower(weights, batch).compile()
        except jax.errors.JaxRuntimeError as error:
            found = out_of_memory(str(error))
            if found:
                raise _DoesNotFitError(*found) from error
            raise BertFeaturesError(
                f"the TPU compiler gave up: {str(error).strip().splitlines()[0]}"
            ) from error


def out_of_memory(message: str) -> tuple[float, float] | None:
    """The bytes that a program needs and those there are, if the compiler's error is of them."""
    found = _OUT_OF_MEMORY.search(message) or _NEARLY_FITS.search(message)
    if found is None:
        return None
    return (
        float(found["needed"]) * _UNITS[found["needed_unit"]],
        float(found["available"]) * _UNITS[found["available_unit"]],
    )


def make_mesh(topology: Topology) -> Any:
    """A one-dimensional mesh, `data`, of the devices of a topology.

    Raises:
      ConfigError: the compiler does not accept it.
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
            f"({str(error).strip().splitlines()[0]}); {accepted()}"
        ) from error
    return jax.sharding.Mesh(np.array(described.devices), ("data",))


def _shardings(mesh: Any) -> tuple[Any, Any]:
    """Of what every device has whole, and of what they have rows of."""
    from jax.sharding import NamedSharding, PartitionSpec

    return NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("data"))


def _shapes_only(job: Job) -> "DeviceStep":
    """The model_fn with variables that have shapes and no values."""
    import keras

    from bert_features.encoder.step import DeviceStep

    if keras.backend.backend() != "jax":
        raise ConfigError(
            f"Keras runs on {keras.backend.backend()}; the TPU compiler needs KERAS_BACKEND=jax"
        )
    with keras.StatelessScope(initialize_variables=False):
        return DeviceStep(
            job.config,
            None,
            job.outputs,
            special_ids=(101, 102),  # which ids these are does not change the program
            precision=job.precision,
            use_one_hot_embeddings=job.use_one_hot_embeddings,
            fuse_qkv=False,
        )


def _left_bytes(output: OutputSpec, length: int) -> float:
    """Bytes of an output for each token of a row."""
    size = output.width * ITEM_SIZES[output.dtype]
    return size / length if output.level == "sequence" else size
