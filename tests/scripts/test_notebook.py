"""scripts/colab_tpu.ipynb: all of its cells run, on this machine, with the embedded model."""

import base64
import json
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from bert_features import read_features

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = ROOT / "scripts" / "colab_tpu.ipynb"
KERNEL = "this-python"


@pytest.fixture
def notebook():
    return nbformat.read(NOTEBOOK, as_version=4)


@pytest.fixture
def jupyter(tmp_path, monkeypatch):
    """A kernel that is this Python and this package; its data and settings in a folder of ours."""
    folder = tmp_path / "jupyter"
    spec = {
        "argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": KERNEL,
        "language": "python",
        "env": {"PYTHONPATH": str(ROOT)},
    }
    kernel = folder / "kernels" / KERNEL
    kernel.mkdir(parents=True)
    (kernel / "kernel.json").write_text(json.dumps(spec))
    for name in ("JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(folder))
    monkeypatch.setenv("MPLCONFIGDIR", str(folder))


def execute(notebook, folder):
    client = NotebookClient(
        notebook,
        kernel_name=KERNEL,
        timeout=600,
        resources={"metadata": {"path": str(folder)}},
    )
    client.execute()


def cell(notebook, name):
    (found,) = [cell for cell in notebook.cells if cell.id == name]
    return found


def text_of(cell):
    return "".join(output.text for output in cell.outputs if output.output_type == "stream")


def test_it_is_stored_clean(notebook):
    nbformat.validate(notebook)
    assert notebook.metadata.accelerator == "TPU"
    for stored in notebook.cells:
        assert len(stored.source.splitlines()) < 45
        if stored.cell_type == "code":
            assert stored.outputs == []
            assert stored.execution_count is None
    forms = [line for line in cell(notebook, "settings").source.splitlines() if "@param" in line]
    assert [line.split()[0] for line in forms] == ["SOURCE", "CHECKPOINT", "TEXTS", "OUTPUT"]


@pytest.mark.slow
def test_every_cell_runs(notebook, jupyter, minilm_dir, tmp_path):
    execute(notebook, tmp_path)
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert not [output for output in outputs if output.output_type == "error"]
    assert "bert_features is installed" in text_of(cell(notebook, "install"))
    assert "tensorflow" in text_of(cell(notebook, "doctor"))
    assert " failed" not in text_of(cell(notebook, "verify"))
    assert " passed, " in text_of(cell(notebook, "verify"))
    file = read_features(tmp_path / "features.parquet")
    assert [feature.name for feature in file.features] == ["token", "text"]
    assert [record.features["text"].shape for record in file] == [(384,)] * 4
    assert "[CLS]" in text_of(cell(notebook, "read"))
    (plot,) = [o for o in cell(notebook, "plot").outputs if o.output_type == "display_data"]
    assert base64.b64decode(plot.data["image/png"]).startswith(b"\x89PNG\r\n")


@pytest.mark.slow
def test_a_command_that_fails_fails_its_cell(notebook, jupyter, tmp_path):
    settings = cell(notebook, "settings")
    settings.source = settings.source.replace('"minilm"', '"nowhere"')
    skipped = {"doctor", "verify"}
    notebook.cells = [c for c in notebook.cells if c.id not in skipped]
    texts = cell(notebook, "texts")
    texts.source = "BERT_FEATURES = (sys.executable, '-m', 'bert_features')\n" + texts.source
    with pytest.raises(CellExecutionError, match="CalledProcessError"):
        execute(notebook, tmp_path)
    assert "there is no checkpoint 'nowhere'" in text_of(cell(notebook, "extract"))
    assert not (tmp_path / "features.parquet").exists()
    assert cell(notebook, "read").outputs == []


def test_without_the_package_it_says_what_to_fill_in(notebook, jupyter, tmp_path):
    names = ("settings", "install")
    notebook.cells = [cell(notebook, name) for name in names]
    install = notebook.cells[1]
    install.source = install.source.replace('find_spec("bert_features")', 'find_spec("no_package")')
    with pytest.raises(CellExecutionError, match="SOURCE is empty"):
        execute(notebook, tmp_path)
