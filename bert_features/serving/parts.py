"""Texts cut into requests that stay below the limits of a service."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bert_features.config.features import ITEM_SIZES
from bert_features.config.levels import LEVELS
from bert_features.errors import ConfigError, InputError, ServiceError
from bert_features.formats.records import Feature
from bert_features.serving.messages import Info

# [CLS] and [SEP], and of a pair another [SEP].
_SPECIAL_TOKENS = 3
# For the names of the outputs and what stands around the texts.
_FRAME_BYTES = 1 << 14


@dataclass(frozen=True)
class RequestPart:
    """Some of the texts, as one request.

    Attributes:
      kind: `texts`, `pairs` or `words`.
    """

    kind: str
    start: int
    encoded: tuple[bytes, ...]

    def body(self, outputs: Sequence[str], **settings: Any) -> bytes:
        """The body of the request, with these settings beside the outputs unless they are None."""
        given = {name: value for name, value in settings.items() if value is not None}
        rest = json.dumps({"outputs": list(outputs), **given}).encode()
        return b'{"%s": [%s], %s' % (self.kind.encode(), b", ".join(self.encoded), rest[1:])

    def renumbered(self, error: ServiceError) -> ServiceError:
        """An error of the service that names the texts as the caller counts them."""
        own = rf"\b{self.kind}\[(\d+)\]"
        message = re.sub(own, lambda found: f"texts[{self.start + int(found[1])}]", str(error))
        renumbered = ServiceError(message)
        renumbered.status = error.status
        return renumbered

    def halves(self) -> tuple["RequestPart", "RequestPart"]:
        """The same texts as two requests."""
        middle = len(self.encoded) // 2
        return (
            replace(self, encoded=self.encoded[:middle]),
            replace(self, start=self.start + middle, encoded=self.encoded[middle:]),
        )


def kind_of(texts: Sequence[Any], *, is_tokenized: bool) -> str:
    """What the texts are: `texts`, `pairs` or `words`.

    Raises InputError if one is something else or they are of several kinds, ConfigError if
    `is_tokenized` does not fit them.
    """
    kind = "words" if is_tokenized else "pairs" if texts and type(texts[0]) is tuple else "texts"
    for number, text in enumerate(texts):
        if _FITS[kind](text):
            continue
        if kind == "texts" and _FITS["words"](text):
            raise ConfigError(
                f"texts[{number}] is a list of words; pass is_tokenized=True if all texts are"
            )
        raise InputError(
            f"texts[{number}] is {text!r:.100}; allowed: {_ALLOWED[kind]}, as the other texts"
        )
    return kind


def _holds_text(values: Any, *kinds: type) -> bool:
    return type(values) in kinds and all(isinstance(value, str) for value in values)


_FITS: dict[str, Callable[[Any], bool]] = {
    "texts": lambda text: isinstance(text, str),
    "pairs": lambda text: _holds_text(text, tuple) and len(text) == 2,
    "words": lambda text: _holds_text(text, list, tuple),
}
_ALLOWED = {
    "texts": "a string",
    "pairs": "a tuple of two strings",
    "words": "a list of words (is_tokenized is True)",
}


def cut(
    texts: Sequence[Any], kind: str, features: Sequence[Feature], info: Info
) -> Iterator[RequestPart]:
    """Cuts texts into requests, in order; raises InputError if one is not Unicode.

    Their tokens are not known here, so each character counts as one.
    """
    limits = info.limits
    largest = limits.texts, limits.body_bytes - _FRAME_BYTES, limits.tokens, limits.answer_bytes
    encoded: list[bytes] = []
    used: tuple[int, ...] = (0, 0, 0, 0)
    start = 0
    for number, text in enumerate(texts):
        one = _encode(text, number)
        size = _size(text, one, features, info)
        total: tuple[int, ...] = tuple(map(sum, zip(used, size, strict=True)))
        if encoded and any(a > b for a, b in zip(total, largest, strict=True)):
            yield RequestPart(kind, start, tuple(encoded))
            encoded, total, start = [], size, number
        encoded.append(one)
        used = total
    if encoded:
        yield RequestPart(kind, start, tuple(encoded))


def _encode(text: Any, number: int) -> bytes:
    try:
        return json.dumps(text, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"texts[{number}] has a lone surrogate, which is not Unicode; drop it"
        ) from error


def _size(
    text: Any, encoded: bytes, features: Sequence[Feature], info: Info
) -> tuple[int, int, int, int]:
    """What a text adds: itself, bytes of the body, tokens, bytes of the answer."""
    characters = len(text) if isinstance(text, str) else sum(map(len, text)) + len(text)
    tokens = characters + _SPECIAL_TOKENS
    kept = tokens if info.long_text == "window" else min(tokens, info.max_seq_length)
    answer = sum(
        feature.width * ITEM_SIZES[feature.dtype] * LEVELS[feature.level].count(kept)
        for feature in features
    )
    return 1, len(encoded) + 2, tokens, answer
