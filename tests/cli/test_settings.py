"""The options made from the settings."""

import pytest
import typer

from bert_features import read_features
from bert_features.cli import app
from bert_features.config.extract_config import ExtractConfig
from tests.cli.command_line import run

pytestmark = pytest.mark.usefixtures("one_device")


def test_every_setting_is_an_option():
    names = {"do_lower_case": "--uncased", "outputs": "--output-spec"}
    command = typer.main.get_command(app).commands["extract"]
    options = {o for p in command.params for o in [*p.opts, *p.secondary_opts]}
    for name in ExtractConfig.model_fields:
        assert names.get(name, "--" + name.replace("_", "-")) in options, name
    assert {"--cased", "--overwrite", "--config", "--output", "--debug"} <= options
    assert "INPUT" in run("extract", "--help").output


def test_options_override_the_config_file(toy, text, out, tmp_path):
    config = tmp_path / "c.toml"
    config.write_text(
        f'checkpoint = "{toy}"\nlayers = [0]\ncombine = "sum"\ndo_lower_case = true\n'
    )
    path = out / "o.parquet"
    options = ["--config", config, "--layers=-1,-2", "--max-seq-length", "16", "--dtype", "float16"]
    assert run("extract", text, "-o", path, *options).exit_code == 0
    metadata = read_features(path).metadata
    assert metadata["config"]["layers"] == [-1, -2]
    assert metadata["config"]["combine"] == "sum"
    (feature,) = read_features(path).features
    assert (feature.name, feature.dtype, feature.width) == ("features", "float16", 8)
