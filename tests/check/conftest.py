"""Fixtures: a folder of packages, and the doctor's command line on it."""

import json
import sys

import pytest

from bert_features.check import examination
from tests.check.made_up_site import Site
from tests.cli.command_line import run as run_command


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path / "site")


@pytest.fixture
def world(site, monkeypatch):
    """The doctor finds the packages of `site` alone, and imports take them first."""
    monkeypatch.setattr(examination, "installed", lambda: site.packages)
    monkeypatch.setattr(sys, "path", [str(site.folder), *sys.path])
    return site


@pytest.fixture
def doctor():
    """Runs the command; gives its exit status, and check -> finding."""

    def run(*arguments):
        result = run_command("doctor", "--json", *arguments)
        assert result.exit_code in (0, 1), result.output
        report = json.loads(result.stdout)
        assert report["broken"] == (result.exit_code == 1)
        return result.exit_code, {finding["check"]: finding for finding in report["findings"]}

    return run
