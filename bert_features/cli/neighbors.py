"""bert-features neighbors: prints what is nearest to a text in a features file."""

import json
import shutil
import sys
from collections.abc import Sequence
from itertools import starmap
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from bert_features.cli.command import command
from bert_features.cli.settings import as_option, takes_settings
from bert_features.cli.tables import table
from bert_features.config.extract_config import ExtractConfig
from bert_features.config.settings import MODEL
from bert_features.errors import ConfigError, InputError

if TYPE_CHECKING:
    from bert_features.neighbors.nearest import Neighbor

# Tokens shown on either side of the one that was found.
_CONTEXT = 8
_LEFT_OF_TEXT = 28  # columns
_HEAD = ("rank", "similarity", "id", "text")


@command
@takes_settings("config_file", "vocab_file", config=False)
def neighbors(
    features: Annotated[
        str,
        typer.Argument(
            metavar="FEATURES", help="Features file, or a folder of shards, or its address."
        ),
    ],
    settings: ExtractConfig,
    query: Annotated[
        list[str] | None,
        typer.Option(
            help="Text to compare with. May be given several times; - reads one from each line of "
            "standard input.",
            show_default=False,
        ),
    ] = None,
    query_id: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ID",
            help="Id of a text in the file, instead of a text, for features of whole texts; it is "
            "not among its own neighbors. Needs no checkpoint. May be given several times.",
            show_default=False,
        ),
    ] = None,
    feature: Annotated[
        str | None, typer.Option(help="Feature to search, if the file has several.")
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(
            help="Word of the query to compare, for features of words or tokens. The vector is "
            "the mean of its pieces."
        ),
    ] = None,
    prompt: Annotated[
        str | None,
        typer.Option(
            help="Prompt before each query: the name of one of the checkpoint's, or the text "
            "itself; empty for none. By default its prompt `query`, if it has one, else that of "
            "the file.",
            show_default=False,
        ),
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Number of neighbors of each query.")] = 10,
    similarity: Annotated[
        Literal["cosine", "dot"], typer.Option(help="How vectors are compared.")
    ] = "cosine",
    index: Annotated[
        Literal["faiss"] | None,
        typer.Option(
            help="Search by an approximate index of faiss. The first run builds it and keeps it in "
            "the cache. Without this option the search is exact.",
            show_default=False,
        ),
    ] = None,
    texts: Annotated[
        list[str] | None,
        typer.Option(
            help="Input of the extraction, to show the texts. Give all inputs, in their order.",
            show_default=False,
        ),
    ] = None,
    output_format: Annotated[
        Literal["table", "jsonl"],
        typer.Option("--format", help="A table, or a JSON object for each neighbor."),
    ] = "table",
    checkpoint: Annotated[
        str | None,
        typer.Option(
            help="Checkpoint for the query, if it is not where the file says: any value that "
            "extract takes.",
            rich_help_panel=MODEL,
        ),
    ] = None,
) -> None:
    """Prints the sentences, words or tokens nearest to a text.

    The text goes through the checkpoint and settings that the file records.
    """
    from bert_features.formats import read_features
    from bert_features.neighbors.nearest import check_inputs, find_texts, nearest, vectors_of_ids

    if query and query_id:
        raise ConfigError("--query and --query-id are both set; leave one of them out")
    if not query and not query_id:
        raise ConfigError("there is no query; pass --query TEXT or --query-id ID")
    of_texts = {
        "token": token,
        "prompt": prompt,
        "checkpoint": checkpoint,
        **settings.checkpoint_options(),
    }
    unused = [as_option(name) for name, value in of_texts.items() if value is not None]
    if query_id and unused:
        raise ConfigError(f"--query-id takes a vector of the file; leave {', '.join(unused)} out")
    queries = query_id or _read_queries(query or ())
    check_inputs(texts or ())
    file = read_features(features)
    found = nearest(
        file,
        vectors_of_ids(file, queries, feature) if query_id else queries,
        feature=feature,
        token=token,
        top=top + bool(query_id),  # the text itself is one of them
        similarity=similarity,
        index=index,
        prompt=prompt,
        checkpoint=checkpoint,
        config_file=settings.config_file,
        vocab_file=settings.vocab_file,
    )
    if query_id:
        pairs = zip(queries, found, strict=True)
        found = [[hit for hit in hits if str(hit.unique_id) != own][:top] for own, hits in pairs]
    ids = {hit.unique_id for hits in found for hit in hits}
    of_ids = find_texts(file, texts, ids) if texts else {}
    for number, (asked, hits) in enumerate(zip(queries, found, strict=True)):
        ranked = [(hit, rank, of_ids.get(hit.unique_id)) for rank, hit in enumerate(hits, 1)]
        if output_format == "jsonl":
            for each in ranked:
                print(_json(*each, query=asked))
        else:
            print("\n" * (number > 0) + f"query: {asked}")
            print(table(list(starmap(_row, ranked)), head=_HEAD, right=(0, 1), widths=(4, 10, 8)))


def _read_queries(given: Sequence[str]) -> list[str]:
    queries: list[str] = []
    for query in given:
        piped = sys.stdin.read() if query == "-" and sys.stdin else ""  # None if it is closed
        lines = piped.splitlines() if query == "-" else [query]
        queries += [line.strip() for line in lines if line.strip()]
    if not queries:
        raise InputError("there is no query; pass --query TEXT, or - and a text on standard input")
    return queries


def _row(hit: "Neighbor", rank: int, text: str | None) -> tuple[str, ...]:
    shown = " ".join((text or "").split()) if hit.tokens is None else _in_context(hit)
    if sys.stdout.isatty():
        shown = shown[: max(20, shutil.get_terminal_size().columns - _LEFT_OF_TEXT)]
    return str(rank), f"{hit.similarity:.4f}", str(hit.unique_id), shown


def _in_context(hit: "Neighbor") -> str:
    """The token among its neighbors in the text, marked."""
    assert hit.tokens is not None
    assert hit.position is not None
    start = max(0, hit.position - _CONTEXT)
    before = hit.tokens[start : hit.position]
    after = hit.tokens[hit.position + 1 : hit.position + 1 + _CONTEXT]
    parts = [*before, f">>{hit.token}<<", *after]
    return "… " * (start > 0) + " ".join(parts)


def _json(hit: "Neighbor", rank: int, text: str | None, *, query: str) -> str:
    values = {
        "query": query,
        "rank": rank,
        "similarity": hit.similarity,
        "id": hit.unique_id,
        "record": hit.record,
        "position": hit.position,
        "token": hit.token,
        "context": None if hit.tokens is None else _in_context(hit),
        "text": text,
    }
    return json.dumps({name: value for name, value in values.items() if value is not None})
