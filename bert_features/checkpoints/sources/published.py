"""The checkpoints that google-research/bert publishes: names, aliases, addresses.

The addresses are those of its README.md and multilingual.md. Every archive is a zip of
`vocab.txt`, `bert_config.json` and the TF1 checkpoint `bert_model.ckpt`.
"""

from dataclasses import dataclass
from typing import Literal

from bert_features.checkpoints.weights.weight_names import parameter_count
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
      name: name of its archive, and of its folder in the cache. Where two archives have the same
        name, one is longer here.
      path: path of the archive below `SOURCE`.
      config: its architecture, the same as in its archive's `bert_config.json`.
      casing: `uncased` if text must be lower-cased.
      note: a remark for users who choose a checkpoint.
    """

    name: str
    path: str
    config: BertConfig
    casing: Casing
    note: str

    @property
    def parameters(self) -> int:
        """Number of parameters of the encoder and its pooler."""
        return parameter_count(self.config)

    @property
    def max_bytes(self) -> int:
        """Limit of the size of its archive and of the unpacked files, to refuse anything else.

        Four times its float32 weights, in case an optimizer's are included, and 64 MiB.
        """
        return 4 * (4 * self.parameters) + (64 << 20)


def _row(
    date: str,
    family: str,
    shape: tuple[int, int, int],
    vocab_size: int,
    casing: Casing,
    note: str = "",
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
    return Published(name or archive, f"{date}/{archive}.zip", config, casing, note)


_BASE = (12, 768, 12)
_LARGE = (24, 1024, 16)
_SMALL_LAYERS = (2, 4, 6, 8, 10, 12)
_SMALL_HIDDEN = (128, 256, 512, 768)

# The release of March 2020 has a retrained BERT-Base with the same archive name as the one of 2018.
# The bare name stays with the original, as everywhere else.
BASE_OF_2020 = "uncased_L-12_H-768_A-12_2020_02_20"


def _small(layers: int, hidden: int) -> Published:
    """One of the 24 smaller models; their heads are 64 wide."""
    note = name = ""
    if (layers, hidden) == (12, 768):
        name = BASE_OF_2020
        note = "BERT-Base retrained for the release of March 2020; not the one of the paper"
    shape = (layers, hidden, hidden // 64)
    return _row("2020_02_20", "uncased", shape, _ENGLISH_UNCASED, "uncased", note, name)


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
        "102 languages; not recommended, multi_cased_L-12_H-768_A-12 is better",
    ),
    _row("2018_11_03", "chinese", _BASE, 21_128, "uncased", "Chinese, by characters"),
)

PUBLISHED: dict[str, Published] = {row.name: row for row in _ROWS}

# Names in common use; each stands for Google's TensorFlow weights. A name with a slash is never
# among them: it is a Hugging Face repository.
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
            f"{did_you_mean(name.lower(), known)}`bert-features download --list` shows them all"
        )
    return row


def aliases_of(name: str) -> list[str]:
    """The aliases of a published name."""
    return [alias for alias, target in ALIASES.items() if target == name]
