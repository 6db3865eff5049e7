"""ExtractConfig: files, overrides, and errors that name the key, the value and what is allowed."""

from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from bert_features.config.config_files import preset_names
from bert_features.config.extract_config import ExtractConfig
from bert_features.config.kinds import Kind
from bert_features.config.outputs import OutputConfig
from bert_features.config.poolings import POOLINGS
from bert_features.errors import ConfigError
from tests.toy import TOY


def write(tmp_path, text):
    path = tmp_path / "c.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("layers", "wanted"),
    [
        (-1, (-1,)),
        ("-1", (-1,)),
        ("-1, -2,embeddings", (-1, -2, "embeddings")),
        ("embeddings", ("embeddings",)),
        ([-1], (-1,)),
        ([-1, "embeddings"], (-1, "embeddings")),
        (range(-2, 0), (-2, -1)),
        (np.int64(-1), (-1,)),
        ([np.int32(0)], (0,)),
    ],
)
@pytest.mark.parametrize("settings", [ExtractConfig, OutputConfig])
def test_layers_in_every_form(settings, layers, wanted):
    for made in (settings(layers=layers), settings.of({"layers": layers})):
        made = made.outputs[0] if settings is ExtractConfig else made
        assert made.layers == wanted
        assert [type(entry) for entry in made.layers] == [type(entry) for entry in wanted]


def test_the_constructor_takes_what_of_takes():
    outputs = [{"name": "a", "layers": "0"}, {"name": "b"}]
    keywords = {"layers": [-1], "dtype": "float16", "outputs": outputs, "buckets": [8, 16]}
    config = ExtractConfig(checkpoint=Path("folder"), **keywords)
    assert config == ExtractConfig.of({"checkpoint": "folder", **keywords})
    assert config.checkpoint == "folder"
    assert config.outputs == (
        OutputConfig(name="a", layers=0, dtype="float16"),
        OutputConfig(name="b", layers=-1, dtype="float16"),
    )
    assert config.model_fields_set == {"checkpoint", "outputs", "buckets"}
    assert hash(config) == hash(ExtractConfig(checkpoint="folder", **keywords))


def test_its_repr_shows_what_was_set():
    config = ExtractConfig(layers=-1, outputs=[{"name": "a"}])
    assert repr(config) == "ExtractConfig(outputs=(OutputConfig(name='a', layers=(-1,)),))"
    assert repr(ExtractConfig(layers=-1)) == "ExtractConfig(outputs=(OutputConfig(layers=(-1,)),))"


def test_a_cache_implies_dedupe():
    config = ExtractConfig(cache=Path("known"))
    assert (config.cache, config.dedupe) == ("known", True)


# A value of each setting of an output that is not its default, with what it cannot be without.
_OTHER_VALUES = {
    "layers": {"layers": (0,)},
    "combine": {"combine": "sum"},
    "weights": {"combine": "weighted", "weights": (0.5,)},
    "special_tokens": {"special_tokens": False},
    "normalize": {"normalize": True},
    "dim": {"dim": 1},
    "dtype": {"dtype": "float16"},
    "scale_from": {"scale_from": 7},
    "top_k": {"top_k": 2},
    "heads": {"heads": (0,)},
}
_BASES = [
    {"kind": kind, "level": level, **({"pooling": pooling} if pooling else {})}
    for kind in get_args(Kind)
    for level, poolings in POOLINGS.items()
    for pooling in (None, *poolings, "auto", "mean+cls")
]


def planned(settings):
    """The features of settings of a run, or None where they are refused."""
    try:
        return ExtractConfig.of(settings).plan_outputs(TOY)
    except ConfigError:
        return None


def with_last_layer(base):
    """A base that the toy has, of three layers, with those settings that it takes."""
    return next((s for s in ({**base, "layers": (-1,)}, base) if planned(s)), None)


def test_every_setting_changes_the_features_or_is_refused():
    bases = list(filter(None, map(with_last_layer, _BASES)))
    assert len(bases) > 20
    idle, refused = [], 0
    for base in bases:
        for name, values in _OTHER_VALUES.items():
            for place in ("run", "output"):
                before, after = base, {**base, **values}
                if place == "output":
                    before, after = ({"outputs": [s]} for s in (before, after))
                found = planned(after)
                refused += found is None
                if found is not None and found == planned(before):
                    idle.append((place, name, base))
        # How texts are split changes no feature, but the words of features of words.
        assert (planned({**base, "word_split": "whitespace"}) is None) == (base["level"] != "word")
    assert not idle
    assert refused > 100


@pytest.mark.parametrize("name", ["layers", "dtype"])
def test_a_setting_of_the_run_that_every_output_has_itself_is_refused(name):
    own = {"layers": (0,), "dtype": "float16"}
    outputs = [{"name": "a", **own}, {"name": "b", "kind": "sparse"}]
    value = {"layers": (-1,), "dtype": "float16"}[name]
    with pytest.raises(ConfigError, match=f"no output uses {name}; leave {name} out"):
        ExtractConfig.of({"outputs": outputs, name: value})
    ExtractConfig.of({"outputs": [*outputs, {"name": "c"}], name: value})


@pytest.mark.parametrize("preset", preset_names())
def test_the_packages_own_settings_give_way_to_those_of_the_user(preset, tmp_path):
    score = {"kind": "score", "level": "word"}
    assert ExtractConfig.load(preset, **score).outputs[0].kind == "score"
    ExtractConfig.load(preset, kind="layers", level="sequence", pooling="pooler")
    own = [{"name": "a", "layers": (0,), "dtype": "float16"}]
    assert ExtractConfig.load(preset, outputs=own).outputs == (OutputConfig(**own[0]),)
    with pytest.raises(ConfigError, match="layers"):
        ExtractConfig.load(preset, kind="sparse", layers=[0])
    (tmp_path / "own.toml").write_text("layers = [0]\n")
    with pytest.raises(ConfigError, match="layers"):
        ExtractConfig.load(tmp_path / "own.toml", kind="sparse")
