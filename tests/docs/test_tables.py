"""The tables of the package stand in the documentation: each name in code, in its own section.

And each module that defines a kind, a reader, a format or a command is in its table.
"""

import re
from dataclasses import fields
from pathlib import Path
from typing import Literal, get_args, get_origin, get_type_hints

import pytest

from bert_features.checkpoints.convert import TARGETS
from bert_features.cli.help import COMMANDS
from bert_features.cli.plot import kinds as plot_commands
from bert_features.cli.settings import as_option
from bert_features.config import settings
from bert_features.config.architectures import ARCHITECTURES
from bert_features.config.extract_config import ExtractConfig
from bert_features.config.input_format import INPUT_FORMATS
from bert_features.config.kinds import KINDS
from bert_features.config.levels import LEVELS
from bert_features.config.outputs import OutputConfig
from bert_features.config.poolings import AUTO_POOLING, POOLINGS
from bert_features.config.serve_settings import Limits, ServeSettings
from bert_features.formats import DTYPES, FORMATS, SUFFIXES

DOCS = Path(__file__).resolve().parents[2] / "docs"
CODE = re.compile(r"^```.*?^```|`[^`]+`", re.MULTILINE | re.DOTALL)


def read_lines_of(page: str, heading: str = "", row: str = "") -> list[str]:
    """The lines of a section with its subsections, or of rows of its tables."""
    text = (DOCS / page).read_text(encoding="utf-8")
    if heading:
        text = text.partition(f"\n{heading}\n")[2]
        level = len(heading.partition(" ")[0])
        text = re.split(rf"^#{{1,{level}}} ", text, maxsplit=1, flags=re.MULTILINE)[0]
    return [line for line in text.splitlines(keepends=True) if line.startswith(row)]


def read_code(page: str, heading: str = "", row: str = "") -> str:
    """The code of a section with its subsections, or of rows of its tables."""
    return "\n".join(CODE.findall("".join(read_lines_of(page, heading, row))))


def missing(names, code: str) -> list[str]:
    return [n for n in names if not re.search(rf"(?<![\w-]){re.escape(n)}(?![\w-])", code)]


INPUTS, FILES = (("formats.md", f"## {name}") for name in ("Inputs", "Formats"))
OUTPUTS = ("outputs.md", "")
MODELS, CONVERSION = (("checkpoints.md", f"## {name}") for name in ("Models", "Conversion"))
SECTIONS = {  # a group of settings -> where they are explained
    settings.INPUT: [INPUTS],
    settings.OUTPUTS: [OUTPUTS],
    settings.LONG_TEXTS: [OUTPUTS],
    settings.MODEL: [("checkpoints.md",)],
    settings.DEVICES: [("tpu.md",), ("corpora.md", "## Shapes and memory")],
    settings.FILES: [FILES, ("corpora.md",)],
}
TYPES = get_type_hints(OutputConfig) | get_type_hints(ExtractConfig)


def values_of(kind) -> list[str]:
    """The words that a setting of a type of words takes."""
    if get_origin(kind) is Literal:
        return [value for value in get_args(kind) if isinstance(value, str)]
    return [value for part in get_args(kind) for value in values_of(part)]


TABLES = {  # what the names are -> a section, or a row of its table, and the names
    "kinds": ((*OUTPUTS, "| `kind` |"), KINDS),
    "levels": (OUTPUTS, LEVELS),
    "levels of vectors": ((*OUTPUTS, "| `level` |"), POOLINGS),
    "poolings of words": ((*OUTPUTS, "| `pooling` of words |"), POOLINGS["word"]),
    "poolings": ((*OUTPUTS, "| `pooling` of seq"), [*POOLINGS["sequence"], AUTO_POOLING]),
    "settings of an output": (OUTPUTS, OutputConfig.model_fields),
    "types of values": (
        (*OUTPUTS, "| `dtype` |"),
        sorted({d for all in DTYPES.values() for d in all}),
    ),
    "input formats": ((*INPUTS, "| `"), INPUT_FORMATS),
    "suffixes of inputs": (
        (*INPUTS, "| `"),
        [s for r in INPUT_FORMATS.values() for s in r.suffixes],
    ),
    "output formats": ((*FILES, "| `"), FORMATS),
    "suffixes": ((*FILES, "| `"), SUFFIXES),
    "checksums": (("formats.md", "### Damage", "| `"), FORMATS),
    "model types": ((*MODELS, "| "), ARCHITECTURES),
    "conversions": (CONVERSION, TARGETS),
    "commands": (("command_line.md",), [f"bert-features {name}" for name in COMMANDS]),
    "pictures": (
        ("plots.md", "## Plots"),
        [f"plot {each.callback.__name__}" for each in plot_commands.registered_commands],
    ),
    "options of serve": (
        ("serving.md",),
        [
            *(as_option(each.name) for each in fields(ServeSettings) if each.metadata),
            *(as_option(f"max_{each.name}") for each in fields(Limits)),
        ],
    ),
}


@pytest.mark.parametrize("table", TABLES)
def test_every_name_stands_in_its_section(table):
    place, names = TABLES[table]
    assert names
    assert not missing(names, read_code(*place)), f"not in {' '.join(place)}"


# Tables whose names are those of one column, and the number of that column.
COLUMNS = {
    **{"kinds": 2, "levels of vectors": 2, "poolings of words": 2, "poolings": 2},
    **{"input formats": 1, "output formats": 1, "model types": 1},
}


@pytest.mark.parametrize("table", COLUMNS)
def test_a_column_of_names_has_no_other_name(table):
    place, names = TABLES[table]
    cells = [line.split(" | ")[COLUMNS[table] - 1] for line in read_lines_of(*place)]
    found = {name for cell in cells for name in re.findall(r"`([a-z][\w-]*)`", cell)}
    found -= {"model_type"}  # the head of its table
    assert found - {*names} == set(), f"in {' '.join(place)}, but not in the code"


def test_the_readme_names_each_model():
    readme = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    (_, *rows) = (line for line in read_lines_of(*MODELS) if line.startswith("| "))
    for row in rows:
        models = re.findall(r"[\w-]+", row.partition(":")[0])
        assert any(re.search(rf"\b{model}\b", readme) for model in models), row


# A room -> how a module begins that defines a thing of its table, the modules that the table names,
# and where each module has tests of its own.
DEFINED = {
    "config/kinds": ('    name = "', [type(kind).__module__ for kind in KINDS.values()], ""),
    "readers": ("def read_rows", [row.module for row in INPUT_FORMATS.values()], "readers"),
    "formats": (r"class Writer\(", FORMATS.values(), "formats"),
    "cli": (r"@command\(", COMMANDS, ""),  # tests/cli/test_help.py finds their tests
}


@pytest.mark.parametrize("room", DEFINED)
def test_each_module_that_defines_a_name_is_in_the_table_and_has_tests(room):
    pattern, names, tests = DEFINED[room]
    modules = (DOCS.parent / "bert_features" / room).glob("*.py")
    begins = re.compile(f"^{pattern}", re.MULTILINE)
    found = {each.stem for each in modules if begins.search(each.read_text(encoding="utf-8"))}
    assert found
    assert found - {name.rpartition(".")[2] for name in names} == set()
    own = [DOCS.parent / "tests" / tests / f"test_{name}.py" for name in found if tests]
    assert [path.name for path in own if not path.is_file()] == []


@pytest.mark.parametrize("name", ExtractConfig.known())
def test_every_setting_stands_in_its_section_with_its_words(name):
    places = SECTIONS[ExtractConfig.marks(name).group]
    code = "\n".join(read_code(*place) for place in places)
    names = {name, as_option(name), as_option(name, "False")}
    assert len(missing(names, code)) < len(names), f"{name} is not in {places}"
    assert not missing(values_of(TYPES[name]), code), f"values of {name} are not in {places}"
