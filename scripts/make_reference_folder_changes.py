"""Which changes of the files of sentence-transformers' folders change vectors or scores there.

    .venv-benchmark/bin/python scripts/make_reference_folder_changes.py

`tests/data/folder_changes.json` has for each folder of tests/reference/folder_changes.py the
changes that do (`other`) and those that fail. Nothing of this package is used.
"""

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"  # a change names a repository
import numpy as np
from sentence_transformers import MultiVectorEncoder, SentenceTransformer, SparseEncoder

sys.path.append(str(Path(__file__).resolve().parents[1]))
from tests.reference.folder_changes import DATA, FOLDERS, changes, write

CLASSES: dict[str, Any] = {
    **{"dense": SentenceTransformer, "sparse": SparseEncoder},
    **{"multi_vector": MultiVectorEncoder, "pylate": MultiVectorEncoder},
}
TEXTS = ["The river bank.", "Is this the money of the banks, the boats, the river?", "a boat"]


def compute(name: str, folder: str) -> list[np.ndarray]:
    """The vectors of both sides, and their scores."""
    model = CLASSES[name](folder, device="cpu")
    sides = [model.encode_query(TEXTS), model.encode_document(TEXTS)]
    arrays = [*sides, model.similarity(*sides)]
    flat = [each for side in arrays for each in (side if isinstance(side, list) else [side])]
    return [np.asarray(x.to_dense() if hasattr(x, "to_dense") else x) for x in flat]


def main() -> None:
    """Writes the file."""
    found: dict[str, dict[str, list[str]]] = {}
    for name in FOLDERS:
        with tempfile.TemporaryDirectory() as folder:
            write(name, Path(folder))
            usual = compute(name, folder)
            verdicts: dict[str, list[str]] = {"other": [], "failed": []}
            for _, change in changes(Path(folder)):
                try:
                    got = compute(name, folder)
                except Exception:  # of many types
                    verdicts["failed"].append(change)
                    continue
                same = len(got) == len(usual) and all(
                    a.shape == b.shape and np.allclose(a, b, atol=1e-6)
                    for a, b in zip(got, usual, strict=True)
                )
                verdicts["other"] += [] if same else [change]
            found[name] = verdicts
    (DATA / "folder_changes.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
