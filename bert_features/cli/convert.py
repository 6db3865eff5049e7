"""bert-features convert: writes a checkpoint in another format."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from bert_features.cli.command import command
from bert_features.cli.settings import takes_settings
from bert_features.config.bert_config import CheckpointOptions
from bert_features.config.extract_config import ExtractConfig
from bert_features.machine.quiet_tensorflow import import_tensorflow


@command("convert bert-tiny bert-tiny-safetensors --to safetensors")
@takes_settings(*CheckpointOptions.__annotations__, "do_lower_case", config=False)
def convert(
    checkpoint: Annotated[
        str, typer.Argument(metavar="IN", help="Checkpoint to convert: as for extract.")
    ],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Directory to write.")],
    to: Annotated[
        Literal["tf1", "safetensors", "savedmodel"],
        typer.Option(help="Format to write; savedmodel has the form of `export --signature ids`."),
    ],
    settings: ExtractConfig,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an earlier conversion in OUT.")
    ] = False,
) -> None:
    """Writes a checkpoint in another format.

    Weights, config, vocabulary, casing and the settings of sentence-transformers stay the same.
    """
    files = settings.checkpoint_options()
    common: dict[str, Any] = {"do_lower_case": settings.do_lower_case, "overwrite": overwrite}
    if to == "savedmodel":
        _export(checkpoint, out, files, **common)
    else:
        from bert_features.checkpoints.checkpoint import named_files
        from bert_features.checkpoints.convert import check_out
        from bert_features.checkpoints.convert import convert as convert_checkpoint
        from bert_features.checkpoints.find import find_checkpoint

        # Before a checkpoint is downloaded.
        named = named_files(checkpoint, settings.config_file, settings.vocab_file)
        check_out(out, named, overwrite=overwrite)
        convert_checkpoint(find_checkpoint(checkpoint, **files), out, to=to, **common)
    print(f"wrote {out}")


def _export(checkpoint: str, out: Path, files: CheckpointOptions, **common: Any) -> None:
    from bert_features.checkpoints.find import find_checkpoint
    from bert_features.checkpoints.read import has_pooler
    from bert_features.export.checks import check_before

    source = check_before(out, checkpoint=checkpoint, signature="ids", **common, **files)
    import_tensorflow("tensorflow")  # whatever KERAS_BACKEND is: only TensorFlow writes these
    from bert_features.export.savedmodel import export_savedmodel

    if isinstance(source, str):
        source = find_checkpoint(source, **files)
    # Without pooler weights pooled_output is unavailable; every checkpoint has a last layer.
    layers = None if has_pooler(source) else (-1,)
    export_savedmodel(out, checkpoint=source, signature="ids", layers=layers, **common)
