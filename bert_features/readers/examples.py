"""Examples from a file or from texts in memory."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from bert_features.config.input_format import InputFormat
from bert_features.errors import InputError
from bert_features.readers import registry
from bert_features.readers.input_example import InputExample
from bert_features.readers.lines import EncodingErrors
from bert_features.readers.source import Source


def read_examples(
    path: str | Path,
    input_format: InputFormat | None = None,
    *,
    encoding_errors: EncodingErrors = "strict",
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
      encoding_errors: what to do with bytes that are not UTF-8: `strict` refuses the file,
        `replace` puts U+FFFD in their place (which the tokenizer drops).

    Raises:
      ConfigError: the input format has a setting that has no meaning for this kind of file.
      InputError: the file cannot be read, is not of its format, holds bytes that are not UTF-8, or
        its ids are wrong or repeated.
      MissingExtraError: the package that opens this kind of address is not installed.
    """
    return registry.read(_source(path, input_format, encoding_errors))


def count_examples(path: str | Path, input_format: InputFormat | None = None) -> int | None:
    """Number of examples that `read_examples` will give.

    None where counting would use up the input or cost as much as reading it: a stream, a compressed
    file, an object store, a table in text, a CoNLL file.

    Raises:
      ConfigError: see `read_examples`.
      InputError: the file cannot be read.
    """
    return registry.count(_source(path, input_format, "strict"))


def examples_of_texts(
    texts: Iterable[str | list[str] | tuple[str, str] | InputExample],
) -> Iterator[InputExample]:
    """One example per text, taken as it is: neither stripped nor split into pairs.

    Args:
      texts: texts; tuples of two, for pairs; lists of words; or examples, which keep their own ids.

    Raises:
      InputError: an entry is none of these.
    """
    if isinstance(texts, str):
        raise InputError("texts is one string; pass a list of texts, such as [text]")
    for unique_id, text in enumerate(texts):
        if isinstance(text, InputExample):
            yield text
        elif isinstance(text, str):
            yield InputExample(unique_id, text)
        elif isinstance(text, list) and all(isinstance(word, str) for word in text):
            yield InputExample.from_words(unique_id, text)
        elif isinstance(text, tuple) and [type(part) for part in text] == [str, str]:
            yield InputExample(unique_id, *text)
        else:
            raise InputError(
                f"texts[{unique_id}] is {text!r}; allowed: a str, a tuple of two for a "
                "pair, a list of words"
            )


def _source(
    path: str | Path, input_format: InputFormat | None, encoding_errors: EncodingErrors
) -> Source:
    decided = registry.decide_format(input_format or InputFormat(), path)
    return Source(path, decided, encoding_errors)
