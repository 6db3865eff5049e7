"""Models of the Hugging Face Hub, fetched into its local cache.

Safetensors if there are any; else those that the Hub's own bot offers in a pull request, which
transformers takes too; `pytorch_model.bin` only if there is no such pull request.
"""

import contextlib
import logging
import re
from dataclasses import dataclass
from pathlib import Path

from bert_features.checkpoints.sources.folder import similar
from bert_features.checkpoints.weights import other_files
from bert_features.checkpoints.weights.file_names import (
    BESIDE_WEIGHTS,
    MAIN_CONFIG,
    MODULES,
    ROUTER_CONFIG,
    TABLE_WEIGHTS,
    is_weights_file,
)
from bert_features.errors import CheckpointError

logger = logging.getLogger("bert_features")

PREFIX = "hf:"
# A model of sentence-transformers may have its checkpoint in a folder, and has some of its modules.
_FOLDERS = ("", "0_Transformer/", "document_0_Transformer/")
_MODULE_KINDS = (
    *("Pooling", "Dense", "Normalize", "SpladePooling", "SparseStaticEmbedding"),
    "MultiVectorMask",
)
_SAFETENSORS = (
    *("model.safetensors", "model.safetensors.index.json"),
    "model-?????-of-?????.safetensors",
)
_BIN = ("pytorch_model.bin", "pytorch_model.bin.index.json", "pytorch_model-?????-of-?????.bin")
# Files to fetch; and those of weights in pickles, for models and modules without safetensors.
FILES = [
    *(f"{folder}{name}" for folder in _FOLDERS for name in (*BESIDE_WEIGHTS, *_SAFETENSORS)),
    *(MODULES, MAIN_CONFIG, ROUTER_CONFIG, "adapter_config.json"),
    *(f"*_{module}/config.json" for module in _MODULE_KINDS),
    *("*_Dense/model.safetensors", *(f"*_SparseStaticEmbedding/{name}" for name in TABLE_WEIGHTS)),
]
PICKLES = [f"{folder}{name}" for folder in _FOLDERS for name in _BIN]
DENSE_PICKLES = ["*_Dense/pytorch_model.bin"]
# The pull request as transformers' safetensors_conversion.py looks for it.
_BOT, _TITLE = "SFconvertbot", "Adding `safetensors` variant of this model"
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
    file = Path(match["id"]).name
    is_file = Path(file).suffix in (".index", ".json") or is_weights_file(file)
    is_file = is_file or other_files.refusal([file], "") is not None
    if not marked and ("/" not in match["id"] or is_file):
        return None
    return HubModel(match["id"], match["revision"], marked)


def fetch(name: str) -> Path:
    """The folder in the local cache that holds a model's files, downloaded if they are not there.

    Without a network, or with HF_HUB_OFFLINE=1, the files in the cache are used.

    Raises:
      CheckpointError: the model cannot be downloaded, or holds no weights that are read.
    """
    import huggingface_hub

    model = parse(name)
    assert model is not None  # else it is a name of another source
    revision = model.revision
    folder = _download(model, revision, FILES)
    if not _holds(folder, "*.safetensors") and revision is None:
        revision = _conversion(model, folder)
        if revision is not None:
            logger.info("%s has no safetensors; those of its %s are read", model.id, revision)
            folder = _download(model, revision, FILES)
    pickles = [] if _holds(folder, "*.safetensors") else PICKLES
    dense = [*folder.glob("*_Dense")]
    if not all((module / "model.safetensors").is_file() for module in dense):
        pickles = pickles + DENSE_PICKLES
    if pickles:
        folder = _download(model, revision, FILES + pickles)
    if not _holds(folder, "*.safetensors") and not _holds(folder, "pytorch_model.bin*"):
        names: list[str] = []
        with contextlib.suppress(Exception):  # without a network
            names = huggingface_hub.HfApi().list_repo_files(model.id, revision=revision)
        raise other_files.refusal(sorted(names), f"{PREFIX}{model.id}") or CheckpointError(
            f"the model {model.id!r} of the Hugging Face Hub has no model.safetensors and no "
            "pytorch_model.bin; choose a model that has one of them"
        )
    return folder


def _download(model: HubModel, revision: str | None, files: list[str]) -> Path:
    import huggingface_hub

    try:
        return Path(
            huggingface_hub.snapshot_download(model.id, revision=revision, allow_patterns=files)
        )
    except Exception as error:  # its own, the HTTP library's and the system's
        reason = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        raise CheckpointError(
            f"{'' if model.marked else f'there is no such path{_hint(model)}, and '}"
            f"the model {model.id!r}"
            f"{f' at {revision!r}' if revision else ''} cannot be fetched from the "
            f"Hugging Face Hub: {reason[:300]}"
        ) from error


def _holds(folder: Path, pattern: str) -> bool:
    return any(any(folder.glob(f"{inner}{pattern}")) for inner in _FOLDERS)


def _conversion(model: HubModel, folder: Path) -> str | None:
    """The revision in which the Hub's bot offers safetensors of the latest commit, None without.

    Anybody can open a pull request: only the bot's is taken, if it is one commit after the latest.
    Without a network it is the one that the cache holds beside the `folder` of the model, if this
    has no weights.
    """
    import huggingface_hub

    api = huggingface_hub.HfApi()
    try:
        offers = api.get_repo_discussions(
            model.id, author=_BOT, discussion_type="pull_request", discussion_status="open"
        )
        for offer in offers:
            if (offer.author, offer.title) != (_BOT, _TITLE):
                continue
            commits = api.list_repo_commits(model.id, revision=offer.git_reference)
            if commits[1].commit_id == api.list_repo_commits(model.id)[0].commit_id:
                return str(offer.git_reference)
    except Exception as error:  # its own, the HTTP library's and the system's
        if not _holds(folder, "pytorch_model.bin*"):
            for fetched in folder.parents[1].glob("refs/refs/pr/*"):
                return f"refs/pr/{fetched.name}"
        logger.info("%s: its pull requests are unknown: %s", model.id, " ".join(str(error).split()))
    return None


def _hint(model: HubModel) -> str:
    """` (did you mean 'models/bert'?)` where a neighbour of the path has a similar name."""
    hint = similar(model.id).strip()
    return f" ({hint})" if hint else ""
