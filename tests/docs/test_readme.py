"""README.md: each command that it shows runs, in a folder with the repository's own files.

Its Python runs in `test_pages`, its scripts in tests/scripts.
"""

import re
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bert_features.cli import app

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "README.md").read_text(encoding="utf-8")
LINES = "".join(re.findall(r"^```\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)).splitlines()
LINES += re.findall(r"`((?:bert-features|bash) [^`]*)`", re.sub(r"```.*?```", "", PAGE, flags=re.S))
COMMANDS = [shlex.split(line, comments=True) for line in LINES]
OURS = [command[1:] for command in COMMANDS if command[0] == "bert-features"]
SERVE = ["serve"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory, minilm_dir) -> Path:
    """A folder with the file that the page makes, and the tests of the repository."""
    folder = tmp_path_factory.mktemp("readme")
    (folder / "tests").symlink_to(ROOT / "tests")
    (made,) = (line for line in LINES if line.startswith("printf "))
    subprocess.run(["bash", "-c", made], cwd=folder, check=True)
    return folder


def test_the_page_has_these_programs():
    assert {command[0] for command in COMMANDS} == {"bash", "source", "printf", "bert-features"}
    scripts = [command[1] for command in COMMANDS if command[0] == "bash"]
    assert [name for name in scripts if not (ROOT / name).is_file()] == []
    assert len(OURS) > 4
    assert SERVE in OURS


@pytest.mark.slow
@pytest.mark.parametrize("command", [each for each in OURS if each != SERVE], ids=" ".join)
def test_a_command_runs(command, folder, monkeypatch):
    monkeypatch.chdir(folder)
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert Path(command[command.index("--output") + 1]).exists()


@pytest.mark.slow
@pytest.mark.release
def test_the_service_begins_and_ends(folder):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "bert_features", *SERVE, "--port", str(port)]
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True) as service:
        tries = iter(range(600))
        while not answers(f"http://127.0.0.1:{port}/"):
            assert service.poll() is None, service.stderr.read()
            assert next(tries, None) is not None
            time.sleep(0.2)
        service.send_signal(signal.SIGINT)
        service.communicate(timeout=60)


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return "<html" in response.read().decode()
    except urllib.error.URLError:
        return False
