"""What a kind of output is."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import fields
from typing import Any, ClassVar, NamedTuple

from bert_features.config.bert_config import BertConfig
from bert_features.config.features import OutputSpec
from bert_features.config.layers import DEFAULT_LAYERS, expand_all, resolve_layers
from bert_features.config.poolings import Module, SparsePooling


class Context(NamedTuple):
    """What outputs are resolved against.

    Attributes:
      config: the architecture.
      modules: what the checkpoint does to each pooled vector.
      sparse: how the checkpoint makes sparse vectors; None if its files do not say.
    """

    config: BertConfig
    modules: tuple[Module, ...]
    sparse: SparsePooling | None = None

    def resolve(self, layers: Sequence[int | str]) -> tuple[tuple[int | str, ...], tuple[int, ...]]:
        """The entries of LAYERS, one for each layer, and their states; see `resolve_layers`."""
        entries = expand_all(layers, self.config.num_hidden_layers)
        return entries, resolve_layers(entries, self.config.num_hidden_layers)


class OutputKind(ABC):
    """A kind of output: the settings that it takes, what it cannot do, and its features.

    `encoder.computations` computes it, `extraction.placement` says how its rows are put together.

    Attributes:
      name: its name in the setting `kind`.
      summary: what it is, for the help: a part of a sentence.
      settings: the settings of an output that it takes beside `name`, `kind` and `level`. What no
        kind lists, kind `layers` takes.
      levels: the levels that it has.
      poolings: the poolings that it has; None for those of its level, see `POOLINGS`.
      needs: what it is computed from beside the layers: `attention`, the masked-LM `head`, or the
        `projection` of tokens for late interaction.
      has_vectors: whether its features are vectors, which may be compared, stored in a small dtype
        and computed in a Keras layer.
      masks_rows: whether each piece of a text is masked in a row of its own. Then no other output
        can come from the same pass.
      small_levels: the settings `level` for which it has small dtypes.
      search: how `neighbors` compares its features: `vectors` one by one, `terms`, or `maxsim`;
        empty if it does not.
      on_host: whether the host finishes what the device computes. Then no Keras layer and no
        SavedModel has it.
      can_pack: whether texts may share a row.
      packs_by_itself: whether they do where the user does not ask for it.
      can_window: whether a long text may be computed in windows.
      follows_checkpoint: whether it follows the files of sentence-transformers (length, prompts)
        without being asked to, as pooling `auto` does.
      is_single: whether a run has one output of the kind at most, as its level's units are its own.
      may_lack: whether a row may have no value: NaN in files, null in JSON.
      default_layers: its layers where an output names none, if it takes `layers`.
      unserved: why the service does not have it, a part of a sentence; empty if it does.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    settings: ClassVar[frozenset[str]]
    levels: ClassVar[tuple[str, ...]]
    poolings: ClassVar[tuple[str, ...] | None] = None
    needs: ClassVar[str] = ""
    has_vectors: ClassVar[bool] = False
    masks_rows: ClassVar[bool] = False
    small_levels: ClassVar[tuple[str, ...]] = ("sequence",)
    search: ClassVar[str] = ""
    on_host: ClassVar[bool] = False
    can_pack: ClassVar[bool] = True
    packs_by_itself: ClassVar[bool] = True
    can_window: ClassVar[bool] = True
    follows_checkpoint: ClassVar[bool] = False
    is_single: ClassVar[bool] = False
    may_lack: ClassVar[bool] = False
    default_layers: ClassVar[tuple[int, ...]] = DEFAULT_LAYERS
    unserved: ClassVar[str] = ""

    def check(self, output: Any) -> None:  # noqa: B027 - most kinds have nothing to add
        """Refuses values of an `OutputConfig` that do not fit together; raises ConfigError."""

    def needed_by(self, output: Any) -> str:
        """As `needs`, for one output."""
        return self.needs

    def packs(self, output: Any) -> bool:
        """As `can_pack`, for one output."""
        return self.can_pack

    def check_windows(self, output: OutputSpec) -> None:  # noqa: B027 - most have nothing to add
        """Refuses an output that windows cannot have; raises ConfigError."""

    @abstractmethod
    def names(self, output: Any, num_layers: int) -> list[str]:
        """Names of the features of an `OutputConfig` with a number of layers."""

    @abstractmethod
    def specs(self, output: Any, context: Context) -> list[OutputSpec]:
        """The features of an `OutputConfig`; ConfigError: it does not fit the architecture."""


def make_spec(output: Any, **values: Any) -> OutputSpec:
    """A feature of an `OutputConfig`: what is set there and not resolved to a value of its own."""
    settings = {each.name: getattr(output, each.name, None) for each in fields(OutputSpec)}
    return OutputSpec(**{name: v for name, v in settings.items() if v is not None} | values)


def numbered(name: str, count: int) -> list[str]:
    """The name alone for one feature, else `NAME_0`, `NAME_1`, …"""
    return [name] if count == 1 else [f"{name}_{i}" for i in range(count)]
