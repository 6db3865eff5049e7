"""bert-features download: brings a checkpoint that Google published into the cache."""

from typing import Annotated

import typer

from bert_features.cli.command import command
from bert_features.cli.progress import MEGABYTES, ProgressDisplay
from bert_features.cli.tables import table
from bert_features.errors import ConfigError


@command("download bert-tiny", "download --list")
def download(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="Published name or alias, such as bert-tiny. Without a name, all are listed.",
        ),
    ] = None,
    show_list: Annotated[
        bool, typer.Option("--list", help="List the published checkpoints and their aliases.")
    ] = False,
    verify: Annotated[
        bool,
        typer.Option("--verify", help="Compare the files in the cache with the recorded hashes."),
    ] = False,
    force: Annotated[
        bool,
        typer.Option("--force", help="Download again, even if the checkpoint is in the cache."),
    ] = False,
    forget: Annotated[
        bool,
        typer.Option(
            "--forget", help="Drop the recorded hash, download again and record the new one."
        ),
    ] = False,
) -> None:
    """Downloads a checkpoint of google-research/bert; prints its folder.

    Other commands accept the same names and download a checkpoint when they need it.

    The cache is $BERT_FEATURES_CACHE, or else the platform's folder for caches. If
    $BERT_FEATURES_MIRROR is set, it replaces https://storage.googleapis.com/bert_models.
    """
    flags = {"--verify": verify, "--force": force, "--forget": forget}
    given = [flag for flag, on in flags.items() if on]
    if show_list and (name is not None or given):
        received = " ".join([*filter(None, [name]), *given])
        raise ConfigError(f"--list and {received} are both given; --list takes nothing else")
    if name is None:
        if given:
            raise ConfigError(f"{' and '.join(given)} needs a checkpoint; pass its NAME")
        _print_table()
        return
    if verify and len(given) > 1:
        raise ConfigError(f"{' and '.join(given)} exclude each other; pass only one")
    from bert_features.checkpoints.sources import download as checkpoints

    if verify:
        print(f"{checkpoints.verify(name)}: every file is as recorded")
        return
    with ProgressDisplay(MEGABYTES) as display:
        folder = checkpoints.download(name, progress=display.update, force=force, forget=forget)
    print(folder)


def _print_table() -> None:
    from bert_features.checkpoints.sources.published import PUBLISHED, aliases_of
    from bert_features.files import cache_dir

    cache = cache_dir()
    rows = [
        (
            "*" if (cache / row.name).is_dir() else "",
            row.name,
            f"{row.parameters:,}",
            row.casing,
            f"{', '.join(aliases_of(row.name))} {f'({row.note})' if row.note else ''}".strip(),
        )
        for row in PUBLISHED.values()
    ]
    print(table(rows, head=("", "NAME", "PARAMETERS", "CASING", "ALIASES"), right=[2]))
    print(f"\nL: layers, H: hidden size, A: attention heads. *: in the cache {cache}")
