"""bert-features shuffle: writes tokens or words in one random order across all texts."""

from typing import Annotated, Literal

import typer

from bert_features.cli.command import FeaturesArgument, command
from bert_features.config.extract_config import FileFormat


@command("shuffle features/ store/ --seed 1 --no-special-tokens")
def shuffle(
    features: FeaturesArgument,
    out: Annotated[str, typer.Argument(metavar="OUT", help="Folder to write.")],
    seed: Annotated[int, typer.Option(help="Seed of the order, from 0.")],
    level: Annotated[
        Literal["token", "word"], typer.Option(help="What the rows are: tokens or words.")
    ] = "token",
    special_tokens: Annotated[bool, typer.Option(help="Whether [CLS] and [SEP] are rows.")] = True,
    shard_rows: Annotated[int, typer.Option(help="Rows of each shard.")] = 50_000,
    buffer_mb: Annotated[int, typer.Option(help="Megabytes of rows in memory, about.")] = 256,
    format: Annotated[FileFormat, typer.Option(help="Format of the shards.")] = "parquet",
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the features folder OUT.")
    ] = False,
) -> None:
    """Writes tokens or words, each a row, in one random order across all texts."""
    from bert_features.corpus.shuffle import shuffle_features

    store = shuffle_features(
        features,
        out,
        seed=seed,
        level=level,
        special_tokens=special_tokens,
        shard_rows=shard_rows,
        buffer_mb=buffer_mb,
        format=format,
        overwrite=overwrite,
    )
    print(f"wrote {len(store):,} rows to {out}")
