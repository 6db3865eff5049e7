"""bert-features convert: writes a checkpoint in another format."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from bert_features.cli.command import (
    CasingOption,
    ConfigFileOption,
    DebugOption,
    HiddenActOption,
    VocabFileOption,
    command,
)
from bert_features.machine.quiet_tensorflow import import_tensorflow


@command
def convert(
    checkpoint: Annotated[
        str, typer.Argument(metavar="IN", help="Checkpoint to convert: any value of --checkpoint.")
    ],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Directory to write.")],
    to: Annotated[
        Literal["tf1", "safetensors", "savedmodel"],
        typer.Option(help="Format to write; savedmodel has the form of `export --signature ids`."),
    ],
    config_file: ConfigFileOption = None,
    vocab_file: VocabFileOption = None,
    hidden_act: HiddenActOption = None,
    uncased: CasingOption = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an earlier conversion in OUT.")
    ] = False,
    debug: DebugOption = False,
) -> None:
    """Writes a checkpoint in another format.

    Weights, config, vocabulary and casing stay the same.
    """
    if to == "savedmodel":
        _export(
            checkpoint,
            out,
            config_file=config_file,
            vocab_file=vocab_file,
            hidden_act=hidden_act,
            do_lower_case=uncased,
            overwrite=overwrite,
        )
    else:
        from bert_features.checkpoints.checkpoint import named_files
        from bert_features.checkpoints.convert import check_out
        from bert_features.checkpoints.convert import convert as convert_checkpoint
        from bert_features.checkpoints.find import find_checkpoint

        # Before a checkpoint is downloaded.
        check_out(out, named_files(checkpoint, config_file, vocab_file), overwrite=overwrite)
        found = find_checkpoint(
            checkpoint, config_file=config_file, vocab_file=vocab_file, hidden_act=hidden_act
        )
        convert_checkpoint(found, out, to=to, do_lower_case=uncased, overwrite=overwrite)
    print(f"wrote {out}")


def _export(checkpoint: str, out: Path, *, do_lower_case: bool | None, **settings: Any) -> None:
    from bert_features.checkpoints.find import find_checkpoint
    from bert_features.checkpoints.read import has_pooler
    from bert_features.export.checks import check_before

    common: dict[str, Any] = {"signature": "ids", "do_lower_case": do_lower_case}
    found = check_before(out, checkpoint=checkpoint, **common, **settings)
    import_tensorflow("tensorflow")  # whatever KERAS_BACKEND is: only TensorFlow writes these
    from bert_features.export.savedmodel import export_savedmodel

    if isinstance(found, str):
        names = ("config_file", "vocab_file", "hidden_act")
        found = find_checkpoint(found, **{name: settings[name] for name in names})
    # Without pooler weights pooled_output is unavailable; every checkpoint has a last layer.
    layers = None if has_pooler(found) else (-1,)
    export_savedmodel(
        out, checkpoint=found, layers=layers, overwrite=settings["overwrite"], **common
    )
