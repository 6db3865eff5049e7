"""Files that hold no weights that are read here: what they are, and what to do about it."""

import contextlib
import re
from pathlib import Path

from bert_features.config import json_files
from bert_features.errors import CheckpointError

CONVERT = (
    "If you trust it, load it once by the program that wrote it, and write the weights alone: "
    "torch.save(model.state_dict(), 'pytorch_model.bin')"
)
_ORIGIN = "pass the model that it was made from"
_ADAPTER = re.compile(r"adapter_(model\.(safetensors|bin)|config\.json)")
_READ = re.compile(r".+\.(json|txt|model|codes|metadata|safetensors|bin|index|data-.+)")
# Pattern of a name in small letters -> what the file is.
_KINDS = {
    _ADAPTER.pattern: "a LoRA adapter, which holds changes to the weights of another model; merge "
    "them once with peft: AutoPeftModel.from_pretrained(DIR).merge_and_unload()"
    ".save_pretrained(OUT)",
    r"tf_model\.h5": "a file of Keras, which is not read; convert it once with transformers 4: "
    "AutoModel.from_pretrained(DIR, from_tf=True).save_pretrained(OUT)",
    r"flax_model\.msgpack": "a file of Flax, which is not read; convert it once with transformers "
    "4: AutoModel.from_pretrained(DIR, from_flax=True).save_pretrained(OUT)",
    r".+\.(h5|keras)": "a model of Keras, which is not read; pass the checkpoint that it was made "
    "from",
    r".+\.(onnx|gguf)": f"a model for another program, which is not read; {_ORIGIN}",
    r".+\.(zip|tar|tgz|tar\.(gz|bz2|xz))": "an archive; unpack it and pass the folder",
    r".+\.(pkl|pickle|ckpt)": "a pickle, which can run any code when it is loaded, and is not read "
    f"here. {CONVERT}",
    r"pytorch_model-.+\.bin": "a shard without its index, pytorch_model.bin.index.json; fetch that "
    "too",
    r".+\.(bin|pt|pth)": "not named pytorch_model.bin; if it holds weights, pass its own path",
}


def is_adapter(name: str) -> bool:
    """Whether a file of this name belongs to a LoRA adapter."""
    return _ADAPTER.fullmatch(name) is not None


def check_regular(path: Path) -> None:
    """Refuses a pipe, which may never end, a device or a folder instead of a checkpoint's file.

    A link that leads nowhere is refused too: its settings would be read as absent. The files
    are those of a folder and of its modules, or a file and those beside it.
    """
    with contextlib.suppress(OSError, ValueError):  # whoever reads it says so
        is_folder = path.is_dir()
        inside = [*path.glob("*"), *path.glob("*/*")] if is_folder else path.parent.glob("*")
        listed = [each for each in inside if _READ.fullmatch(each.name)]
        for each in [path, *listed] if path.exists() and not is_folder else listed:
            if not each.is_file():
                raise CheckpointError(
                    f"{each} is a pipe, a device, a folder or a broken link; allowed there: a file"
                )


def check_pointer(path: Path) -> None:
    """As that of `json_files`, for a file of weights."""
    with contextlib.suppress(OSError), path.open("rb") as file:
        json_files.check_pointer(file.read(len(json_files.LFS_POINTER)), str(path))


def refusal(names: list[str], folder: str | Path) -> CheckpointError | None:
    """The error that says what the first known of these files of a folder is, None if none is."""
    for pattern, what in _KINDS.items():
        for name in names:
            if re.fullmatch(pattern, name.lower()):
                return CheckpointError(f"{folder}/{name} is {what}")
    return None
