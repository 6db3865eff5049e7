"""bert-features status: how far a run into a folder has come."""

from typing import TYPE_CHECKING, Annotated

import typer

from bert_features.cli.command import command
from bert_features.cli.progress import describe_seconds
from bert_features.cli.tables import table
from bert_features.files import locate, name_of

if TYPE_CHECKING:
    from bert_features.corpus.folder import Holder
    from bert_features.corpus.status import Status


@command("status features/")
def status(
    folder: Annotated[
        str,
        typer.Argument(
            metavar="DIR",
            help="Folder that extract writes or has written; also its address (gs://, s3://).",
        ),
    ],
) -> None:
    """Shows how far a run into a folder has come.

    It reads the records of the shards, not the features. The exit status is 0 if the run is
    finished and the files of all shards have their sizes, else 1.
    """
    from bert_features.corpus.status import read_status

    progress = read_status(locate(folder))
    print(table([*_describe(progress).items()], widths=[9]))
    if not progress.is_whole:
        raise typer.Exit(1)


def _describe(status: "Status") -> dict[str, str]:
    """The lines, by their names."""
    from bert_features.corpus.status import name_left

    rows = {"state": _describe_state(status)}
    if not status.shards:
        return rows
    rows["shards"] = f"{status.finished_shards:,} of {status.shards:,} finished"
    rows["examples"] = f"{status.finished_examples:,} of {status.examples:,}"
    if status.order:
        rows["order"] = "shuffled: " + ", ".join(f"{n} {v}" for n, v in status.order.items())
    if sum(status.left):
        rows["shares"] = f"not finished: {name_left(status.left)}"
    rows["tokens"] = f"{status.finished_tokens:,} in the finished shards"
    if status.seconds:
        rows["speed"] = (
            f"{status.tokens_per_second:,.0f} tokens/s for each process; computed in "
            f"{describe_seconds(status.seconds)} of process time so far"
        )
    if status.seconds_left is not None:
        rows["left"] = f"about {describe_seconds(status.seconds_left)} at this speed"
    return rows | _describe_problems(status)


def _describe_state(status: "Status") -> str:
    if status.holders:
        reading = "" if status.shards else "; it still reads its inputs"
        return f"running: {'; '.join(map(_describe_holder, status.holders))}{reading}"
    if status.state == "stopped":
        return "stopped; run the same command to resume it"
    if status.state == "unfinished":
        return "not finished; if no run is computing it, run the same command to resume it"
    if status.missing:
        return f"finished, but files are missing; bert-features check {status.folder} --repair"
    return "finished"


def _describe_holder(holder: "Holder") -> str:
    computing = f", which computes with {holder.processes} processes" * (holder.processes > 1)
    return f"{holder}{computing}"


def _describe_problems(status: "Status") -> dict[str, str]:
    from bert_features.corpus.inputs import name_some
    from bert_features.corpus.resuming import hint_of_folder

    rows = {}
    if status.missing:
        names = name_some([name_of(path) for path in status.missing])
        rows["missing"] = f"{names}: not found, or of another size than the run wrote"
    if status.changed_inputs:
        named, hint = name_some(status.changed_inputs), hint_of_folder(status.changed_inputs)
        rows["inputs"] = f"{named}: not found, or of another size or time than the run read{hint}"
    return rows
