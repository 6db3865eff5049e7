"""scripts/venv.sh: which Python it takes, and what an installation says, with a made-up pip."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

VENV = Path(__file__).resolve().parents[2] / "scripts" / "venv.sh"

PIP = """#!/bin/sh
echo "Collecting tensorflow"
echo "  Downloading tensorflow-2.20.whl.metadata (4 kB)"
echo "Downloading tensorflow-2.20.whl (620.7 MB)"
echo "WARNING: a notice about pip" >&2
cat "$(dirname "$0")/go" >/dev/null
echo "Installing collected packages: keras, numpy, tensorflow"
[ "$5$6" = "--progress-baroff" ] || exit 3
[ "$7" != fails ] || { echo "ERROR: no such package" >&2; exit 1; }
"""


@pytest.fixture
def install(tmp_path):
    """Starts `pip_install`; pip waits until something is written to `go`."""
    python = tmp_path / "python"
    python.write_text(PIP)
    python.chmod(0o755)
    os.mkfifo(tmp_path / "go")

    def start(package, seconds):
        return subprocess.Popen(
            ["bash", "-c", f"source {VENV}; pip_install {python} {package}; echo done"],
            env={**os.environ, "PIP_LOG_SECONDS": str(seconds)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    return start


def test_an_installation_says_what_it_does(install, tmp_path):
    process = install("tensorflow", 0.05)
    lines = [process.stderr.readline() for _ in range(3)]
    assert "  downloading tensorflow-2.20.whl (620.7 MB)\n" in lines
    assert any(line.startswith("  pip is at work (") for line in lines)
    (tmp_path / "go").write_text("")
    stdout, stderr = process.communicate(timeout=600)
    assert "  installing 3 packages\n" in stderr
    assert "notice" not in stderr
    assert "metadata" not in stderr
    assert (process.returncode, stdout) == (0, "done\n")


def test_a_failed_installation_shows_pips_own_words_and_ends_the_script(install, tmp_path):
    process = install("fails", 600)
    (tmp_path / "go").write_text("")
    stdout, stderr = process.communicate(timeout=600)
    assert stderr.splitlines()[-1] == "ERROR: no such package"
    assert (process.returncode, stdout) == (1, "")
    assert ended(process.pid)


def ended(group):
    """Whether all processes of a group end within ten seconds; ends those that do not."""
    for _ in range(1000):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.01)
    os.killpg(group, signal.SIGKILL)
    return False


PYTHON = """#!/bin/sh
[ "$1" != -c ] || exit 0
echo "$*" >>"$(dirname "$0")/calls"
if [ "$2" = venv ]; then mkdir -p "$3/bin" && cp "$0" "$3/bin/python"; fi
"""


def test_a_peer_gets_an_environment_of_its_own(tmp_path):
    """The second time it is kept, and pip looks at the requirements again."""
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    (scripts / "venv.sh").write_text(VENV.read_text())
    python = tmp_path / "python"
    python.write_text(PYTHON)
    python.chmod(0o755)
    environment = tmp_path / ".venv-benchmark-flair"
    for _ in range(2):
        subprocess.run(
            ["bash", "-c", f"source {scripts}/venv.sh; install_peer flair"],
            env={**os.environ, "PYTHON": str(python)},
            check=True,
            timeout=600,
        )
    assert (tmp_path / "calls").read_text() == f"-m venv {environment}\n"
    pips = (environment / "bin" / "calls").read_text().splitlines()
    assert len(pips) == 2
    for line in pips:
        assert line.startswith("-m pip install")
        assert line.endswith(f"--requirement {tmp_path}/benchmarks/requirements-flair.txt")


def run_venv(command, **variables):
    return subprocess.run(
        ["bash", "-c", f"source {VENV}; {command}"],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=600,
    )


def test_a_chosen_python_is_taken_or_refused_but_not_replaced():
    assert run_venv("find_python", PYTHON=sys.executable).stdout == f"{sys.executable}\n"
    result = run_venv("find_python", PYTHON="/no/python")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("no Python 3.11 or later: /no/python; ")


def test_an_environment_of_another_python_is_not_taken_for_the_chosen_one(tmp_path):
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/python").write_text("#!/bin/sh\necho 2.7\n")
    (tmp_path / ".venv/bin/python").chmod(0o755)
    result = run_venv(f"root={tmp_path}; install_into_venv demo", PYTHON=sys.executable)
    chosen = "{}.{}".format(*sys.version_info[:2])
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == (
        f".venv has Python 2.7, and PYTHON is {chosen}; delete .venv first, or unset PYTHON\n"
    )
