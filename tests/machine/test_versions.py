"""The versions that a features file records, also from a clone that is not installed."""

import os
import subprocess
import sys
from pathlib import Path

import bert_features
from bert_features.machine.versions import find_versions


def test_this_package_has_one_version():
    assert find_versions("tensorflow")["bert_features"] == bert_features.__version__


def test_a_clone_that_is_not_installed_is_of_unknown_version(tmp_path):
    (tmp_path / "bert_features").symlink_to(Path(bert_features.__file__).parent)
    program = """
import importlib.metadata as metadata
find = metadata.Distribution.from_name
def from_name(name):
    if name == "bert_features":
        raise metadata.PackageNotFoundError(name)
    return find(name)
metadata.Distribution.from_name = from_name
from bert_features.machine.versions import find_versions
print(find_versions("tensorflow")["bert_features"])
"""
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-c", program]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert found.stdout == "unknown\n"
