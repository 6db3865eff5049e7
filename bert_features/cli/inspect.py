"""bert-features inspect: shows the facts of a checkpoint."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from bert_features.cli.command import DebugOption, command

if TYPE_CHECKING:
    from bert_features.checkpoints.checkpoint import Checkpoint


@command
def inspect(
    checkpoint: Annotated[
        str,
        typer.Argument(metavar="CHECKPOINT", help="Checkpoint to show: any value of --checkpoint."),
    ],
    debug: DebugOption = False,
) -> None:
    """Shows a checkpoint's family, architecture, size and casing."""
    from bert_features.checkpoints.find import find_checkpoint

    for name, value in _facts(find_checkpoint(checkpoint)).items():
        print(f"{name:<24} {value}")


def _facts(checkpoint: "Checkpoint") -> dict[str, Any]:
    from bert_features.checkpoints.read import has_pooler
    from bert_features.checkpoints.weight_names import parameter_count

    config = checkpoint.config
    pooler = has_pooler(checkpoint)
    casing = {True: "uncased", False: "cased", None: "unknown; pass --uncased or --cased"}
    return {
        "checkpoint": checkpoint.name,
        "weights": checkpoint.weights_path,
        "format": checkpoint.kind,
        "family": checkpoint.family,
        "vocabulary": checkpoint.vocab_file or "none found; pass --vocab-file",
        "casing": casing[checkpoint.do_lower_case],
        "layers": f"{config.num_hidden_layers} (-{config.num_hidden_layers} … "
        f"{config.num_hidden_layers - 1}, and embeddings)",
        "parameters": f"{parameter_count(config, pooler=pooler):,}",
        "pooler": "yes" if pooler else "no",
        **config.model_dump(),
    }
