"""Sentences of texts as spans, by sentencex, which has rules for many languages and no model."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from bert_features.errors import MissingExtraError
from bert_features.readers.input_example import InputExample, Span

SENTENCES = "sentences"


def chunks_of(rule: str | None) -> tuple[int, int] | None:
    """The tokens of a chunk and what two share, of the setting `spans`; None for another rule."""
    if rule is None or rule.startswith(SENTENCES):
        return None
    size, _, shared = rule.partition("/")
    return int(size), int(shared or 0)


def check_installed() -> Any:
    """Imports sentencex; raises MissingExtraError."""
    try:
        import sentencex
    except ImportError as error:
        raise MissingExtraError("sentencex, which finds sentences,", "sentences") from error
    return sentencex


def with_sentences(
    examples: Callable[[], Iterable[InputExample]], rule: str
) -> Iterator[InputExample]:
    """Examples with their sentences as spans, unless they have spans: `sentences`, or with `:LANG`.

    The blanks around a sentence do not belong to it. Raises MissingExtraError.
    """
    split = check_installed().get_sentence_boundaries
    language = rule.partition(":")[2] or "en"
    for example in examples():
        if example.spans is None:
            texts = (example.text_a[example.prompt :], example.text_b or "")
            spans = [
                _stripped(sentence["text"], sentence["start_index"], kind)
                for kind, text in enumerate(texts)
                for sentence in split(language, text)
                if not sentence["text"].isspace()
            ]
            example = replace(example, spans=tuple(spans))
        yield example


def _stripped(text: str, begin: int, kind: int) -> Span:
    begin += len(text) - len(text.lstrip())
    return Span(begin, begin + len(text.strip()), "", kind)
