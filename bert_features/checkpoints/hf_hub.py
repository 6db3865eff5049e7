"""Models of the Hugging Face Hub, fetched into its local cache: safetensors, never pickles."""

import re
from dataclasses import dataclass
from pathlib import Path

from bert_features.checkpoints.locate import BESIDE_WEIGHTS, PICKLES, meant
from bert_features.checkpoints.sentence_transformers import MAIN_CONFIG, MODULES
from bert_features.errors import CheckpointError, MissingExtraError

PREFIX = "hf:"
# Files to fetch. Weights in pickles (pytorch_model.bin) are never downloaded.
_OF_CHECKPOINT = [
    *BESIDE_WEIGHTS,
    "model.safetensors",
    "model.safetensors.index.json",
    "model-?????-of-?????.safetensors",
]
# A model of sentence-transformers may have its checkpoint in a folder.
_TRANSFORMER = "0_Transformer"
FILES = [
    *_OF_CHECKPOINT,
    *(MODULES, MAIN_CONFIG),
    "*_Pooling/config.json",
    *(f"{_TRANSFORMER}/{name}" for name in _OF_CHECKPOINT),
]
_ID = re.compile(r"(?P<id>\w[\w.-]*(/\w[\w.-]*)?)(@(?P<revision>[^@\s]+))?", re.ASCII)


@dataclass(frozen=True)
class HubModel:
    """A model of the Hub.

    Attributes:
      id: `org/name`, or a bare name of the old kind (`bert-base-uncased`).
      revision: a branch, a tag or a commit; None for the latest.
      marked: whether the user wrote `hf:`.
    """

    id: str
    revision: str | None
    marked: bool


def parse(name: str) -> HubModel | None:
    """The model of the Hub that a name means, None if it means another kind of checkpoint.

    `hf:` marks a model: `hf:org/name`, `hf:name`, `hf:org/name@revision`. Without it, `org/name` is
    a model too, unless its last part is the name of a file. Raises CheckpointError if the text
    after `hf:` is not the name of a model.
    """
    marked = name.startswith(PREFIX)
    match = _ID.fullmatch(name.removeprefix(PREFIX))
    if match is None:
        if marked:
            raise CheckpointError(
                f"{name!r} is not the name of a model of the Hugging Face Hub; "
                "the form is hf:org/name or hf:org/name@revision"
            )
        return None
    is_file = Path(match["id"]).suffix in (".safetensors", ".index", ".json", *PICKLES)
    if not marked and ("/" not in match["id"] or is_file):
        return None
    return HubModel(match["id"], match["revision"], marked)


def fetch(model: HubModel) -> Path:
    """The folder in the local cache that holds a model's files, downloaded if they are not there.

    Without a network, or with HF_HUB_OFFLINE=1, the files in the cache are used.

    Raises:
      CheckpointError: the model cannot be downloaded, or holds no safetensors.
      MissingExtraError: huggingface_hub is not installed.
    """
    try:
        import huggingface_hub
    except ImportError as error:
        package = "huggingface_hub"
        if not model.marked:
            package = f"there is no path {model.id!r}{_hint(model)}, and to look for it on the "
            package += "Hub: huggingface_hub"
        raise MissingExtraError(package, "hub") from error
    try:
        folder = Path(
            huggingface_hub.snapshot_download(
                model.id, revision=model.revision, allow_patterns=FILES
            )
        )
    except Exception as error:  # its own, the HTTP library's and the system's
        reason = " ".join(str(error).split()) or type(error).__name__
        raise CheckpointError(
            f"{'' if model.marked else f'there is no such path{_hint(model)}, and '}"
            f"the model {model.id!r}"
            f"{f' at {model.revision!r}' if model.revision else ''} cannot be fetched from the "
            f"Hugging Face Hub: {reason[:300]}"
        ) from error
    if not any([*folder.glob("*.safetensors"), *folder.glob(f"{_TRANSFORMER}/*.safetensors")]):
        raise CheckpointError(
            f"the model {model.id!r} of the Hugging Face Hub has no model.safetensors; other "
            "formats (pickles such as pytorch_model.bin) are not read. If you trust it, convert it "
            "once with transformers: "
            "AutoModel.from_pretrained(ID).save_pretrained(OUT, safe_serialization=True)"
        )
    return folder


def _hint(model: HubModel) -> str:
    """` (did you mean 'models/bert'?)` where a neighbour of the path has a similar name."""
    hint = meant(model.id).strip()
    return f" ({hint})" if hint else ""
