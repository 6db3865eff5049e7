"""Runs configs/cloud/kaggle/ with the kaggle client, against a stand-in of Kaggle's server.

    python kaggle.py FOLDER

It runs in the environment that scripts/check_cloud.sh makes, with FOLDER as the home. Of the client
only the address of the server is changed. The stand-in takes what the client sends, and answers as
for a new account. It cannot show that Kaggle takes it, nor what a notebook with a TPU does.
"""

import contextlib
import importlib.util
import io
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
KAGGLE = ROOT / "configs" / "cloud" / "kaggle"
USER = "someone"
CLIENT = """#!{python}
from kagglesdk import kaggle_env

kaggle_env._env_to_endpoint[kaggle_env.KaggleEnv.PROD] = "{address}"

from kaggle.cli import main

raise SystemExit(main())
"""


class Server(ThreadingHTTPServer):
    """What Kaggle would have: uploaded files, datasets and notebooks.

    Attributes:
      address: where it listens.
      uploads: the bytes of each upload, by its token.
      names: the name of its file.
      datasets: by name, the files of each version.
      notebooks: what each push sent.
      refuses: whether datasets are refused.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server_port}"
        self.uploads: dict[str, bytes] = {}
        self.names: dict[str, str] = {}
        self.datasets: dict[str, list[dict[str, bytes]]] = {}
        self.notebooks: list[dict[str, Any]] = []
        self.refuses = False

    def answer(self, call: str, sent: dict[str, Any]) -> dict[str, Any] | None:
        """The answer to a call; None for "not found"."""
        if call == "IntrospectToken":
            return {"active": True, "username": USER}
        if call == "GetDatasetStatus":
            known = f"{sent['ownerSlug']}/{sent['datasetSlug']}" in self.datasets
            return {"status": "ready"} if known else None
        if call == "StartBlobUpload":
            token = f"upload-{len(self.names)}"
            self.names[token] = sent["name"]
            return {"token": token, "createUrl": f"{self.address}/{token}"}
        if call in ("CreateDataset", "CreateDatasetVersion"):
            if self.refuses:
                return {"status": "error", "error": "no right to write datasets"}
            body = sent.get("body", sent)
            name = f"{sent['ownerSlug']}/{sent.get('slug') or sent['datasetSlug']}"
            tokens = [each["token"] for each in body["files"]]
            files = {self.names[token]: self.uploads[token] for token in tokens}
            self.datasets.setdefault(name, []).append(files)
            assert sent.get("isPrivate", True), name
            return {"status": "ok", "url": f"/datasets/{name}", "ref": name}
        if call == "SaveKernel":
            self.notebooks.append(sent)
            return {"versionNumber": len(self.notebooks), "url": f"/code/{sent['slug']}"}
        return None


class Handler(BaseHTTPRequestHandler):
    """Takes calls as JSON, and files."""

    server: Server

    def _body(self) -> bytes:
        if "Content-Length" in self.headers:
            return self.rfile.read(int(self.headers["Content-Length"]))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _send(self, status: int, answer: dict[str, Any]) -> None:
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        """A call."""
        answer = self.server.answer(self.path.rpartition("/")[2], json.loads(self._body() or b"{}"))
        self._send(404 if answer is None else 200, answer or {"message": "not found"})

    def do_PUT(self) -> None:
        """The bytes of a file."""
        self.server.uploads[self.path[1:]] = self._body()
        self._send(200, {})

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing."""


def run(home: Path, *files: Path) -> subprocess.CompletedProcess[str]:
    """What a person runs."""
    command = ["bash", KAGGLE / "run.sh", USER, *files]
    return subprocess.run(command, cwd=home, text=True, capture_output=True)


def publisher(module_path: Path) -> Any:
    """extract.py, with the name of the account, as Kaggle gets it."""
    spec = importlib.util.spec_from_file_location("extract", module_path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> None:
    """Runs it as a person does; an AssertionError names what the client did otherwise."""
    home, server = Path(sys.argv[1]), Server()
    programs = home / "bin"
    programs.mkdir()
    client = programs / "kaggle"
    client.write_text(CLIENT.format(python=sys.executable, address=server.address))
    client.chmod(0o755)
    os.environ |= {
        "HOME": str(home),
        "KAGGLE_API_TOKEN": "made-up",
        "KAGGLE_WAIT_SECONDS": "0",
        "PYTHON": sys.executable,
        "PATH": f"{programs}:{os.environ['PATH']}",
    }
    threading.Thread(target=server.serve_forever, daemon=True).start()
    texts = home / "texts.txt"
    texts.write_text("The cat sat.\n", encoding="utf-8")

    server.refuses = True
    ran = run(home, texts)
    assert (ran.returncode, server.notebooks) == (1, []), ran.stdout
    assert "no right to write datasets" in ran.stdout
    server.refuses = False
    for number in (1, 2):  # a new dataset, then a version of it
        ran = run(home, texts)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        (files,) = server.datasets[f"{USER}/bert-features-input"][number - 1 :]
        (wheel,) = [name for name in files if name.endswith(".whl")]
        assert set(files) == {wheel, "constraints.txt", "texts.txt"}, set(files)
        assert files["texts.txt"] == texts.read_bytes()
        assert files[wheel].startswith(b"PK")
        notebook = server.notebooks[number - 1]
        wanted = {
            "slug": f"{USER}/bert-features",
            "newTitle": "bert-features",
            "language": "python",
            "kernelType": "script",
            "isPrivate": True,
            "enableGpu": False,
            "enableTpu": True,
            "enableInternet": True,
            "machineShape": "TpuV5E8",
            "datasetDataSources": [f"{USER}/bert-features-input"],
        }
        assert wanted.items() <= notebook.items(), notebook
        assert "dockerImage" not in notebook  # an image would be one without a TPU
        assert "USERNAME" not in notebook["text"].partition('"""\n')[2]

    kernel = home / "extract_of_kaggle.py"
    kernel.write_text(server.notebooks[-1]["text"], encoding="utf-8")
    module, output = publisher(kernel), home / "features"
    output.mkdir()
    for name in ("_manifest.json", "part-00000-of-00001.parquet"):
        (output / name).write_text(name, encoding="utf-8")
    said = io.StringIO()
    for number in (1, 2):
        with contextlib.redirect_stdout(said):
            assert module.publish(programs, output, home / f"scratch-{number}")
        (files,) = server.datasets[f"{USER}/bert-features-result"][number - 1 :]
        assert {k: v.decode() for k, v in files.items()} == {name: name for name in files}
        assert len(files) == 2
    server.refuses = True
    with contextlib.redirect_stdout(said):
        assert not module.publish(programs, output, home / "scratch-3")
    assert "the features are in the output of this notebook" in said.getvalue()
    print("The kaggle client sends the package, the texts, the notebook for a TPU and the result")


if __name__ == "__main__":
    main()
