"""doctor: the table that it prints."""

import re

from bert_features.doctor import examination
from tests.cli.command_line import run
from tests.doctor.made_up_site import Site


def test_the_table_is_a_line_for_each_check_and_one_for_each_command(tmp_path, monkeypatch):
    site = Site(tmp_path / "site").install("bert_features", "0.1.0", requires=["keras>=3.10"])
    site.install("keras", "2.15.0")
    monkeypatch.setattr(examination, "installed", lambda: site.packages)
    result = run("doctor")
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    place = next(i for i, line in enumerate(lines) if line.split()[1] == "keras")
    assert re.fullmatch(r"broken +keras +keras is 2\.15\.0 \(required: >=3\.10\)", lines[place])
    assert lines[place + 1].strip() == "pip install 'keras>=3.10'"
    assert re.fullmatch(r"\d+ broken, \d+ warnings", lines[-1])
