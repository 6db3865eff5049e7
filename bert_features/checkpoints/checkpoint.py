"""Checkpoint: what is known of a checkpoint before its weights are read."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from bert_features.checkpoints.modules.multi_vector import MultiVectorSettings
from bert_features.checkpoints.modules.sentence_transformers import SentenceTransformersSettings
from bert_features.checkpoints.weights.file_names import SAVED_MODEL, SPARSE_LINEAR, STATE_FILE
from bert_features.checkpoints.weights.weight_names import Kind
from bert_features.checkpoints.weights.weight_readers import WeightFiles
from bert_features.config.bert_config import BertConfig, Family
from bert_features.config.poolings import OWN, DenseModule, SparsePooling
from bert_features.files import Role
from bert_features.text import tokenizer_settings


@dataclass(frozen=True, repr=False)
class Checkpoint:
    """A checkpoint on disk; no weight has been read.

    Attributes:
      name: what the user asked for.
      weights: the files of the weights.
      family: the family whose conventions the config follows: `google` or `huggingface`.
      vocab_file: the vocabulary beside the weights, or the one asked for; None if there is none.
      do_lower_case: whether texts are lower-cased; None if the checkpoint does not show it.
      casing_evidence: what shows it.
      expected_sha256: SHA-256 that the file of the weights must have; None if unknown.
      sentence_transformers: pooling, length and prompts of a folder that sentence-transformers
        wrote; None for others.
      config_file: the config beside the weights, or the one asked for; None if there is none.
      multi_vector: how it makes a vector of each token for late interaction; None if it was not
        trained for that.
      linears: the linear layers of bge-m3, with the file of each.
    """

    name: str
    weights: WeightFiles
    family: Family
    config: BertConfig
    vocab_file: Path | None
    do_lower_case: bool | None
    casing_evidence: str = ""
    expected_sha256: str | None = None
    sentence_transformers: SentenceTransformersSettings | None = None
    config_file: Path | None = None
    multi_vector: MultiVectorSettings | None = None
    linears: Mapping[DenseModule, Path] = field(default_factory=dict, hash=False)

    @property
    def weights_path(self) -> Path:
        """The path of the weights, see `WeightFiles`."""
        return self.weights.path

    @property
    def kind(self) -> Kind:
        """How the weights are stored: `tf1`, `tf2` or `safetensors`."""
        return self.weights.kind

    @property
    def sparse(self) -> SparsePooling | None:
        """How it makes sparse vectors; None if its files do not say."""
        settings = self.sentence_transformers
        if settings is not None and settings.sparse is not None:
            return settings.sparse
        linear = next((each for each in self.linears if each.path == SPARSE_LINEAR), None)
        return None if linear is None else SparsePooling(OWN, linear=linear)

    @property
    def dense(self) -> Mapping[DenseModule, Path]:
        """The file of the weights of each Dense module."""
        return dict(self.linears) | {
            module: path
            for settings in (self.sentence_transformers, self.multi_vector)
            if settings is not None
            for module, path in settings.dense.items()
        }

    @property
    def tables(self) -> Mapping[DenseModule, np.ndarray]:
        """The weights of each of these modules that were read with the settings, float32 [V]."""
        return {} if self.sentence_transformers is None else self.sentence_transformers.tables

    def files(self) -> list[Role]:
        """The files that hold the checkpoint, each with its part.

        Raises CheckpointError if the folder or the index of shards cannot be read.
        """
        roles: list[Role] = [("the checkpoint's weights", path) for path in self.weights.files()]
        if self.config_file is not None:
            roles.append(("the checkpoint's config", self.config_file))
        if self.vocab_file is not None:
            roles.append(("the vocabulary", self.vocab_file))
        root = self.weights.root
        names = (STATE_FILE, SAVED_MODEL, *tokenizer_settings.NAMES, tokenizer_settings.TOKENIZER)
        others = [root / name for name in names if (root / name).exists()]
        if self.sentence_transformers is not None:
            others += self.sentence_transformers.files
        if self.multi_vector is not None:
            others += self.multi_vector.files
        others += self.linears.values()
        return roles + [(f"the checkpoint's {path.name}", path) for path in others]

    def __repr__(self) -> str:
        config = self.config
        casing = {True: "uncased", False: "cased", None: "of unknown casing"}[self.do_lower_case]
        return (
            f"<Checkpoint {self.name}: {self.weights.format}, {config.num_hidden_layers} layers, "
            f"width {config.hidden_size}, vocabulary {config.vocab_size:,}, {casing}, "
            f"{self.weights_path}>"
        )


def named_files(
    checkpoint: str | Path, config_file: str | Path | None, vocab_file: str | Path | None
) -> list[Role]:
    """The files of a checkpoint that a user names, each with its part."""
    named: list[tuple[str, str | Path | None]] = [
        ("the checkpoint", checkpoint),
        ("the checkpoint's config", config_file),
        ("the vocabulary", vocab_file),
    ]
    return [(role, path) for role, path in named if path is not None]
