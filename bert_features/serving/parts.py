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
from bert_features.readers.examples import examples_of_texts
from bert_features.readers.input_example import Span
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
      start: the number of the first text.
      encoded: the texts as JSON.
      spans: the spans of each text as JSON, or empty.
    """

    kind: str
    start: int
    encoded: tuple[bytes, ...]
    spans: tuple[bytes, ...] = ()

    def body(self, outputs: Sequence[str], **settings: Any) -> bytes:
        """The body of the request, with these settings beside the outputs unless they are None."""
        passed = {name: value for name, value in settings.items() if value is not None}
        rest = json.dumps({"outputs": list(outputs), **passed}).encode()
        lists = {self.kind: self.encoded} | ({"spans": self.spans} if self.spans else {})
        columns = (b'"%s": [%s], ' % (k.encode(), b", ".join(v)) for k, v in lists.items())
        return b"{%s%s" % (b"".join(columns), rest[1:])

    def renumbered(self, error: ServiceError) -> ServiceError:
        """An error of the service that names the texts as the caller counts them."""
        place = rf"\b{self.kind}\[(\d+)\]"
        message = re.sub(place, lambda match: f"texts[{self.start + int(match[1])}]", str(error))
        renumbered = ServiceError(message)
        renumbered.status = error.status
        return renumbered

    def halves(self) -> tuple["RequestPart", "RequestPart"]:
        """The same texts as two requests."""
        middle = len(self.encoded) // 2
        first, second = (
            replace(self, encoded=self.encoded[half], spans=self.spans[half])
            for half in (slice(middle), slice(middle, None))
        )
        return first, replace(second, start=self.start + middle)


def kind_of(texts: Sequence[Any], *, is_tokenized: bool) -> str:
    """What the texts are: `texts`, `pairs` or `words`.

    Raises InputError if one is something else or they are of several kinds, ConfigError if
    `is_tokenized` does not fit them.
    """
    kind = "words" if is_tokenized else "pairs" if texts and type(texts[0]) is tuple else "texts"
    for number, text in enumerate(texts):
        fits, allowed = _KINDS[kind]
        if fits(text):
            continue
        if kind == "texts" and _KINDS["words"][0](text):
            raise ConfigError(
                f"texts[{number}] is a list of words; pass is_tokenized=True if all texts are"
            )
        raise InputError(
            f"texts[{number}] is {text!r:.100}; allowed: {allowed}, as the other texts; "
            "leave a missing text out, or pass ''"
        )
    return kind


def _holds_text(values: Any, *kinds: type) -> bool:
    return type(values) in kinds and all(isinstance(value, str) for value in values)


_KINDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "texts": (lambda t: isinstance(t, str), "a string"),
    "pairs": (lambda t: _holds_text(t, tuple) and len(t) == 2, "a tuple of two strings"),
    "words": (lambda t: _holds_text(t, list, tuple), "a list of words (is_tokenized is True)"),
}


def cut(
    texts: Sequence[Any],
    kind: str,
    features: Sequence[Feature],
    info: Info,
    *,
    spans: Sequence[Any] | None = None,
) -> Iterator[RequestPart]:
    """Cuts texts, and the spans of each if there are any, into requests, in order.

    Their tokens are not known here, so each character counts as one. Raises InputError if a text
    or a label is not Unicode, or if `spans` do not fit the texts.
    """
    per_text: list[tuple[Span, ...] | None] = [None] * len(texts)
    if spans is not None:  # as `FeatureExtractor.encode` reads them
        rows = map(list, texts) if kind == "words" else texts
        per_text = [example.spans for example in examples_of_texts(rows, spans=spans)]
    limits = info.limits
    largest = limits.texts, limits.body_bytes - _FRAME_BYTES, limits.tokens, limits.answer_bytes
    encoded: list[tuple[bytes, ...]] = []
    used: tuple[int, ...] = (0, 0, 0, 0)
    start = 0

    def part() -> RequestPart:
        return RequestPart(kind, start, *zip(*encoded, strict=True))

    for number, (text, some) in enumerate(zip(texts, per_text, strict=True)):
        values = {"texts": text} | ({} if some is None else {"spans": some})
        one = tuple(_encode(value, f"{name}[{number}]") for name, value in values.items())
        size = _size(text, some, sum(map(len, one)) + 2 * len(one), features, info)
        total: tuple[int, ...] = tuple(map(sum, zip(used, size, strict=True)))
        if encoded and any(a > b for a, b in zip(total, largest, strict=True)):
            yield part()
            encoded, total, start = [], size, number
        encoded.append(one)
        used = total
    if encoded:
        yield part()


def _encode(value: Any, where: str) -> bytes:
    try:
        return json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{where} has a lone surrogate, which is not Unicode; drop it") from error


def _size(
    text: Any, spans: Sequence[Span] | None, num_bytes: int, features: Sequence[Feature], info: Info
) -> tuple[int, int, int, int]:
    """What a text adds: itself, bytes of the body, tokens, bytes of the answer."""
    characters = len(text) if isinstance(text, str) else sum(map(len, text)) + len(text)
    tokens = characters + _SPECIAL_TOKENS
    kept = tokens if info.long_text == "window" else min(tokens, info.max_seq_length)
    units = {"span": kept if spans is None else len(spans)}
    answer = sum(
        f.width * ITEM_SIZES[f.dtype] * LEVELS[f.level].count(units.get(f.unit, kept))
        for f in features
    )
    return 1, num_bytes, tokens, answer
