"""The options made from the settings."""

import pytest
import typer

from bert_features import read_features
from bert_features.cli import app
from bert_features.cli.settings import as_option, as_options
from bert_features.config.extract_config import ExtractConfig
from tests.cli.command_line import run


def test_every_setting_is_an_option():
    names = {"do_lower_case": "--uncased", "outputs": "--output-spec"}
    command = typer.main.get_command(app).commands["extract"]
    options = {o for p in command.params for o in [*p.opts, *p.secondary_opts]}
    for name in ExtractConfig.known():
        assert names.get(name, "--" + name.replace("_", "-")) in options, name
    assert {"--cased", "--overwrite", "--config", "--output", "--debug"} <= options
    assert "INPUT" in run("extract", "--help").output


@pytest.mark.parametrize(
    ("name", "value", "written"),
    [
        ("max_seq_length", "", "--max-seq-length"),
        ("max_seq_length", "512", "--max-seq-length 512"),
        ("layers", "-1,-2", "--layers=-1,-2"),
        ("long_text", "'window'", "--long-text window"),
        ("normalize", "", "--normalize"),
        ("normalize", "False", "--no-normalize"),
        ("do_lower_case", "True", "--uncased"),
        ("do_lower_case", "False", "--cased"),
        ("vocab_file", "", "--vocab-file"),
        ("outputs", "", "--output-spec"),
        ("overwrite", "True", "--overwrite"),
    ],
)
def test_settings_as_options(name, value, written):
    assert as_option(name, value) == written


@pytest.mark.parametrize(
    ("message", "written"),
    [
        ("long_text is 3; pass long_text='window'", "--long-text is 3; pass --long-text window"),
        ("pass do_lower_case=True or do_lower_case=False", "pass --uncased or --cased"),
        ("end output_path with a /, max_seq_length.", "end --output with a /, --max-seq-length."),
        ("layers needs layers='all'", "layers needs --layers all"),
        ("the texts' long_text isn't 'x'", "the texts' --long-text isn't 'x'"),
    ],
)
def test_messages_name_options(message, written):
    assert as_options(message) == written


@pytest.mark.parametrize(
    "message",
    [
        "the text 'it's long_text or long_text='window'' and \"long_text='a'\" and 'long_text'",
        "long_text/in.txt, long_text.txt, a/long_text, a-long_text and my_long_text",
        "bert_config.json: hidden_act is 1; allowed: gelu",
    ],
)
def test_what_a_user_wrote_stays(message):
    assert as_options(message) == message


def test_options_override_the_config_file(toy, text, out, tmp_path):
    config = tmp_path / "c.toml"
    config.write_text(
        f'checkpoint = "{toy}"\nlayers = [0]\ncombine = "sum"\ndo_lower_case = true\n'
    )
    path = out / "o.parquet"
    options = ["--config", config, "--layers=-1,-2", "--max-seq-length", "16", "--dtype", "float16"]
    assert run("extract", text, "-o", path, *options).exit_code == 0
    metadata = read_features(path).metadata
    (output,) = metadata["recipe"]["settings"]["outputs"]
    assert (output["layers"], output["combine"]) == ([-1, -2], "sum")
    (feature,) = read_features(path).features
    assert (feature.name, feature.dtype, feature.width) == ("features", "float16", 8)
