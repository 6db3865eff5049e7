"""Examples from a file or from texts in memory."""

from collections.abc import Iterable, Iterator, Sequence, Set
from itertools import zip_longest
from pathlib import Path
from typing import Any, TypeAlias

from bert_features.config.extract_config import ExtractConfig
from bert_features.config.input_format import FIELD_NAMES, InputFormat
from bert_features.config.settings import shown
from bert_features.errors import ConfigError, InputError
from bert_features.files import locate
from bert_features.readers import frames, registry
from bert_features.readers.input_example import InputExample
from bert_features.readers.source import Source
from bert_features.readers.spans import with_spans

Texts: TypeAlias = Iterable[str | list[str] | tuple[str, str] | InputExample]
# A table in memory, of one of many libraries that are not imported here.
Table: TypeAlias = Any


def read_examples(
    path: str | Path, input_format: InputFormat | None = None
) -> Iterator[InputExample]:
    r"""Reads the examples of a file, one at a time, in its order.

    A text file has one on each line. Its lines end at "\n"; white space around a line is not part
    of its text. A line `a ||| b` is a pair. An empty line is an example with an empty text, so that
    line numbers and ids agree. For the other formats see `InputFormat`.

    Args:
      path: a file, UTF-8 where it is text; an address such as `gs://bucket/file` or
        `s3://bucket/file`; or `-` for standard input. A file whose name ends in .gz, .bz2, .xz or
        .zst is decompressed.
      input_format: the kind of file and its fields; by default the suffix decides.

    Raises:
      ConfigError: the input format has a setting that has no meaning for this kind of file.
      InputError: the file cannot be read, is not of its format, holds bytes that are not UTF-8, or
        its ids are wrong or repeated, or its suffix is one of files without texts.
      MissingExtraError: the package that opens this kind of address is not installed.
    """
    place = path if str(path) == "-" else locate(path)  # it is opened later
    return registry.read(source_of(place, input_format))


def examples_of_texts(
    texts: Texts | Table,
    settings: InputFormat | None = None,
    *,
    with_ids: bool = True,
    spans: Sequence[Any] | None = None,
    **fields: str | None,
) -> Iterator[InputExample]:
    """One example per text, taken as it is: neither stripped nor split into pairs.

    Args:
      texts: texts; tuples of two, for pairs; lists of words; or examples, which keep their own ids;
        a single text or example is as a list of it.
        A pandas Series (whose index holds the ids), a polars Series, an Arrow or NumPy array. Or,
        if a field of texts or words is named, a table: a DataFrame of pandas or polars, a Table or
        RecordBatch of Arrow, a Hugging Face Dataset, a dict of columns.
      settings: the fields of a table that `fields` do not name.
      spans: the spans of each text, unless it is a table, see `spans.with_spans`.
      with_ids: whether texts keep their own ids, which must be unique; else they are numbered.
      **fields: the columns of a table, by the names of the settings; None is as if left out. By
        default `text_b_field` is `text_b` and `id_field` is `id`, if these exist; without ids a row
        has its number from 0. `tokens_field`, of lists of words, replaces `text_field`.

    Raises:
      ConfigError: a field is named here, but `texts` is no table; or texts and words are named.
      InputError: an entry is none of these; or a table without a field, with a missing value or
        with wrong ids.
    """
    columns = {name: field for name, field in fields.items() if field is not None}
    texts = [texts] if isinstance(texts, str | InputExample) else texts
    if frames.column_names(texts) is not None:
        columns |= {} if with_ids else {"id_field": ""}
        if spans is not None:
            raise ConfigError("spans is given with a table; pass span_field, the column of spans")
        return _examples_of_table(texts, settings or InputFormat(), columns)
    if columns:
        raise ConfigError(
            f"{', '.join(columns)} names a column, but texts is a {type(texts).__name__}, not a "
            "table; leave it out"
        )
    examples = _examples_of_list(texts, frames.index_ids(texts) if with_ids else None)
    return examples if spans is None else add_spans(examples, spans)


def add_spans(examples: Iterable[InputExample], spans: Sequence[Any]) -> Iterator[InputExample]:
    """Examples with spans that were passed beside them; InputError: the numbers differ."""
    nothing: Any = object()
    pairs = zip_longest(examples, spans, fillvalue=nothing)
    for position, (example, its_spans) in enumerate(pairs):
        if example is nothing or its_spans is nothing:
            raise InputError(
                "spans has fewer or more entries than there are texts; allowed: a list of spans "
                f"for each text (they part at number {position})"
            )
        yield with_spans(example, f"spans[{position}]", its_spans)


def _examples_of_table(
    table: Table, settings: InputFormat, columns: dict[str, str]
) -> Iterator[InputExample]:
    """Examples of a table, by the fields of the call, else of the settings."""
    texts, words = ("text_field", "text_b_field"), ("tokens_field",)
    replaced = texts if "tokens_field" in columns else words if columns.keys() & set(texts) else ()
    names = [name for name in (*FIELD_NAMES, "label_field", "span_field") if name not in replaced]
    fields = {name: getattr(settings, name) for name in names} | columns
    if not any(fields.get(name) for name in (*texts, *words)):
        raise frames.refusal(table)
    return frames.read_table(table, InputFormat(**fields))


def _examples_of_list(texts: Texts, own_ids: Sequence[int | str] | None) -> Iterator[InputExample]:
    values = frames.column_values(texts)
    if not isinstance(values, Iterable) or isinstance(values, Set | bytes):  # a set has no order
        raise InputError(f"texts is {shown(texts)}; pass a list of texts")
    for position, text in enumerate(values):
        where = f"texts[{position}]"
        if own_ids is not None:
            where = f"row {position} of texts, with the index {own_ids[position]!r},"
        yield _example(text, position if own_ids is None else own_ids[position], where)


def _example(text: Any, unique_id: int | str, where: str) -> InputExample:
    if isinstance(text, InputExample):
        words = len((text.words_a or ()) + (text.words_b or ()))
        if text.labels is not None and text.words_a is not None and len(text.labels) != words:
            raise InputError(
                f"{where}.labels has {len(text.labels)} labels for {words} words; pass one for each"
            )
        return text if text.spans is None else with_spans(text, f"{where}.spans", text.spans)
    if isinstance(text, str):
        return InputExample(unique_id, text)
    if isinstance(text, list) and all(isinstance(word, str) for word in text):
        return InputExample.from_words(unique_id, text)
    if isinstance(text, tuple) and [type(part) for part in text] == [str, str]:
        return InputExample(unique_id, *text)
    raise InputError(
        f"{where} is {shown(text)}; allowed: a str, a tuple of two for a pair, a list of words; "
        "leave a missing text out, or pass ''"
    )


def source_of_input(config: ExtractConfig, path: str | Path) -> Source:
    """The whole of an input; raises ConfigError if a setting has no meaning for such a file."""
    return source_of(path, config.input_settings())


def source_of(path: str | Path, input_format: InputFormat | None) -> Source:
    """What `read_examples` reads, with its format decided; raises ConfigError as there."""
    input_format = input_format or InputFormat()
    decided = registry.decide_format(input_format, path)
    return Source(path, decided, by_suffix=input_format.format == "auto")
