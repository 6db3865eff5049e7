"""bert-features export: writes a TensorFlow SavedModel that computes features."""

import time
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from bert_features.cli.command import (
    CasingOption,
    CheckpointOption,
    ConfigFileOption,
    DebugOption,
    HiddenActOption,
    VocabFileOption,
    command,
    describe_size,
)
from bert_features.cli.settings import parse_entries, parse_output
from bert_features.machine.quiet_tensorflow import import_tensorflow


@command
def export(
    to: Annotated[Path, typer.Option(metavar="DIR", help="Directory to write.")],
    signature: Annotated[
        Literal["text", "ids"],
        typer.Option(
            help="Input of the SavedModel: text takes strings and holds the tokenizer; ids takes "
            "token ids, as encoders on TF-Hub do."
        ),
    ],
    checkpoint: CheckpointOption = None,
    output_spec: Annotated[
        list[str] | None,
        typer.Option(
            help="Named output, written as the inside of a TOML table: "
            '\'name = "s", level = "sequence"\'. May be given several times.'
        ),
    ] = None,
    layers: Annotated[
        str | None,
        typer.Option(help="LAYERS of outputs that name no layers, written as --layers=-1,-2."),
    ] = None,
    max_seq_length: Annotated[
        int | None,
        typer.Option(
            help="Maximum number of tokens in a row, with --signature text. "
            "[default: the checkpoint's number of positions]",
            show_default=False,
        ),
    ] = None,
    config_file: ConfigFileOption = None,
    vocab_file: VocabFileOption = None,
    hidden_act: HiddenActOption = None,
    uncased: CasingOption = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an existing SavedModel in DIR.")
    ] = False,
    debug: DebugOption = False,
) -> None:
    """Writes a SavedModel that needs only TensorFlow to run."""
    outputs = [parse_output(text) for text in output_spec] if output_spec else None
    entries = None if layers is None else parse_entries("--layers", layers)
    started = time.monotonic()
    settings: dict[str, Any] = {
        "signature": signature,
        "outputs": outputs,
        "layers": entries,
        "max_seq_length": max_seq_length,
        "config_file": config_file,
        "vocab_file": vocab_file,
        "hidden_act": hidden_act,
        "do_lower_case": uncased,
        "overwrite": overwrite,
    }
    from bert_features.export.checks import check_before

    found = check_before(to, checkpoint=checkpoint or "minilm", **settings)
    import_tensorflow("tensorflow")  # whatever KERAS_BACKEND is: only TensorFlow writes these
    from bert_features.export.savedmodel import export_savedmodel

    export_savedmodel(to, checkpoint=found, **settings)
    size = sum(path.stat().st_size for path in to.rglob("*") if path.is_file())
    print(f"wrote {to} ({describe_size(size)}) in {time.monotonic() - started:.1f} s")
