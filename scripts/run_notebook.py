"""Runs scripts/colab_tpu.ipynb in Jupyter from top to bottom, and stores its outputs in it.

    python scripts/run_notebook.py               after each change of its code
    python scripts/run_notebook.py --to FILE     stores the notebook with its outputs as FILE

The notebook runs in a new folder. Outputs that describe the machine are not stored. It takes
minutes, and needs `ipykernel` and `nbclient`, which the extra `test` installs.
"""

import argparse
import hashlib
import json
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).resolve().parent / "colab_tpu.ipynb"
OF_THE_MACHINE = ("install", "doctor")


def hash_code(cells: list[dict[str, Any]]) -> str:
    """The SHA-256 of the sources of the code cells: of the code that made the outputs."""
    sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    return hashlib.sha256(json.dumps(sources).encode()).hexdigest()


def execute(notebook: nbformat.NotebookNode, folder: Path) -> None:
    """Runs a notebook in a folder; an error in a cell is a CellExecutionError."""
    waits = {"timeout": None, "startup_timeout": 600}
    client = NotebookClient(notebook, record_timing=False, coalesce_streams=True, **waits)
    client.execute(cwd=str(folder))


def store_outputs(
    notebook: nbformat.NotebookNode, stored: nbformat.NotebookNode, folder: Path
) -> None:
    """Copies outputs into the stored notebook, with paths relative to the folder of the run."""
    for cell, target in zip(notebook.cells, stored.cells, strict=True):
        if cell.cell_type == "code":
            text = json.dumps([] if cell.id in OF_THE_MACHINE else cell.outputs)
            target.outputs = nbformat.from_dict(json.loads(text.replace(f"{folder}/", "")))
    stored.metadata["outputs_of"] = hash_code(stored.cells)


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--to", type=Path, default=NOTEBOOK, help="file to write")
    arguments = parser.parse_args()
    notebook, stored = (nbformat.read(NOTEBOOK, as_version=4) for _ in range(2))
    with tempfile.TemporaryDirectory() as folder:
        execute(notebook, Path(folder))
        store_outputs(notebook, stored, Path(folder))
    arguments.to.write_text(nbformat.writes(stored) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
