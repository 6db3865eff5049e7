"""configs/extract/: the commands in each file's comment write the features that it promises.

They run with the embedded model; surprisal needs a masked-LM head, which the toy checkpoint of
`tests/data/masked_lm` has.
"""

import re
import shlex
from pathlib import Path

import pytest

from bert_features import read_features
from bert_features.config.config_files import PRESETS, preset_names
from bert_features.config.extract_config import ExtractConfig
from tests.cli.command_line import run
from tests.markers import of_release

ROOT = Path(__file__).resolve().parents[2]
# Each text with its number of tokens, of words, and of words between white space.
TEXTS = {
    "The bank of the river.": (8, 6, 5),
    "": (2, 0, 0),
    "Embeddings of a bank's story!": (13, 8, 5),  # em ##bed ##ding ##s
}
# What a test cannot have, and what it has instead.
OPTIONS = {"surprisal": ["--checkpoint", ROOT / "tests" / "data" / "masked_lm", "--uncased"]}


def test_the_folder_is_the_packages_and_has_these_files():
    folder = ROOT / "configs" / "extract"
    if folder.exists():  # it is a link, which a source distribution leaves out
        assert folder.samefile(PRESETS)
        path = folder / "pogiatzis.toml"  # its settings give way by either name
        assert ExtractConfig.load(path, kind="score") == ExtractConfig.load(
            "pogiatzis", kind="score"
        )
    names = "attention int8_search pogiatzis sentences surprisal words"
    assert preset_names() == names.split()
    shown = " ".join(run("extract", "--help").stdout.split())
    assert f"comes with the package: {', '.join(preset_names())}." in shown


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [name if name in ("sentences", "words") else of_release(name) for name in preset_names()],
)
def test_the_commands_write_what_the_comment_promises(name, tmp_path, monkeypatch):
    comment, _, settings = (PRESETS / f"{name}.toml").read_text().partition("\n\n")
    assert all(line.startswith("#") for line in comment.splitlines())
    assert "[" not in re.findall("^.", settings, re.MULTILINE)  # flat
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    (extract, *others) = [
        shlex.split(command.replace("\\\n#", ""))
        for command in re.findall(r"^#   bert-features ((?:.*\\\n)*.*)$", comment, re.MULTILINE)
    ]
    assert extract[-2:] == ["--config", name]
    for command in ([*extract, *OPTIONS.get(name, [])], *others):
        result = run(*command)
        assert result.exit_code == 0, result.output
    file = read_features(tmp_path / extract[extract.index("--output") + 1])
    promises = re.findall(r"^#   (\w+: \w+ \[.*)$", comment, re.MULTILINE)
    assert promises == [describe(feature) for feature in file.features]
    for record, (tokens, words, parts) in zip(file, TEXTS.values(), strict=True):
        sizes = {"tokens": tokens, "words": parts if name == "surprisal" else words}
        for feature, promise in zip(file.features, promises, strict=True):
            shape = re.findall(r"\w+", promise.partition("[")[2].partition("]")[0])
            expected = tuple(sizes[n] if n in sizes else int(n) for n in shape)
            values = record.features[feature.name]
            assert (values.dtype, values.shape) == (feature.dtype, expected)


def describe(feature):
    """A feature as a comment promises it."""
    width = feature.width
    shape = {
        "token": f"tokens, {width}",
        "word": f"words, {width}",
        "sequence": f"{width}",
        "word_pair": f"{width}, words, words",
    }[feature.level]
    layers = ", ".join(map(str, feature.layers))
    joined = f"{feature.combine} of layers" if len(feature.layers) > 1 else "layer"
    return f"{feature.name}: {feature.dtype} [{shape}], {joined} {layers}"
