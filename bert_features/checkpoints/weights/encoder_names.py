"""Which names of a file are the encoder's: they all begin alike, and the others are of heads.

The common prefix may be anything (`bert.`, `0.auto_model.`, `module/bert/`) or nothing.
"""

import collections
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import NamedTuple

from bert_features.checkpoints.weights import weight_names
from bert_features.checkpoints.weights.weight_names import Kind
from bert_features.config.bert_config import BertConfig
from bert_features.errors import CheckpointError


class StoredNames(NamedTuple):
    """The names of a file, without optimizer slots, buffers and settings.

    Attributes:
      prefix: what the names of the encoder begin with.
      weights: canonical name -> name on disk, for each weight of the encoder.
      unknown: names in the encoder's scope that no weight has.
      heads: names outside its scope.
    """

    prefix: str
    weights: dict[str, str]
    unknown: list[str]
    heads: list[str]


def sort_names(
    names: Collection[str], kind: Kind, path: Path, config: BertConfig | None = None
) -> StoredNames:
    """Sorts the names of the file `path` for the encoder of `config`, or one of any architecture.

    Raises CheckpointError if there are two such encoders, or two names mean the same weight.
    """
    model_type = None if config is None else config.model_type
    parts = {name: weight_names.split_name(name, kind, model_type) for name in names}
    prefix = _prefix(filter(None, parts.values()), _required(config, len(names)), path)
    roots: tuple[str, ...] = (prefix or "",)
    if prefix == "" and kind != "tf2":  # the objects of TF2 have no common beginnings
        roots = weight_names.scopes(kind, model_type)
    stored = {name: split[1] for name, split in parts.items() if split and split[0] == prefix}
    poolers = trained_poolers(names, kind)
    weights = dict(poolers)
    for name, canonical in stored.items():
        other = weights.setdefault(canonical, name)
        if other != name and canonical not in poolers:
            raise CheckpointError(
                f"{path} holds {canonical} twice, as {other} and as {name}; keep one of them"
            )
    groups: dict[str, list[str]] = collections.defaultdict(list)
    taken = {*stored, *poolers.values()}
    for name in filter(lambda name: name not in taken, parts):
        default = "unknown" if name.startswith(roots) else "head"
        groups[weight_names.is_ignored(name, kind) or default].append(name)
    return StoredNames(prefix or "", weights, groups["unknown"], groups["head"])


def trained_poolers(names: Iterable[str], kind: Kind) -> dict[str, str]:
    """Canonical name -> name on disk, for a pooler that was trained in a next-sentence head."""
    if kind != "tf2":
        return {}
    poolers = {weight_names.next_sentence_pooler(name): name for name in names}
    return {canonical: name for canonical, name in poolers.items() if canonical is not None}


def _required(config: BertConfig | None, count: int) -> set[str]:
    """The canonical names without which `count` names are no such encoder."""
    if config is None or config.distinct_blocks > count:
        return {"embeddings/word_embeddings"}
    return {weight.canonical for weight in weight_names.weights(config, pooler=False)}


def _prefix(parts: Iterable[tuple[str, str]], required: set[str], path: Path) -> str | None:
    """The prefix of all required weights, or else of most weights; None without any weight."""
    groups = collections.defaultdict(set)
    for prefix, canonical in parts:
        groups[prefix].add(canonical)
    whole = sorted(prefix for prefix, names in groups.items() if required <= names)
    if len(whole) > 1:
        listed = ", ".join(f"'{prefix}'" for prefix in whole[:4])
        raise CheckpointError(
            f"{path} holds {len(whole)} encoders, whose names begin with {listed}; save the one "
            "that you want in a file of its own"
        )
    most = sorted(groups, key=lambda prefix: (-len(groups[prefix]), prefix))
    return next(iter(whole or most), None)
