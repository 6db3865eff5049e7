"""bert-features neighbors: prints what is nearest to a text in a features file."""

import json
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import starmap
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from bert_features.cli.command import FeaturesArgument, command
from bert_features.cli.settings import as_option, takes_settings
from bert_features.cli.tables import table
from bert_features.config.extract_config import ExtractConfig
from bert_features.config.settings import MODEL
from bert_features.errors import ConfigError, InputError

if TYPE_CHECKING:
    from bert_features.neighbors.searchers import Neighbor

# Tokens shown on either side of the one that was found.
_CONTEXT = 8
_LEFT_OF_TEXT = 28  # columns
# A neighbor, its rank and its text, if it is known.
_Ranked = tuple["Neighbor", int, str | None]
_HEAD = ("rank", "similarity", "id")


@command(
    "neighbors vectors.npz --query 'A cat sat' --texts texts.csv",
    "neighbors tokens.arrow --query 'the bank of the river' --token bank",
)
@takes_settings("config_file", "vocab_file", config=False)
def neighbors(
    features: FeaturesArgument,
    settings: ExtractConfig,
    query: Annotated[
        list[str] | None,
        typer.Option(
            help="Text to compare with. May be given several times; - reads one from each line of "
            "standard input."
        ),
    ] = None,
    query_id: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ID",
            help="Id of a text in the file, instead of a text, for features of whole texts; it is "
            "not among its own neighbors. Needs no checkpoint. May be given several times.",
        ),
    ] = None,
    feature: Annotated[
        str | None, typer.Option(help="Feature to search, if the file has several.")
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(
            help="Word of the query to compare, for features of words or tokens. The vector is "
            "the mean of its pieces. For features of spans a part of the query."
        ),
    ] = None,
    prompt: Annotated[
        str | None,
        typer.Option(
            help="Prompt before each query: the name of one of the checkpoint's, or the text "
            "itself; empty for none. By default its prompt `query`, if it has one, else that of "
            "the file."
        ),
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Number of neighbors of each query.")] = 10,
    similarity: Annotated[
        Literal["cosine", "dot"] | None,
        typer.Option(
            help="How vectors are compared: cosine, the default, or dot, as sparse vectors are. "
            "Not for late interaction, which has MaxSim."
        ),
    ] = None,
    texts: Annotated[
        list[str] | None,
        typer.Option(
            help="Input of the extraction, to show the texts. Give all inputs, in their order."
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
    """Prints the texts, spans, words or tokens nearest to a text.

    The text goes through the checkpoint and settings that the file records. The search is exact:
    it compares every vector. Above a million vectors an index of faiss, LanceDB or DuckDB answers
    sooner; docs/recipes.md and docs/integrations.md show them.
    """
    from bert_features.formats import read_features
    from bert_features.neighbors.nearest import check_inputs, find_texts, nearest, vectors_of_ids

    text_options = {"token": token, "prompt": prompt, "checkpoint": checkpoint}
    queries = _queries(query, query_id, text_options | settings.checkpoint_options())
    check_inputs(texts or ())
    file = read_features(features)
    answers = nearest(
        file,
        vectors_of_ids(file, queries, feature) if query_id else queries,
        feature=feature,
        token=token,
        top=top + bool(query_id),  # the text itself is one of them
        similarity=similarity,
        prompt=prompt,
        checkpoint=checkpoint,
        config_file=settings.config_file,
        vocab_file=settings.vocab_file,
    )
    if query_id:
        pairs = zip(queries, answers, strict=True)
        answers = [[hit for hit in hits if str(hit.unique_id) != own][:top] for own, hits in pairs]
    ids = {hit.unique_id for hits in answers for hit in hits}
    texts_by_id = find_texts(file, texts, ids) if texts else {}
    describe = _json_lines if output_format == "jsonl" else _table
    for number, (asked, hits) in enumerate(zip(queries, answers, strict=True)):
        ranked = [(hit, rank, texts_by_id.get(hit.unique_id)) for rank, hit in enumerate(hits, 1)]
        for line in describe(asked, ranked, is_first=number == 0):
            print(line)


def _queries(
    texts: Sequence[str] | None, ids: list[str] | None, text_options: Mapping[str, object]
) -> list[str]:
    """The texts or ids to search for; ConfigError if both are given, or options without effect."""
    if texts and ids:
        raise ConfigError("--query and --query-id are both set; leave one of them out")
    if not texts and not ids:
        raise ConfigError("there is no query; pass --query TEXT or --query-id ID")
    unused = [as_option(name) for name, value in text_options.items() if value is not None]
    if ids and unused:
        raise ConfigError(f"--query-id takes a vector of the file; leave {', '.join(unused)} out")
    return ids or _read_queries(texts or ())


def _read_queries(arguments: Sequence[str]) -> list[str]:
    queries: list[str] = []
    for query in arguments:
        piped = sys.stdin.read() if query == "-" and sys.stdin else ""  # None if it is closed
        lines = piped.splitlines() if query == "-" else [query]
        queries += [line.strip() for line in lines if line.strip()]
    if not queries:
        raise InputError("there is no query; pass --query TEXT, or - and a text on standard input")
    return queries


def _table(query: str, ranked: list[_Ranked], *, is_first: bool) -> list[str]:
    rows = list(starmap(_row, ranked))
    text = "text" if any(row[-1] for row in rows) else "(--texts INPUT shows the texts)"
    lines = table(rows, head=(*_HEAD, text), right=(0, 1), widths=(4, 10, 8))
    return [*([] if is_first else [""]), f"query: {query}", lines]


def _row(hit: "Neighbor", rank: int, text: str | None) -> tuple[str, ...]:
    unit = text if hit.span is None else hit.span
    shown = " ".join((unit or "").split()) if hit.tokens is None else _in_context(hit)
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


def _json_lines(query: str, ranked: list[_Ranked], *, is_first: bool) -> Iterator[str]:
    for hit, rank, text in ranked:
        values = {
            "query": query,
            "rank": rank,
            "similarity": hit.similarity,
            "id": hit.unique_id,
            "record": hit.record,
            "position": hit.position,
            "token": hit.token,
            "span": hit.span,
            "context": None if hit.tokens is None else _in_context(hit),
            "text": text,
            "matches": hit.matches and [match._asdict() for match in hit.matches],
        }
        yield json.dumps({name: value for name, value in values.items() if value is not None})
