"""Which names of a file are an encoder's: all of them begin alike, and the others are heads'.

What an encoder's names begin with, its prefix, may be anything (`bert.`, `0.auto_model.`,
`module/bert/`) or nothing. Names outside belong to heads of pre-training, of a task or a loss.
"""

import collections
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import NamedTuple

from bert_features.checkpoints import weight_names
from bert_features.checkpoints.weight_names import Kind
from bert_features.config.bert_config import BertConfig
from bert_features.errors import CheckpointError

_WORDS = "embeddings/word_embeddings"
# Part of an ELECTRA's pre-training, with the names of an encoder.
_GENERATOR = "generator/"


class StoredNames(NamedTuple):
    """The names of a file.

    Attributes:
      prefix: what the names of the encoder begin with; None if there is no name of a weight.
      weights: canonical name -> name on disk, for each weight of the encoder.
      unknown: names in the encoder's scope that no weight has.
      heads: names outside its scope.
    """

    prefix: str | None
    weights: dict[str, str]
    unknown: list[str]
    heads: list[str]


def sort_names(
    names: Collection[str], kind: Kind, path: Path, config: BertConfig | None = None
) -> StoredNames:
    """Sorts the names of a file; those of optimizers, buffers and settings fall away.

    Args:
      names: the names on disk.
      kind: how the weights are stored.
      path: the file, for messages.
      config: the encoder that is wanted; by default of any architecture and size.

    Raises:
      CheckpointError: there is more than one such encoder, or two names mean the same weight.
    """
    model_type = None if config is None else config.model_type
    found = {name: _split(name, kind, model_type) for name in names}
    prefix = _prefix(filter(None, found.values()), _required(config, len(names)), path)
    roots = _roots(kind, prefix, model_type)
    poolers = trained_poolers(names, kind)
    weights, unknown, heads = dict(poolers), list[str](), list[str]()
    trained = set(poolers.values())
    for name, split in found.items():
        canonical = split[1] if split is not None and split[0] == prefix else None
        if name in trained or canonical in poolers:
            continue
        if canonical is None:
            what = weight_names.is_ignored(name, kind)
            if what == "head" or (what is None and not name.startswith(roots)):
                heads.append(name)
            elif what is None:
                unknown.append(name)
        elif canonical in weights:
            raise CheckpointError(
                f"{path} holds {canonical} twice, as {weights[canonical]} and as {name}; keep one "
                "of them"
            )
        else:
            weights[canonical] = name
    return StoredNames(prefix, weights, unknown, heads)


def trained_poolers(names: Iterable[str], kind: Kind) -> dict[str, str]:
    """Canonical name -> name on disk, for a pooler that was trained in a next-sentence head."""
    if kind != "tf2":
        return {}
    poolers = {weight_names.next_sentence_pooler(name): name for name in names}
    return {canonical: name for canonical, name in poolers.items() if canonical is not None}


def parent_of(prefix: str) -> str:
    """What stands before the last part of a prefix: `module.` for `module.bert.`."""
    return prefix[: max(prefix.rfind(separator, 0, -1) for separator in "./") + 1]


def _split(name: str, kind: Kind, model_type: str | None) -> tuple[str, str] | None:
    if kind == "tf1" and name.startswith(_GENERATOR):
        return None
    return weight_names.split_name(name, kind, model_type)


def _required(config: BertConfig | None, count: int) -> set[str]:
    """The canonical names without which `count` names are no such encoder."""
    if config is None or config.distinct_blocks > count:
        return {_WORDS}
    return {weight.canonical for weight in weight_names.weights(config, pooler=False)}


def _prefix(found: Iterable[tuple[str, str]], required: set[str], path: Path) -> str | None:
    """The prefix under which all required weights are, or else most of the weights."""
    groups = collections.defaultdict(set)
    for prefix, canonical in found:
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


def _roots(kind: Kind, prefix: str | None, model_type: str | None) -> tuple[str, ...]:
    """How the names in the encoder's scope begin."""
    if prefix == "" and kind != "tf2":  # the objects of TF2 have no common beginnings
        separator = weight_names.SEPARATORS[kind]
        return tuple(part + separator for part in weight_names.scopes(kind, model_type))
    return (prefix or "",)
