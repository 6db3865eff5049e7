"""bert-features export: writes a TensorFlow SavedModel that computes features."""

import time
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from bert_features.cli.command import command
from bert_features.cli.settings import takes_settings
from bert_features.config.extract_config import ExtractConfig
from bert_features.config.outputs import OUTPUT_SETTINGS
from bert_features.files.reporting import describe_size
from bert_features.machine.quiet_tensorflow import import_tensorflow

_SETTINGS = ("config_file", "do_lower_case", "hidden_act", "max_seq_length", "vocab_file")
# In the order in which `extract` shows them, without those that no export has.
_OUTPUTS = tuple(
    name for name in OUTPUT_SETTINGS if name not in ("kind", "top_k", "min_weight", "scale_from")
)
_KINDS = {"level": Literal["token", "sequence"], "dtype": Literal["float32", "float16", "bfloat16"]}


@command("export --to exported --signature text --layers=-1 --level sequence --pooling mean")
@takes_settings(
    "checkpoint",
    *(*_OUTPUTS, "outputs", *_SETTINGS),
    config=False,
    kinds=_KINDS,
)
def export(
    to: Annotated[Path, typer.Option(metavar="DIR", help="Directory to write.")],
    signature: Annotated[
        Literal["text", "ids"],
        typer.Option(
            help="Input of the SavedModel: text takes strings and holds the tokenizer; ids takes "
            "token ids, as encoders on TF-Hub do."
        ),
    ],
    settings: ExtractConfig,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an existing SavedModel in DIR.")
    ] = False,
) -> None:
    """Writes a SavedModel that needs only TensorFlow to run.

    Without options of outputs a SavedModel that takes ids returns what encoders on TF-Hub return.
    """
    started = time.monotonic()
    given = {
        name: getattr(settings, name) for name in _SETTINGS if name in settings.model_fields_set
    }
    options: dict[str, Any] = {"signature": signature, "overwrite": overwrite, **given}
    if "outputs" in settings.model_fields_set:
        options["outputs"] = settings.outputs
    from bert_features.export.checks import check_before

    source = check_before(to, checkpoint=settings.checkpoint, **options)
    import_tensorflow("tensorflow")  # whatever KERAS_BACKEND is: only TensorFlow writes these
    from bert_features.export.savedmodel import export_savedmodel

    export_savedmodel(to, checkpoint=source, **options)
    size = sum(path.stat().st_size for path in to.rglob("*") if path.is_file())
    print(f"wrote {to} ({describe_size(size)}) in {time.monotonic() - started:.1f} s")
