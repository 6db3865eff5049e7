"""The archive of a checkpoint in the form of Google's, with contents that only look like it."""

import io
import warnings
import zipfile

import numpy as np

DATA = "bert_model.ckpt.data-00000-of-00001"
RANDOM = np.random.default_rng(0).bytes(1_000_000)
FILES = {
    "vocab.txt": b"[PAD]\n[UNK]\n",
    "bert_config.json": b"{}",
    "bert_model.ckpt.index": b"index",
    "bert_model.ckpt.meta": b"meta",
    DATA: RANDOM,
}


def zipped(members):
    """A zip of (name or ZipInfo, bytes) pairs."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # duplicate names are the point of one of them
        for name, content in members:
            archive.writestr(name, content)
    return buffer.getvalue()


ARCHIVE = zipped(FILES.items())
OTHER = zipped((FILES | {"vocab.txt": b"[PAD]\n[UNK]\nother\n"}).items())


def read_folder(folder):
    """Name -> bytes of the files of a folder."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}
