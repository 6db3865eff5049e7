"""WeightFiles: where the weights of a checkpoint are, what lies beside them, and their reader."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bert_features.checkpoints.other_files import check_pointer
from bert_features.checkpoints.weight_names import Kind
from bert_features.checkpoints.weight_readers import (
    PICKLED,
    PICKLED_INDEX,
    Reader,
    is_electra,
    open_weights,
    weight_files,
)

SAVED_MODEL = "saved_model.pb"


@dataclass(frozen=True)
class WeightFiles:
    """The weights of a checkpoint on disk; they are opened once.

    Attributes:
      path: the file of Hugging Face's weights (safetensors or pytorch_model.bin), the index of its
        shards, or the prefix of a TensorFlow checkpoint; a SavedModel has that prefix in its folder
        `variables`.
      kind: whose names and layout they have: `tf1`, `tf2`, or `safetensors` for Hugging Face's.
    """

    path: Path
    kind: Kind

    @property
    def format(self) -> str:
        """The kind, or `pickle` for the files of torch."""
        return "pickle" if self.path.name.endswith((*PICKLED, PICKLED_INDEX)) else self.kind

    @functools.cached_property
    def in_saved_model(self) -> bool:
        """Whether they are the variables of a SavedModel."""
        folder = self.path.parent
        return folder.name == "variables" and (folder.parent / SAVED_MODEL).is_file()

    @functools.cached_property
    def root(self) -> Path:
        """The directory of the checkpoint; for a SavedModel the one above its `variables`."""
        folder = self.path.parent
        return folder.parent if self.in_saved_model else folder

    @functools.cached_property
    def is_electra(self) -> bool:
        """Whether this is a TF1 checkpoint of ELECTRA; a CheckpointError if it cannot be read."""
        return is_electra(self.path, self.kind)

    @property
    def may_lack_config(self) -> bool:
        """Whether checkpoints of this kind are published without a config that can be read.

        TensorFlow reads their shapes instead.
        """
        return self.kind == "tf2" or self.in_saved_model or self.is_electra

    @functools.cached_property
    def reader(self) -> Reader:
        """Their tensors; a CheckpointError if the files are damaged or missing."""
        return open_weights(self.path, self.kind)

    def close(self) -> None:
        """Forgets the reader, with the memory that it has mapped; the next use opens another."""
        self.__dict__.pop("reader", None)

    def files(self) -> list[Path]:
        """The files that hold them, any index first; a CheckpointError if one cannot be read."""
        return weight_files(self.path, self.kind)

    def beside(self, names: Sequence[str]) -> Path | None:
        """The first of these files beside the weights; of a SavedModel, also among its assets."""
        folders = [self.root] + [self.root / "assets"] * self.in_saved_model
        paths = (folder / name for folder in folders for name in names)
        found = next((path for path in paths if path.is_file()), None)
        if found is not None:
            check_pointer(found)
        return found
