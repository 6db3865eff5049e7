"""`nearest`: the sentences, words or tokens of a features file that are nearest to a query.

And the texts of neighbors, looked up by their ids in the inputs of the extraction.
"""

import contextlib
import logging
from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np

from bert_features.config.extract_config import ExtractConfig
from bert_features.config.kinds import KINDS
from bert_features.config.settings import INPUT
from bert_features.errors import ConfigError, InputError
from bert_features.files import is_url
from bert_features.files.checksums import as_hex
from bert_features.formats import read_features
from bert_features.formats.reader import FeatureFile
from bert_features.formats.records import Feature
from bert_features.formats.small_vectors import restore
from bert_features.neighbors.queries import Options
from bert_features.neighbors.searchers import SEARCHERS
from bert_features.readers import registry
from bert_features.readers.examples import source_of_input
from bert_features.readers.ids import Ids
from bert_features.readers.input_example import InputExample
from bert_features.readers.opening import check_file

logger = logging.getLogger("bert_features")

_IDS_AT_A_TIME = 1 << 14


def nearest(
    features: str | Path | FeatureFile,
    queries: str | Sequence[str] | np.ndarray,
    *,
    feature: str | None = None,
    token: str | None = None,
    top: int = 10,
    similarity: Literal["cosine", "dot"] | None = None,
    prompt: str | None = None,
    checkpoint: str | None = None,
    config_file: str | None = None,
    vocab_file: str | None = None,
) -> Any:
    """The vectors of a features file that are nearest to queries.

    The search is exact and its memory bounded, but for four bytes of each vector that an open file
    keeps for the next search. Bits count as -1 and 1.

    A text becomes a vector as the texts of the file did: with the checkpoint and the settings that
    the file records. The model of the last call stays loaded. Zero vectors and vectors that are not
    finite are left out, which a warning counts. For late interaction (kind `multi_vector`) texts
    are ranked by MaxSim, as the checkpoint's files say.

    Args:
      features: a features file or folder: its path or address, or opened by `read_features`.
      queries: a text or several; or vectors, [D] or [Q, D], for which no checkpoint is needed. For
        late interaction the vectors of a query are [Q, D], of several [N, Q, D].
      feature: name of the feature to search; not needed if there is only one.
      token: for a feature of words or tokens the word of the query that is meant: the first such
        word, and of its pieces the mean. Not needed if the query is a single word. For a feature of
        spans a part of the query, by default the whole.
      top: number of neighbors of each query.
      similarity: `cosine`, the default, or `dot` for the plain product, which sparse vectors have.
        Not for late interaction.
      prompt: for features of whole texts a prompt of the checkpoint, by its name, or a text to put
        before each query; by default the prompt `query`, if the checkpoint has it, else what the
        texts of the file had.
      checkpoint: the checkpoint for the queries, if it is not where the file says. It must give the
        same vectors; those of a model of queries alone are passed as vectors.
      config_file: the config of that checkpoint, if not beside the weights.
      vocab_file: its vocabulary, if not beside the weights.

    Returns:
      A list of `Neighbor`, the nearest first and equal ones in the order of the file; for several
      queries a list of such lists.

    Raises:
      ConfigError: an argument is wrong, or does not fit the features.
      OutputError: the file cannot be read, does not record its settings, or they or the checkpoint
        give other vectors than the file has.
      CheckpointError: the checkpoint is not usable.
    """
    file = features if isinstance(features, FeatureFile) else read_features(features)
    chosen = choose_feature(file, feature)
    named = {"checkpoint": checkpoint, "config_file": config_file, "vocab_file": vocab_file}
    options = Options(token, top, similarity, prompt, named)
    searcher = SEARCHERS[KINDS[chosen.kind].search](file, chosen, options)
    if isinstance(queries, str | Sequence):
        asked, single = searcher.of_texts(_check_texts(queries)), isinstance(queries, str)
    else:
        asked, single = searcher.of_vectors(queries)
    neighbors = searcher.describe(asked, searcher.find(asked))
    return neighbors[0] if single else neighbors


def choose_feature(file: FeatureFile, name: str | None) -> Feature:
    """The feature of a name, or the only one; raises ConfigError if there is none, or several."""
    if any(feature.level == "row" for feature in file.features):
        raise ConfigError(f"{file.path} has shuffled rows; search the file that they came from")
    names = ", ".join(repr(feature.name) for feature in file.features)
    if name is None and len(file.features) > 1:
        first = file.features[0].name
        raise ConfigError(f"{file.path} has features {names}; pass one, as feature={first!r}")
    chosen = next((each for each in file.features if name in (None, each.name)), None)
    if chosen is None:
        raise ConfigError(f"feature is {name!r}; allowed in {file.path}: {names}")
    if not KINDS[chosen.kind].search:
        raise ConfigError(
            f"{chosen.name} has kind '{chosen.kind}', which has no neighbors; name a feature of "
            "vectors"
        )
    return chosen


def vectors_of_ids(
    file: FeatureFile, ids: Sequence[int | str], feature: str | None = None
) -> np.ndarray:
    """The vectors of texts of a features file, floats [ids, D]; ids that are integers may be str.

    Raises ConfigError if an id is not in the file, or the feature is not known or not of whole
    texts; OutputError if the file is damaged.
    """
    chosen = choose_feature(file, feature)
    if not chosen.is_sequence:
        raise ConfigError(
            f"an id names a text, but {chosen.name} has no single vector for a text; its level is "
            f"'{chosen.level}': pass a query text"
        )
    places = _places_of(set(map(str, ids)), file.ids)
    for name in map(str, ids):
        if name not in places:
            raise ConfigError(f"the id {name!r} is not in {file.path}; its .ids lists them")
    rows = [file[places[str(name)]].features[chosen.name] for name in ids]
    return restore(np.stack(rows), chosen)


def _places_of(names: Collection[str], ids: np.ndarray) -> dict[str, int]:
    """The number of the record of each wanted id that there is."""
    # In parts: as Python objects all ids of a large folder take more memory than its search.
    return {
        name: place
        for start in range(0, len(ids), _IDS_AT_A_TIME)
        for place, name in enumerate(map(str, ids[start : start + _IDS_AT_A_TIME].tolist()), start)
        if name in names
    }


def _check_texts(queries: str | Sequence[str]) -> list[str]:
    texts = [queries] if isinstance(queries, str) else list(queries)
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise ConfigError(
                f"queries[{number}] is of type {type(text).__name__}; allowed: texts, or a NumPy "
                "array of vectors"
            )
    if not texts:
        raise ConfigError("queries is empty; pass a text, several, or vectors")
    return texts


def check_inputs(paths: Sequence[str]) -> None:
    """Refuses inputs that cannot be opened, but no address: see `find_texts`. Raises InputError."""
    for path in paths:
        if not is_url(path):
            check_file(path)


def find_texts(
    file: FeatureFile, paths: Sequence[str], ids: Collection[int | str]
) -> dict[int | str, str]:
    """The texts of some ids.

    The inputs must be the inputs of the extraction, in order. They are read one example at a time,
    with the settings that the features file records. Raises InputError if one cannot be read, or
    the texts are others; ConfigError if a setting has no meaning for it.
    """
    texts: dict[int | str, str] = {}
    parts, named = file.texts(), ", ".join(paths)
    is_share = file.metadata.get("recipe", {}).get("settings", {}).get("shard") is not None
    share = set(file.ids.tolist()) if is_share else None
    with contextlib.closing(_read(file, paths)) as read:  # type: ignore[type-var]
        examples = (each for each in read if share is None or each.unique_id in share)
        same = True
        for records, crc32c in parts:
            count = crc = 0
            for example in islice(examples, records):
                count, crc = count + 1, example.checksum(crc)
                if example.unique_id in ids:
                    both = (example.text_a, example.text_b)
                    texts[example.unique_id] = " ||| ".join(t for t in both if t is not None)
            same &= count == records and crc32c in (None, as_hex(crc))
        # Other ids may belong to the same texts.
        if not same or next(examples, None) is not None or not texts.keys() >= set(ids):
            raise InputError(
                f"{named}: these are not the texts that {file.path} was made from; pass all inputs "
                "of the extraction, in their order"
            )
    if any(crc32c is None for _, crc32c in parts):
        unchecked = "%s has no checksum of its texts: only their number was compared with %s"
        logger.warning(unchecked, file.path, named)
    return texts


def _read(file: FeatureFile, paths: Sequence[str]) -> Iterator[InputExample]:
    recorded = file.metadata.get("recipe", {}).get("settings", {})
    names = {*ExtractConfig.names(group=INPUT)} - {
        *("shard", "segment", "label_field", "span_field", "spans")
    }
    settings = ExtractConfig.of({n: v for n, v in recorded.items() if n in names})
    sources = [source_of_input(settings, path) for path in paths]
    with contextlib.closing(Ids(sources[0])) as ids:
        for source in sources:
            yield from registry.read(source, ids)
