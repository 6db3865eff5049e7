"""Every setting: a wrong value is refused with its name, itself and what is allowed.

A right value survives a config file, the options of the command line, and the JSON of a manifest.
What is wrong is decided here, by the words in which an error says what is allowed.
"""

import contextlib
import json
import math
import re
from dataclasses import fields

import pytest
import typer
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bert_features.cli.settings import as_option, takes_settings
from bert_features.config.extract_config import ExtractConfig
from bert_features.config.input_format import InputFormat
from bert_features.config.outputs import OUTPUT_SETTINGS, OutputConfig
from bert_features.config.poolings import POOLINGS
from bert_features.config.serve_settings import Limits, ServeSettings
from bert_features.config.settings import MAX_INT, describe_allowed
from bert_features.errors import ConfigError
from tests.other_values import OTHERS

FIELDS = [
    (kind, name)
    for kind in (ExtractConfig, OutputConfig, InputFormat)
    for name in kind.model_fields
]
MAX_FLOAT32 = 3.4028234e38
TEXT = st.text(st.characters(min_codepoint=32, exclude_categories=["Cs", "Cc"]), max_size=8)
NUMBERS = st.integers(-3, 4) | st.integers(MAX_INT - 1, MAX_INT + 1) | st.floats()
SCALARS = st.booleans() | NUMBERS | TEXT
ANYTHING = SCALARS | st.lists(SCALARS, max_size=3) | st.dictionaries(TEXT, NUMBERS, max_size=1)
# Lists and texts of a form: values that are always wrong, and values that are right.
WORDS = st.sampled_from(
    ["", "-1,,-2", "last", "0--1", "-3-0", "-3:-1", "0-", "-1-2-3", "al", "ALL"]
)
WRONG = {
    "layers": WORDS | st.lists(WORDS | st.floats() | st.booleans(), max_size=2),
    "heads": WORDS | st.integers(-9, -1) | st.lists(st.integers(-9, -1) | st.floats(), max_size=2),
    "weights": st.lists(
        st.sampled_from([math.nan, math.inf, 1e39, "x", True]), min_size=1, max_size=3
    ),
    "buckets": st.lists(st.integers(-9, 2) | st.floats() | TEXT, min_size=1, max_size=3),
    "delimiter": st.sampled_from(["", '"', "\n", "\r", ";;", "tab"]),
    "scale_from": st.sampled_from(["", "0", 0, -1, 0.5, True]),
    "pooling": st.sampled_from(["", "median", "cls+", "cls+pooler", "auto+max", "first+last", 3]),
    "shard": st.sampled_from(["2/2", "1", "-1/2", "a/b", "1/0", "0/0", "0/2/3", "", "0/100000", 1]),
    "spans": st.sampled_from(["", "lines", "0", "8/", "1/2/3", -1, 0, True, 0.5]),
    "outputs": SCALARS,
}
# What their errors say is allowed, where their types say less.
SAID = {
    "pooling": "a string|none|mean",
    "shard": "a string|auto, or I/N with I from 0 to N - 1, .* N at most 99999$",
    "outputs": "a list of tables",
}
LAYERS = st.sampled_from([(-1,), (0, -2), ("embeddings", "all"), (3, 2, 1)])
RIGHT = {
    "combine": st.sampled_from(["none", "sum", "mean", "concat"]),
    "layers": LAYERS,
    "heads": st.sampled_from([(0,), (3, 1), ("all",), ("max",)]),
    "weights": st.lists(st.floats(-1e38, 1e38), min_size=1, max_size=3).map(tuple),
    "buckets": st.sets(st.integers(3, 999), min_size=1, max_size=3).map(lambda s: (*sorted(s),)),
    "delimiter": st.sampled_from([";", "|", "\\t"]),
    "scale_from": st.sampled_from(["7", "scale.npz"]),
    "pooling": st.sampled_from([*POOLINGS["sequence"], "cls+max"]),
    "shard": st.sampled_from(["auto", "0/1", "3/4"]),
    "spans": st.sampled_from(["sentences", "sentences:de", "9", "9/8"]),
    "outputs": st.lists(LAYERS, min_size=1, max_size=2).map(
        lambda all: tuple(OutputConfig(name=f"o{i}", layers=each) for i, each in enumerate(all))
    ),
}


def integers(allowed):
    """The least and the largest of integers, from `an integer from 1 to 9` or `of at least 1`."""
    return (*map(int, re.findall(r"\d+", allowed)), MAX_INT)[:2]


def is_allowed(allowed, value):
    """Whether a value is one of those that the words of an error describe."""
    if allowed == "true or false":
        return type(value) is bool
    if allowed.startswith("an integer"):
        least, most = integers(allowed)
        return type(value) is int and least <= value <= most
    if allowed == "a number above 0":
        return type(value) in (int, float) and 0 < value < math.inf
    if allowed.startswith("a number from 0"):
        return type(value) in (int, float) and 0 <= value <= MAX_FLOAT32
    if allowed.startswith("a string"):
        return isinstance(value, str) and (bool(value) or "not empty" not in allowed)
    return isinstance(value, str) and repr(value.replace("-", "_")) in re.split(", | or ", allowed)


def right_values(kind, name):
    """Right values of a setting by the words of its errors."""
    allowed = describe_allowed(kind.known()[name])
    if name in RIGHT:
        return RIGHT[name]
    if allowed == "true or false":
        return st.booleans()
    if allowed.startswith("an integer"):
        return st.integers(*integers(allowed))
    if allowed == "a number above 0":
        return st.floats(0, exclude_min=True, allow_infinity=False)
    if allowed.startswith("a number from 0"):
        return st.floats(0, MAX_FLOAT32)
    if allowed.startswith("a string"):
        return TEXT.filter(bool)
    return st.sampled_from([word[1:-1] for word in re.split(", | or ", allowed)])


def wrong_values(kind, name):
    """Wrong values of a setting, of every type that TOML has; those of its form are near right."""
    wrong = WRONG.get(name)
    if wrong is not None:
        return wrong if name == "outputs" else wrong | st.dictionaries(TEXT, NUMBERS, max_size=1)
    allowed = describe_allowed(kind.known()[name])
    almost = TEXT.map("{}\0".format)  # NUL is in no name of a file
    if not allowed.startswith("a string"):
        almost = right_values(kind, name).map(lambda value: f"{value}s".upper())
    if allowed.startswith("an integer"):
        least, most = integers(allowed)
        almost = st.sampled_from([least - 1, most + 1, str(least), float(least)])
    return ANYTHING.filter(lambda value: not is_allowed(allowed, value)) | almost


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "name"), FIELDS, ids=lambda each: getattr(each, "__name__", each))
@settings(max_examples=15, deadline=None, derandomize=True)
@given(data=st.data())
def test_a_wrong_value_is_refused_by_name_with_what_is_allowed(kind, name, data):
    assert re.fullmatch(r"[A-Z].*\.", kind.model_fields[name].description)  # its help
    value = data.draw(wrong_values(kind, name))
    with pytest.raises(ConfigError) as caught:
        kind(**{name: value})
    allowed = SAID.get(name) or re.escape(describe_allowed(kind.known()[name]))
    if isinstance(value, str) and "\0" in value:
        allowed = "text without NUL characters"
    start = re.escape(f"{name} is {value!r}; allowed")
    assert re.match(f"{start}( for level 'token')?: ({allowed})", str(caught.value))


@settings(max_examples=25, deadline=None, derandomize=True)
@given(value=st.sampled_from([0, -1, math.nan, math.inf]), name=st.sampled_from(fields(Limits)))
def test_a_wrong_limit_of_the_service_is_refused_by_name(value, name):
    with pytest.raises(ConfigError, match=f"^max_{name.name} is {value}; allowed: a number above"):
        Limits(**{name.name: value})


@pytest.mark.parametrize(
    ("name", "wrong", "allowed"),
    [
        ("port", st.integers(max_value=0) | st.integers(65536), "1 to 65535"),
        ("replicas", st.integers(max_value=0), "1 or more"),
        (
            "drain_seconds",
            st.floats(max_value=-1e-9) | st.sampled_from([math.nan, math.inf]),
            "a number of 0 or more",
        ),
    ],
)
@settings(max_examples=15, deadline=None, derandomize=True)
@given(data=st.data())
def test_a_wrong_setting_of_the_service_is_refused_by_name(name, wrong, allowed, data):
    value = data.draw(wrong)
    with pytest.raises(ConfigError) as caught:
        ServeSettings.of(**{name: value})
    assert str(caught.value) == f"{name} is {value}; allowed: {allowed}"


# What a setting cannot be without, or is not looked at without.
NEEDS = {
    name: {each: value for each, value in values.items() if each != name}
    for name, values in OTHERS.items()
}
READ = []  # what the command below has read
app = typer.Typer()


@app.command()
@takes_settings()
def read(settings: ExtractConfig) -> None:
    """Reads settings."""
    READ.append(settings)


COMMAND = typer.main.get_command(app)


def as_toml(value):
    """A value as TOML writes it; its texts and numbers are those of JSON here."""
    if isinstance(value, OutputConfig):
        pairs = [
            f"{name} = {as_toml(own)}" for name, own in value.model_dump(exclude_unset=True).items()
        ]
        return f"{{ {', '.join(pairs)} }}"
    if isinstance(value, tuple):
        return f"[{', '.join(map(as_toml, value))}]"
    return json.dumps(value, ensure_ascii=False)


def as_arguments(name, value):
    """A setting as the command line has it."""
    if isinstance(value, bool):
        return [as_option(name, str(value))]
    if name == "outputs":
        return [f"{as_option(name)}={as_toml(output)[1:-1]}" for output in value]
    text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return [f"{as_option(name)}={text}"]


@settings(max_examples=100, deadline=None, derandomize=True)
@given(data=st.data())
@pytest.mark.parametrize("several", [False, True])
def test_right_values_survive_a_file_options_and_json(several, data, tmp_path_factory):
    names = st.sampled_from([*ExtractConfig.known()])
    chosen = data.draw(
        st.lists(names, min_size=2, max_size=4) if several else names.map(lambda n: [n])
    )
    values = {}
    for name in chosen:
        values |= NEEDS.get(name, {}) | {name: data.draw(right_values(ExtractConfig, name))}
    fits = False
    with contextlib.suppress(*[ConfigError] * several):  # they may not fit together
        ExtractConfig.of(values)
        fits = True
    assume(fits)
    config = ExtractConfig.of(values)
    file = tmp_path_factory.mktemp("c") / "c.toml"
    (first, *more) = config.outputs
    given = {n: getattr(first if n in OUTPUT_SETTINGS and not more else config, n) for n in values}
    file.write_text("".join(f"{name} = {as_toml(value)}\n" for name, value in given.items()))
    COMMAND.main([a for one in given.items() for a in as_arguments(*one)], standalone_mode=False)
    assert ExtractConfig.load(file) == config == READ.pop()
    recorded = config.model_dump(mode="json", exclude_unset=True)
    assert ExtractConfig.of(json.loads(json.dumps(recorded))) == config
