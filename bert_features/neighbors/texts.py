"""The texts of neighbors: looked up by their ids in the inputs of the extraction."""

import contextlib
from collections.abc import Collection, Iterator, Sequence

from bert_features.config.extract_config import ExtractConfig
from bert_features.files import is_url
from bert_features.formats.reader import FeatureFile
from bert_features.readers import registry
from bert_features.readers.examples import source_of
from bert_features.readers.ids import Ids
from bert_features.readers.input_example import InputExample
from bert_features.readers.opening import check_file


def check_inputs(paths: Sequence[str]) -> None:
    """Refuses inputs that cannot be opened, but no address: see `find_texts`. Raises InputError."""
    for path in paths:
        if not is_url(path):
            check_file(path)


def find_texts(
    file: FeatureFile, paths: Sequence[str], wanted: Collection[int | str]
) -> dict[int | str, str]:
    """The texts of some ids; an id that no input has is left out.

    The inputs are those of the extraction, in their order. They are read one example at a time,
    with the settings that the features file records. Raises InputError if one cannot be read,
    ConfigError if a setting has no meaning for it.
    """
    missing = set(wanted)
    found: dict[int | str, str] = {}
    with contextlib.closing(_read(file, paths)) as examples:  # type: ignore[type-var]
        for example in examples:
            if example.unique_id in missing:
                missing.remove(example.unique_id)
                found[example.unique_id] = _text_of(example)
            if not missing:
                break
    return found


def _read(file: FeatureFile, paths: Sequence[str]) -> Iterator[InputExample]:
    recorded = file.metadata.get("config", {})
    names = {*ExtractConfig.names("source")} - {"shard"}
    settings = ExtractConfig(
        **{name: value for name, value in recorded.items() if name in names and value is not None}
    )
    sources = [
        source_of(path, settings.input_settings(), settings.encoding_errors) for path in paths
    ]
    with contextlib.closing(Ids(sources[0])) as ids:
        for source in sources:
            yield from registry.read(source, ids)


def _text_of(example: InputExample) -> str:
    return " ||| ".join(text for text in (example.text_a, example.text_b) if text is not None)
