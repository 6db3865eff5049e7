"""bert-features inspect: shows the facts of a checkpoint, and the signature of an export."""

import contextlib
import dataclasses
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bert_features.cli.command import command
from bert_features.cli.tables import table
from bert_features.errors import BertFeaturesError, CheckpointError, OutputError
from bert_features.files import local_path
from bert_features.machine.quiet_tensorflow import import_tensorflow

if TYPE_CHECKING:
    from bert_features.checkpoints.checkpoint import Checkpoint

_CASINGS = {True: "uncased", False: "cased", None: None}


@command("inspect minilm")
def inspect(
    checkpoint: Annotated[
        str, typer.Argument(metavar="CHECKPOINT", help="Checkpoint to show: as for extract.")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a list.")] = False,
) -> None:
    """Shows a checkpoint's family, architecture, size and casing.

    For a SavedModel, such as an export, it also shows the inputs and outputs.
    """
    facts = _facts(_find(checkpoint))
    if as_json:
        print(json.dumps(facts, indent=1))
        return
    print(table([(name, str(value)) for name, value in _described(facts).items()]))


def _find(name: str) -> "Checkpoint":
    """The checkpoint; the error for features names the commands that read them."""
    from bert_features.checkpoints.find import find_checkpoint
    from bert_features.formats import read_features

    try:
        return find_checkpoint(name)
    except CheckpointError as error:
        with contextlib.suppress(OutputError), read_features(local_path(name)):
            raise CheckpointError(
                f"{name} is no checkpoint; it holds the features of a run, which bert-features "
                "check and neighbors read, and read_features in Python"
            ) from error
        raise


def _facts(checkpoint: "Checkpoint") -> dict[str, Any]:
    """The facts, as `--json` prints them."""
    from bert_features.checkpoints.read import has_head, has_pooler
    from bert_features.checkpoints.weights.weight_names import parameter_count
    from bert_features.config.bert_config import family_evidence, unknown_keys
    from bert_features.config.json_files import read_json_object

    config = checkpoint.config
    file = {} if checkpoint.config_file is None else read_json_object(checkpoint.config_file)
    pooler, late = has_pooler(checkpoint), checkpoint.multi_vector
    vocabulary = checkpoint.vocab_file
    return {
        "checkpoint": checkpoint.name,
        "weights": str(checkpoint.weights_path),
        "format": checkpoint.weights.format,
        "family": checkpoint.family,
        "family_evidence": family_evidence(file, checkpoint.kind),
        "unknown_config_keys": unknown_keys({"model_type": config.model_type} | file),
        "vocabulary": None if vocabulary is None else str(vocabulary),
        "casing": _CASINGS[checkpoint.do_lower_case],
        **_tokenizer(checkpoint),
        "parameters": parameter_count(config, pooler=pooler),
        "pooler": pooler,
        "masked_lm_head": has_head(checkpoint),
        "sparse": _sparse(checkpoint),
        "multi_vector": None if late is None else late.describe(),
        "config": config.model_dump(mode="json"),
        "signature": _signature(checkpoint),
    }


def _sparse(checkpoint: "Checkpoint") -> dict[str, Any] | None:
    """How the checkpoint's files make sparse vectors; None if they do not say."""
    settings, sparse = checkpoint.sentence_transformers, checkpoint.sparse
    if settings is not None and settings.sparse_problem is not None:
        return {"unsupported": settings.sparse_problem}
    if sparse is None:
        return None
    queries = "a model" if sparse.table is None else "a table of weights"
    return {"pooling": sparse.pooling, "top_k": sparse.top_k, "queries": queries}


def _tokenizer(checkpoint: "Checkpoint") -> dict[str, Any]:
    """The settings of the tokenizer that are not its kind's own, and the added tokens."""
    from bert_features.text.tokenizer_files import read_tokenizer, rules_of

    rules, added = {}, []
    try:
        if checkpoint.vocab_file is not None:
            file = read_tokenizer(checkpoint.vocab_file, checkpoint.config.model_type)
            rules = rules_of(file, checkpoint.do_lower_case)
            added = list(getattr(file, "added", ()))
    except BertFeaturesError as error:
        rules = {"refused": str(error)}
    return {"tokenizer_rules": rules, "added_tokens": added}


def _signature(checkpoint: "Checkpoint") -> dict[str, Any] | None:
    """The inputs and outputs of a SavedModel; None for any other checkpoint."""
    if not checkpoint.weights.in_saved_model:
        return None
    import_tensorflow()
    from bert_features.export.inspection import read_signature

    signature = read_signature(checkpoint.weights.root)
    return None if signature is None else dataclasses.asdict(signature)


def _described(facts: dict[str, Any]) -> dict[str, Any]:
    """The facts in words."""
    blocks = facts["config"]["num_hidden_layers"]
    signature = facts["signature"] or {"inputs": (), "outputs": ()}
    return {
        "checkpoint": facts["checkpoint"],
        "weights": facts["weights"],
        "format": facts["format"],
        "family": f"{facts['family']} ({facts['family_evidence']})",
        "vocabulary": facts["vocabulary"] or "none found; pass --vocab-file to extract",
        "casing": facts["casing"] or "unknown; pass --uncased or --cased to extract",
        "tokenizer rules": _short(f"{n} {v}" for n, v in facts["tokenizer_rules"].items()),
        "added tokens": _short(facts["added_tokens"]),
        "layers": f"{blocks} (-{blocks} … {blocks - 1}, and embeddings)",
        "parameters": f"{facts['parameters']:,}",
        "pooler": "yes" if facts["pooler"] else "no",
        "masked-LM head": "yes" if facts["masked_lm_head"] else "no",
        **{f"sparse {name}": v or "all" for name, v in (facts["sparse"] or {}).items()},
        **{f"multi-vector {name}": _side(v) for name, v in (facts["multi_vector"] or {}).items()},
        **facts["config"],
        "unknown config keys": ", ".join(facts["unknown_config_keys"]) or "none",
        **{f"input {tensor['name']}": _tensor(tensor) for tensor in signature["inputs"]},
        **{f"output {tensor['name']}": _tensor(tensor) for tensor in signature["outputs"]},
    }


def _side(value: Any) -> str:
    """A fact about late interaction; of a side each of its settings."""
    if not isinstance(value, dict):
        return str(value)
    return _short(f"{name} {json.dumps(each)}" for name, each in value.items())


def _short(texts: Iterable[str]) -> str:
    return ", ".join(texts)[:200] or "none"


def _tensor(tensor: dict[str, Any]) -> str:
    if tensor["shape"] is None:
        return f"{tensor['dtype']}, any shape"
    sizes = ", ".join("any" if size is None else str(size) for size in tensor["shape"])
    return f"{tensor['dtype']} [{sizes}]"
