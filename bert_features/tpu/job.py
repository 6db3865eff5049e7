"""The job of `bert-features compile`: the step that `extract` would run."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bert_features.checkpoints.checkpoint import Checkpoint
from bert_features.checkpoints.pooling import auto_pooling
from bert_features.config.bert_config import BertConfig
from bert_features.config.extract_config import ExtractConfig
from bert_features.config.features import OutputSpec
from bert_features.config.output_specs import attention_tokens, outputs_on_device
from bert_features.errors import ConfigError
from bert_features.extraction.checks import check_kinds, packs, row_length
from bert_features.tpu.chips import Topology, parse_topology

if TYPE_CHECKING:
    from bert_features.batches.bucketing import BatchShapes
    from bert_features.encoder.step import FloatPrecision


@dataclass(frozen=True)
class ChipJob:
    """A step to compile.

    Attributes:
      name: name of the architecture, for reports.
      batch_shapes: the shapes of batches, whose rows all chips share.
    """

    topology: Topology
    name: str
    config: BertConfig
    outputs: tuple[OutputSpec, ...]
    precision: "FloatPrecision"
    batch_shapes: "BatchShapes"

    @property
    def packed(self) -> bool:
        """Whether texts share rows."""
        return self.batch_shapes.packed

    @property
    def shapes(self) -> tuple[tuple[int, int], ...]:
        """(rows on each chip, length) of each shape of a batch, see `BatchShapes.declared`."""
        chips = self.topology.chips
        return tuple((rows // chips, length) for rows, length in self.batch_shapes.declared)


def plan_job(
    settings: ExtractConfig,
    topology: str,
    *,
    architecture: str | None = None,
    rows: int | None = None,
) -> ChipJob:
    """Plans the step that `extract` with these settings would run on a topology.

    Args:
      settings: settings of the run; `batch_size` and `batch_tokens` count all chips together.
      topology: name of the topology, as `v5e:2x2`.
      architecture: published name of the architecture. None takes the one of
        `settings.config_file` if no checkpoint is set, or else of `settings.checkpoint`.
      rows: rows on each chip for every length, instead of `batch_size`.

    Raises:
      CheckpointError: the architecture cannot be found.
      ConfigError: the topology is unknown, or the settings do not fit it.
    """
    check_kinds(settings)
    if settings.precision == "int8":
        raise ConfigError(
            "precision is 'int8', which is for CPUs; a TPU computes in bfloat16 or float32"
        )
    where = parse_topology(topology)
    name, config, checkpoint = _architecture(settings, architecture)
    if checkpoint is None:
        auto, length = None, settings.row_length(config, name)
    else:
        auto = auto_pooling(checkpoint, settings.outputs)
        length = row_length(settings, checkpoint)
    outputs = settings.plan_outputs(config, auto)
    most = attention_tokens(outputs, config, length)
    return ChipJob(
        topology=where,
        name=name,
        config=config,
        outputs=outputs_on_device(outputs, in_windows=settings.long_text == "window"),
        precision="float32" if settings.precision == "float32" else "bfloat16",
        batch_shapes=_batch_shapes(settings, length, where, rows, most),
    )


def _architecture(
    settings: ExtractConfig, architecture: str | None
) -> tuple[str, BertConfig, Checkpoint | None]:
    """The name and the architecture, and the checkpoint if it is one's."""
    from bert_features.checkpoints.find import find_checkpoint
    from bert_features.checkpoints.sources.published import find_published
    from bert_features.checkpoints.sources.registry import local_file

    alone = settings.config_file if "checkpoint" not in settings.model_fields_set else None
    checkpoint = None
    if architecture is not None:
        name, config = architecture, find_published(architecture).config
    elif alone is not None:
        name, config = alone, BertConfig.from_json_file(local_file(alone))
    else:
        checkpoint = find_checkpoint(settings.checkpoint, config_file=settings.config_file)
        name, config = checkpoint.name, checkpoint.config
    if settings.hidden_act is not None:
        config = config.model_copy(update={"hidden_act": settings.hidden_act})
    return name, config, checkpoint


def _batch_shapes(
    settings: ExtractConfig,
    length: int,
    topology: Topology,
    rows: int | None,
    most_tokens: int | None,
) -> "BatchShapes":
    """The shapes of a run's batches, whose rows all chips share."""
    from bert_features.batches.bucketing import device_shapes

    devices = topology.chips * topology.chip.devices
    if rows is not None:
        if settings.batch_size is not None or settings.batch_tokens is not None:
            raise ConfigError(
                "batch, batch_size and batch_tokens exclude each other; pass only one"
            )
        rows *= topology.chips
    packed = packs(settings, any_shape=False)
    shapes = device_shapes(
        settings, length, packed=packed, devices=devices, rows=rows, most_tokens=most_tokens
    )
    for count in shapes.rows:
        if count % devices:
            raise ConfigError(
                f"{count} rows are not a multiple of the {devices} devices of {topology.name}; "
                f"pass {-(-count // devices) * devices}"
            )
    return shapes
