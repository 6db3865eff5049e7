"""The checkpoints that google-research/bert publishes: names, aliases, addresses.

The addresses are those of its README.md and multilingual.md. Every archive is a zip of
`vocab.txt`, `bert_config.json` and the TF1 checkpoint `bert_model.ckpt`.
"""

import difflib
from dataclasses import dataclass
from typing import Literal

from bert_features.checkpoints.weight_names import parameter_count
from bert_features.config.bert_config import BertConfig
from bert_features.errors import CheckpointError

SOURCE = "https://storage.googleapis.com/bert_models"

# The rows of each published vocab.txt.
_ENGLISH_UNCASED = 30_522
_ENGLISH_CASED = 28_996


@dataclass(frozen=True)
class Published:
    """One published checkpoint.

    Attributes:
      name: the name of its archive, which is also its folder in the cache; longer than the
        archive's only where two archives share theirs.
      path: of the archive, below `SOURCE`.
      layers: L of its name.
      hidden: H of its name.
      heads: A of its name.
      vocab_size: rows of its vocabulary.
      casing: whether its texts are lower-cased.
      note: what one should know before choosing it.
    """

    name: str
    path: str
    layers: int
    hidden: int
    heads: int
    vocab_size: int
    casing: Literal["uncased", "cased"]
    note: str = ""

    @property
    def config(self) -> BertConfig:
        """Its architecture, as its archive's `bert_config.json` has it."""
        return BertConfig(
            vocab_size=self.vocab_size,
            hidden_size=self.hidden,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            intermediate_size=4 * self.hidden,
        )

    @property
    def parameters(self) -> int:
        """Numbers in the encoder and its pooler."""
        return parameter_count(self.config)

    @property
    def most_bytes(self) -> int:
        """A bound of its archive and of what is in it, for telling it from something else.

        Four times its float32 weights, as if an optimizer's were among them, and some for the rest.
        """
        return 4 * (4 * self.parameters) + (64 << 20)


def _row(
    date: str,
    family: str,
    shape: tuple[int, int, int],
    vocab_size: int,
    casing: Literal["uncased", "cased"],
    note: str = "",
) -> Published:
    layers, hidden, heads = shape
    name = f"{family}_L-{layers}_H-{hidden}_A-{heads}"
    return Published(name, f"{date}/{name}.zip", layers, hidden, heads, vocab_size, casing, note)


_BASE = (12, 768, 12)
_LARGE = (24, 1024, 16)
_SMALL_LAYERS = (2, 4, 6, 8, 10, 12)
_SMALL_HIDDEN = (128, 256, 512, 768)

# The release of March 2020 holds a BERT-Base trained anew, under the archive name of the one of
# 2018. The bare name stays with the original, as in the rest of the world.
BASE_OF_2020 = "uncased_L-12_H-768_A-12_2020_02_20"


def _small(layers: int, hidden: int) -> Published:
    """One of the 24 smaller models; each head of theirs is 64 wide."""
    row = _row("2020_02_20", "uncased", (layers, hidden, hidden // 64), _ENGLISH_UNCASED, "uncased")
    if (layers, hidden) != (12, 768):
        return row
    note = "BERT-Base trained anew for the release of March 2020; not the one of the paper"
    return Published(
        BASE_OF_2020, row.path, *_BASE, vocab_size=_ENGLISH_UNCASED, casing="uncased", note=note
    )


_ROWS = (
    *(_small(layers, hidden) for layers in _SMALL_LAYERS for hidden in _SMALL_HIDDEN),
    _row("2018_10_18", "uncased", _BASE, _ENGLISH_UNCASED, "uncased"),
    _row("2018_10_18", "cased", _BASE, _ENGLISH_CASED, "cased"),
    _row("2018_10_18", "uncased", _LARGE, _ENGLISH_UNCASED, "uncased"),
    _row("2018_10_18", "cased", _LARGE, _ENGLISH_CASED, "cased"),
    _row("2019_05_30", "wwm_uncased", _LARGE, _ENGLISH_UNCASED, "uncased", "whole-word masking"),
    _row("2019_05_30", "wwm_cased", _LARGE, _ENGLISH_CASED, "cased", "whole-word masking"),
    _row("2018_11_23", "multi_cased", _BASE, 119_547, "cased", "104 languages"),
    _row(
        "2018_11_03",
        "multilingual",
        _BASE,
        105_879,
        "uncased",
        "102 languages; not recommended, multi_cased_L-12_H-768_A-12 is the better one",
    ),
    _row("2018_11_03", "chinese", _BASE, 21_128, "uncased", "Chinese, by characters"),
)

PUBLISHED: dict[str, Published] = {row.name: row for row in _ROWS}

# Names in use elsewhere; all are the TensorFlow weights of Google. None has a slash: such a name is
# a repository of Hugging Face's.
ALIASES: dict[str, str] = {
    "bert-tiny": "uncased_L-2_H-128_A-2",
    "bert-mini": "uncased_L-4_H-256_A-4",
    "bert-small": "uncased_L-4_H-512_A-8",
    "bert-medium": "uncased_L-8_H-512_A-8",
    "bert-base": "uncased_L-12_H-768_A-12",
    "bert-large": "uncased_L-24_H-1024_A-16",
    "bert-base-uncased": "uncased_L-12_H-768_A-12",
    "bert-base-cased": "cased_L-12_H-768_A-12",
    "bert-large-uncased": "uncased_L-24_H-1024_A-16",
    "bert-large-cased": "cased_L-24_H-1024_A-16",
    "bert-large-uncased-whole-word-masking": "wwm_uncased_L-24_H-1024_A-16",
    "bert-large-cased-whole-word-masking": "wwm_cased_L-24_H-1024_A-16",
    "bert-base-multilingual-cased": "multi_cased_L-12_H-768_A-12",
    "bert-base-multilingual-uncased": "multilingual_L-12_H-768_A-12",
    "bert-base-chinese": "chinese_L-12_H-768_A-12",
}

_NAMES = {name.lower(): name for name in PUBLISHED} | {
    alias.lower(): name for alias, name in ALIASES.items()
}


def resolve(name: str) -> Published | None:
    """The published checkpoint of a name or alias, in any case; None if there is none."""
    key = _NAMES.get(name.lower())
    return None if key is None else PUBLISHED[key]


def find_published(name: str) -> Published:
    """As `resolve`, for names that must be there.

    Raises:
      CheckpointError: the name is unknown; the message has those that are close to it.
    """
    row = resolve(name)
    if row is None:
        known = [*PUBLISHED, *ALIASES]
        spelling = {one.lower(): one for one in known}
        close = difflib.get_close_matches(name.lower(), spelling, n=3, cutoff=0.6)
        meant = f"did you mean {' or '.join(spelling[one] for one in close)}? " if close else ""
        raise CheckpointError(
            f"Google has published no checkpoint named {name!r}; {meant}"
            "`bert-features download --list` shows them all"
        )
    return row


def aliases_of(name: str) -> list[str]:
    """The aliases of a published name."""
    return [alias for alias, of in ALIASES.items() if of == name]
