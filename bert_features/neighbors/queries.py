"""The vectors of queries: texts through the checkpoint and settings of a features file."""

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_features.checkpoints.checkpoint import Checkpoint
from bert_features.checkpoints.find import find_without_tensorflow
from bert_features.config.extract_config import ExtractConfig
from bert_features.config.levels import LEVELS
from bert_features.errors import CheckpointError, ConfigError, OutputError
from bert_features.formats.canaries import AGREEMENT, compare_recipes
from bert_features.formats.reader import FeatureFile
from bert_features.formats.records import Feature, FeatureRecord
from bert_features.machine.quiet_tensorflow import import_tensorflow
from bert_features.text.vocabulary import CLS, SEP

if TYPE_CHECKING:
    from bert_features.extraction.extractor import FeatureExtractor

# What begins a piece that continues a word.
_CONTINUES = "##"
# By settings the files and the extractor of the last call, and by name those that compute a single
# output of it. Not more than one checkpoint: BERT-large takes 1.3 GB.
_loaded: "dict[ExtractConfig, tuple[list[Any] | None, dict[str | None, FeatureExtractor]]]" = {}


@dataclass(frozen=True)
class Options:
    """Arguments of `nearest`; `named` has those that choose the checkpoint."""

    token: str | None
    top: int
    similarity: str | None
    prompt: str | None
    named: dict[str, str | None]


def check_words(feature: Feature, texts: Sequence[str], token: str | None) -> list[str | None]:
    """The word that each query is about; None where the query is a whole text.

    Raises ConfigError if a word is named for a feature of texts, or none for one of words or
    tokens. Of spans a query is a whole text, unless a part of it is named.
    """
    if feature.level == "span":
        return [token] * len(texts)
    if feature.is_sequence:
        if token is not None:
            raise ConfigError(
                f"token is {token!r}, but each vector of {feature.name} is of a whole text; leave "
                "token out"
            )
        return [None] * len(texts)
    for text in texts:
        if token is None and len(text.split()) != 1:
            raise ConfigError(
                f"{feature.name} has a vector for each {feature.level}, and the query {text!r} is "
                "not a single word; pass token, a word of the query"
            )
    return [token or text.strip() for text in texts]


def embed(
    file: FeatureFile, feature: Feature, texts: Sequence[str], options: Options
) -> np.ndarray:
    """The vectors of texts, or of a word in each, made as the vectors of a features file were.

    Returns:
      float64 [texts, D].

    Raises:
      ConfigError: the words do not fit the feature, or a text lacks its word.
      OutputError: the file does not record its settings, or they or the checkpoint give other
        features.
      CheckpointError: the checkpoint is not usable.
    """
    is_whole = LEVELS[feature.level].is_text
    words = check_words(feature, texts, options.token)
    if options.prompt is not None and not is_whole:
        raise ConfigError(
            f"prompt is for features of whole texts, and {feature.name} has a vector for each "
            f"{feature.level}; leave prompt out"
        )
    extractor = load_extractor(file, feature, options)
    if is_whole:
        extractor = extractor.of_queries(feature.name)
        before = prompt_of_queries(extractor, options)
        if feature.is_sequence:
            vectors = extractor.encode(list(texts), feature.name, prompt=before)
            return np.asarray(vectors, np.float64)
        spans = [[_span_of(*pair)] for pair in zip(texts, words, strict=True)]
        rows = extractor.encode(list(texts), feature.name, prompt=before, spans=spans, ragged=True)
        return np.asarray(rows.values, np.float64)
    records = extractor(list(texts))
    vector = {"word": _word_vector, "token": _token_vector}[feature.level]
    pairs = zip(records, words, strict=True)
    return np.array([vector(record, feature.name, str(word), extractor) for record, word in pairs])


def prompt_of_queries(extractor: "FeatureExtractor", options: Options) -> str | None:
    """The prompt of queries: a name or a text, or the checkpoint's own for them."""
    prompts = extractor.preparation.prompts
    return prompts.of_queries() if options.prompt is None else prompts.choose(options.prompt)


def load_extractor(file: FeatureFile, feature: Feature, options: Options) -> "FeatureExtractor":
    """The extractor that makes the features of a file again; errors as `embed`."""
    chosen = options.named["checkpoint"] is not None
    config = file.recipe.for_queries(options.named)
    with _named_in(file, chosen=chosen):
        checkpoint = find_without_tensorflow(config.checkpoint, **config.checkpoint_options())
        stamps = _stamps(checkpoint)
    import_tensorflow()
    from bert_features.extraction.extractor import FeatureExtractor

    before, extractors = _loaded.pop(config, (None, {}))
    _loaded.clear()
    if stamps is None or stamps != before:
        with _named_in(file, chosen=chosen):
            extractors = {None: FeatureExtractor(config, checkpoint=checkpoint)}
    if feature.name not in extractors:
        whole = extractors[None]
        extractors[feature.name] = whole.with_outputs([feature.name], same_rows=True)
    _loaded[config] = stamps, extractors
    _check_same(file, feature, extractors[feature.name])
    return extractors[feature.name]


@contextlib.contextmanager
def _named_in(file: FeatureFile, *, chosen: bool) -> Iterator[None]:
    """Adds to an error of the checkpoint that the file records it, unless the user chose it."""
    try:
        yield
    except CheckpointError as error:
        if chosen:
            raise
        raise CheckpointError(
            f"the checkpoint that {file.path} was made with is not usable here; pass checkpoint to "
            f"say where it is ({error})"
        ) from error


def _stamps(checkpoint: Checkpoint | None) -> list[Any] | None:
    """What tells whether its files are as they were; None for those that only TensorFlow reads."""
    if checkpoint is None:
        return None
    stats = [Path(str(path)).stat() for _, path in checkpoint.files()]
    return [checkpoint, *((each.st_ino, each.st_size, each.st_mtime_ns) for each in stats)]


def _check_same(file: FeatureFile, feature: Feature, extractor: "FeatureExtractor") -> None:
    """Refuses an extractor whose vectors cannot be compared with those of the file.

    Other weights whose canaries agree are taken.
    """
    (compared,) = compare_recipes(file.recipe, extractor.recipe, feature.name)
    if not (compared.may_be_compared or all(d.endswith(AGREEMENT) for d in compared.differences)):
        raise OutputError(
            f"the settings that {file.path} records do not give its feature {feature.name!r} with "
            f"the checkpoint {extractor.checkpoint.name} here ({'; '.join(compared.differences)}); "
            "pass checkpoint, the one that it was made with"
        )


def _span_of(text: str, part: str | None) -> tuple[int, int]:
    """The first place of a part in a text, or the whole text."""
    if part is None:
        return 0, len(text)
    match = re.search(re.escape(part), text) or re.search(re.escape(part), text, re.IGNORECASE)
    if match is None:
        raise _no_such_word(part, text.split())
    return match.span()


def _word_vector(
    record: FeatureRecord, name: str, word: str, extractor: "FeatureExtractor"
) -> np.ndarray:
    """The vector of the first occurrence of a word, float64 [D]."""
    words = record.words or ()
    for exact in (True, False):
        for position, each in enumerate(words):
            if each == word or (not exact and each.casefold() == word.casefold()):
                return np.asarray(record.features[name][position], np.float64)
    raise _no_such_word(word, words)


def _token_vector(
    record: FeatureRecord, name: str, word: str, extractor: "FeatureExtractor"
) -> np.ndarray:
    """The mean of the pieces of the first occurrence of a word, float64 [D]."""
    tokens, tokenizer = record.tokens or (), extractor.tokenizer
    is_bert = tokenizer.splits_words
    # BPE has other pieces of a word behind a blank.
    forms = (word,) if is_bert else (word, f" {word}")
    for pieces in (tuple(tokenizer.tokenize(form)) for form in forms):
        for start in range(len(tokens) - len(pieces) + 1):
            end = start + len(pieces)
            continued = end < len(tokens) and _continues(tokens[end], is_bert=is_bert)
            if tokens[start:end] == pieces != () and not continued:
                vectors = record.features[name][start:end]
                return np.asarray(np.asarray(vectors, np.float64).mean(axis=0))
    raise _no_such_word(word, _whole_words(tokens) if is_bert else tokens[1:-1])


def _continues(token: str, *, is_bert: bool) -> bool:
    """Whether a piece is more of a word; SentencePiece writes a blank as ▁, byte-level BPE as Ġ."""
    if is_bert:
        return token.startswith(_CONTINUES)
    return token[:1].isalnum() and not token.startswith("Ġ")


def _whole_words(tokens: Sequence[str]) -> list[str]:
    """The words of a text, from its pieces with [CLS] and [SEP]."""
    words: list[str] = []
    for token in tokens:
        if token.startswith(_CONTINUES) and words:
            words[-1] += token.removeprefix(_CONTINUES)
        elif token not in (CLS, SEP):
            words.append(token)
    return words


def _no_such_word(word: str, words: Sequence[str]) -> ConfigError:
    words = " ".join(words) or "no words"
    return ConfigError(
        f"token is {word!r}, which is not in the query; pass one of its words: {words}"
    )
