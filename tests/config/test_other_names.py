"""Other libraries' names: each is refused with something that exists here."""

import ast
import re

import pytest

import bert_features
from bert_features import Client, ExtractConfig, FeatureExtractor
from bert_features.cli.settings import as_options
from bert_features.config.other_names import OTHER_NAMES, hint_of
from bert_features.errors import ConfigError


def test_each_name_stands_for_settings_and_names_that_exist():
    settings = {*ExtractConfig.known()}
    assert not OTHER_NAMES.keys() & (settings | {*bert_features.__all__})
    for meant in {*OTHER_NAMES.values()}:
        if setting := re.fullmatch(r"([a-z_]+)=('.*')", meant):
            ExtractConfig.of({setting[1]: ast.literal_eval(setting[2])})
        if meant.isidentifier() or "(" in meant or "." in meant:
            known = {"extractor", "ThreadPoolExecutor", "client", "submit", "show_progress"}
            known |= {*settings, *bert_features.__all__, *dir(FeatureExtractor), *dir(Client)}
            assert {*re.findall(r"[a-zA-Z_]\w*(?=\(|\.|$)", meant)} <= known | {"tokens", "width"}


@pytest.mark.parametrize(
    ("name", "meant", "option"),
    [
        ("output_hidden_states", "layers='embeddings,all'", "--layers embeddings,all"),
        ("truncation", "long_text", "--long-text"),
        ("layer_mean", "combine='mean'", "--combine mean"),
        ("padding", "to leave it out", "to leave it out"),
    ],
)
def test_settings_are_written_as_the_user_writes_them(name, meant, option):
    hint = f"did you mean {meant}?"
    assert hint_of(name) == hint
    assert as_options(hint_of(name)) == f"did you mean {option}?"
    with pytest.raises(ConfigError, match=f"^unknown setting '{name}'; {re.escape(hint)}$"):
        FeatureExtractor.from_checkpoint("minilm", **{name: 1})
    with pytest.raises(
        ConfigError, match=re.escape(f"outputs[0]: unknown setting '{name}'; {hint}")
    ):
        ExtractConfig(outputs=[{name: 1}])


@pytest.mark.parametrize("name", ["BertClient", "AutoModel", "SentenceTransformer"])
def test_a_class_of_another_library_is_no_name_of_the_package(name):
    meant = "Client" if name == "BertClient" else "FeatureExtractor"
    with pytest.raises(ImportError, match=f"has no {name}; did you mean {meant}"):
        exec(f"from bert_features import {name}")
    with pytest.raises(AttributeError, match="has no attribute 'Bertclient'"):
        bert_features.Bertclient  # noqa: B018
