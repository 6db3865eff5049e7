"""The checkpoints that google-research/bert publishes: names, aliases, repositories.

The names are those of the archives in its README.md and multilingual.md. The repositories of the
Hugging Face Hub have the same weights.
"""

from dataclasses import dataclass
from typing import Literal

from bert_features.config.bert_config import BertConfig
from bert_features.config.settings import did_you_mean
from bert_features.errors import CheckpointError

Casing = Literal["uncased", "cased"]

SOURCE = "https://storage.googleapis.com/bert_models"

# Number of lines of each published vocab.txt.
_ENGLISH_UNCASED = 30_522
_ENGLISH_CASED = 28_996


@dataclass(frozen=True)
class Published:
    """One published checkpoint.

    Attributes:
      name: name of its archive. Where two archives have the same name, one is longer here.
      url: address of the archive.
      repository: the repository of the Hugging Face Hub that has its weights.
      config: its architecture, the same as in its archive's `bert_config.json`.
      casing: `uncased` if text must be lower-cased.
    """

    name: str
    url: str
    repository: str
    config: BertConfig
    casing: Casing


def _row(
    date: str,
    family: str,
    shape: tuple[int, int, int],
    vocab_size: int,
    casing: Casing,
    repository: str,
    name: str = "",
) -> Published:
    """The row of an archive; L, H and A in its name are those of `shape`."""
    layers, hidden, heads = shape
    archive = f"{family}_L-{layers}_H-{hidden}_A-{heads}"
    config = BertConfig(
        vocab_size=vocab_size,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * hidden,
    )
    return Published(name or archive, f"{SOURCE}/{date}/{archive}.zip", repository, config, casing)


_BASE = (12, 768, 12)
_LARGE = (24, 1024, 16)
_SMALL_LAYERS = (2, 4, 6, 8, 10, 12)
_SMALL_HIDDEN = (128, 256, 512, 768)

# The release of March 2020 has a retrained BERT-Base with the same archive name as the one of 2018.
# The bare name stays with the original, as everywhere else.
BASE_OF_2020 = "uncased_L-12_H-768_A-12_2020_02_20"


def _small(layers: int, hidden: int) -> Published:
    """One of the 24 smaller models; their heads are 64 wide."""
    name = BASE_OF_2020 if (layers, hidden) == (12, 768) else ""
    heads = hidden // 64
    repository = f"google/bert_uncased_L-{layers}_H-{hidden}_A-{heads}"
    shape = (layers, hidden, heads)
    return _row("2020_02_20", "uncased", shape, _ENGLISH_UNCASED, "uncased", repository, name)


_WORDS = "whole-word-masking"
_FIRST: tuple[tuple[str, str, tuple[int, int, int], int, Casing, str], ...] = (
    ("2018_10_18", "uncased", _BASE, _ENGLISH_UNCASED, "uncased", "base-uncased"),
    ("2018_10_18", "cased", _BASE, _ENGLISH_CASED, "cased", "base-cased"),
    ("2018_10_18", "uncased", _LARGE, _ENGLISH_UNCASED, "uncased", "large-uncased"),
    ("2018_10_18", "cased", _LARGE, _ENGLISH_CASED, "cased", "large-cased"),
    ("2019_05_30", "wwm_uncased", _LARGE, _ENGLISH_UNCASED, "uncased", f"large-uncased-{_WORDS}"),
    ("2019_05_30", "wwm_cased", _LARGE, _ENGLISH_CASED, "cased", f"large-cased-{_WORDS}"),
    ("2018_11_23", "multi_cased", _BASE, 119_547, "cased", "base-multilingual-cased"),
    ("2018_11_03", "multilingual", _BASE, 105_879, "uncased", "base-multilingual-uncased"),
    ("2018_11_03", "chinese", _BASE, 21_128, "uncased", "base-chinese"),
)
_ROWS = (
    *(_small(layers, hidden) for layers in _SMALL_LAYERS for hidden in _SMALL_HIDDEN),
    *(
        _row(date, family, shape, vocab_size, casing, f"google-bert/bert-{repository}")
        for date, family, shape, vocab_size, casing, repository in _FIRST
    ),
)

PUBLISHED: dict[str, Published] = {row.name: row for row in _ROWS}

# Names in common use: those of Hugging Face without their organisation, and a few of Google's.
ALIASES: dict[str, str] = {
    **{row.repository.removeprefix("google-bert/"): row.name for row in _ROWS[24:]},
    "bert-tiny": "uncased_L-2_H-128_A-2",
    "bert-mini": "uncased_L-4_H-256_A-4",
    "bert-small": "uncased_L-4_H-512_A-8",
    "bert-medium": "uncased_L-8_H-512_A-8",
    "bert-base": "uncased_L-12_H-768_A-12",
    "bert-large": "uncased_L-24_H-1024_A-16",
}

_NAMES = {name.lower(): name for name in PUBLISHED} | {
    alias.lower(): name for alias, name in ALIASES.items()
}


def resolve(name: str) -> Published | None:
    """The published checkpoint with this name or alias; case is ignored. None if unknown."""
    key = _NAMES.get(name.lower())
    return None if key is None else PUBLISHED[key]


def find_published(name: str) -> Published:
    """Like `resolve`, but raises CheckpointError for an unknown name, with similar ones."""
    row = resolve(name)
    if row is None:
        known = {one.lower(): one for one in (*PUBLISHED, *ALIASES)}
        raise CheckpointError(
            f"Google has published no checkpoint named {name!r}; "
            f"{did_you_mean(name.lower(), known)}allowed: {', '.join(ALIASES)}, or the name of an "
            "archive of google-research/bert, such as uncased_L-2_H-128_A-2"
        )
    return row
