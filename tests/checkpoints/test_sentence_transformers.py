"""Folders that sentence-transformers wrote: their settings, and what is refused."""

import json
import shutil

import pytest

from bert_features.checkpoints.find import find_checkpoint
from bert_features.checkpoints.read import read_weights
from bert_features.checkpoints.sentence_transformers import read_sentence_transformers
from bert_features.errors import CheckpointError

OLD, NEW = "sentence_transformers.models.", "sentence_transformers.sentence_transformer.modules."
MEAN = {"word_embedding_dimension": 8, "pooling_mode_mean_tokens": True}


def modules_of(*kinds, transformer_path="", package=OLD):
    paths = [transformer_path, *(f"{i}_{kind}" for i, kind in enumerate(kinds[1:], 1))]
    return [
        {"idx": i, "name": str(i), "path": path, "type": f"{package}{kind}"}
        for i, (kind, path) in enumerate(zip(kinds, paths, strict=True))
    ]


THREE = modules_of("Transformer", "Pooling", "Normalize")


def write(folder, modules=THREE, pooling=MEAN, **files):
    """A folder with these modules; `files` are those of the main folder without `.json`."""
    (folder / "1_Pooling").mkdir(parents=True, exist_ok=True)
    if pooling is not None:
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    for name, values in {"modules": modules, **files}.items():
        (folder / f"{name}.json").write_text(json.dumps(values))
    return folder


def test_the_embedded_model_says_how_it_pools():
    settings = find_checkpoint("minilm").sentence_transformers
    assert settings.pooling_modes == ("mean",)
    assert (settings.normalize, settings.max_seq_length) == (True, 256)
    assert (settings.do_lower_case, settings.include_prompt) == (False, True)
    assert (dict(settings.prompts), settings.default_prompt) == ({}, "")
    assert settings.unsupported is None
    settings.check_supported()


def test_other_checkpoints_have_no_such_settings(tf1):
    assert find_checkpoint(tf1).sentence_transformers is None


def test_every_setting(tmp_path):
    settings = read_sentence_transformers(
        write(
            tmp_path,
            modules_of("Transformer", "Pooling"),
            MEAN | {"pooling_mode_cls_token": True, "include_prompt": False},
            sentence_bert_config={"max_seq_length": 128, "do_lower_case": True},
            config_sentence_transformers={
                "prompts": {"query": "query: ", "passage": "passage: "},
                "default_prompt_name": "query",
                "similarity_fn_name": "dot",
            },
        )
    )
    # In the order of sentence-transformers' Pooling, whatever the order in the file.
    assert settings.pooling_modes == ("cls", "mean")
    assert not settings.include_prompt
    assert not settings.normalize
    assert settings.max_seq_length == 128
    assert settings.do_lower_case
    assert settings.prompts["passage"] == "passage: "
    assert settings.default_prompt == "query: "
    assert settings.similarity == "dot"


@pytest.mark.parametrize(
    ("pooling", "modes"),
    [
        ({"word_embedding_dimension": 8}, ("mean",)),
        ({"pooling_mode_max_tokens": True}, ("max",)),
        (MEAN | {"pooling_mode_mean_sqrt_len_tokens": True}, ("mean", "mean_sqrt_len_tokens")),
        # As written from version 5 on.
        ({"embedding_dimension": 8, "pooling_mode": "cls"}, ("cls",)),
        ({"pooling_mode": ["max", "cls"], "pooling_mode_mean_tokens": True}, ("max", "cls")),
    ],
)
def test_poolings(tmp_path, pooling, modes):
    settings = read_sentence_transformers(write(tmp_path, pooling=pooling))
    assert settings.pooling_modes == modes
    assert settings.unsupported is None


def test_names_of_the_newest_version(tmp_path):
    modules = modules_of("pooling.Pooling", "pooling.Pooling", "normalize.Normalize", package=NEW)
    modules[0]["type"] = "sentence_transformers.base.modules.transformer.Transformer"
    modules[1]["path"] = "1_Pooling"
    settings = read_sentence_transformers(write(tmp_path, modules))
    assert settings.unsupported is None
    assert settings.normalize


@pytest.mark.parametrize(
    ("stated", "tokenizer", "expected"),
    [
        ({"max_seq_length": 64}, {"model_max_length": 32}, 64),
        ({"max_seq_length": None}, {"model_max_length": 32}, 32),
        ({}, {"model_max_length": 10**30}, None),
        ({}, {"model_max_length": 1e30}, None),
        ({}, {}, None),
    ],
)
def test_the_longest_sequence(tmp_path, stated, tokenizer, expected):
    folder = write(tmp_path, sentence_bert_config=stated, tokenizer_config=tokenizer)
    assert read_sentence_transformers(folder).max_seq_length == expected


@pytest.mark.parametrize(
    ("modules", "pooling", "message"),
    [
        (modules_of("Transformer", "Pooling", "Dense", "Normalize"), MEAN, r"Pooling, .*Dense"),
        (modules_of("Transformer", "Pooling", "Pooling"), MEAN, "modules are Transformer, Pooling"),
        (modules_of("Transformer"), MEAN, "its modules are Transformer, not"),
        (modules_of("Transformer", "Pooling", package="mine."), MEAN, r"are mine\.Transformer"),
        (THREE, {"pooling_mode_lasttoken": True}, "its pooling is lasttoken"),
        (THREE, None, r"there is no 1_Pooling/config\.json; choose a pooling yourself"),
    ],
)
def test_what_is_not_followed_is_said_where_it_is_asked_for(tmp_path, modules, pooling, message):
    write(tmp_path, modules, pooling)
    settings = read_sentence_transformers(tmp_path)
    with pytest.raises(CheckpointError, match=message):
        settings.check_supported()


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"modules": {}}, r"modules.json is \{\}; allowed: a list of modules"),
        ({"modules": []}, "allowed: a list of modules"),
        ({"modules": [1]}, "a module is 1; allowed: an object with a type and a path"),
        ({"modules": [{"type": [], "path": ""}]}, "a module is"),
        ({"modules": modules_of("Transformer", transformer_path="../x")}, r"path is '\.\./x'"),
        ({"modules": modules_of("Transformer", transformer_path="/etc")}, "path is '/etc'"),
        ({"modules": modules_of("Transformer", transformer_path="a/../b")}, "path is 'a/../b'"),
        ({"modules": modules_of("Transformer", transformer_path="./.hidden")}, "path is './.hid"),
        ({"modules": modules_of("Transformer", transformer_path="a\0")}, "path is"),
        ({"modules": modules_of("Transformer", transformer_path="x" * 999)}, "path is 'xxx"),
        ({"pooling": {"pooling_mode_mean_tokens": "yes"}}, "mean_tokens is 'yes'; allowed: true"),
        (
            {"pooling": {"pooling_mode": ["mean", []]}},
            "pooling_mode is .*allowed: one or sev",
        ),
        ({"pooling": [1]}, "expected a JSON object"),
        ({"sentence_bert_config": {"max_seq_length": -1}}, "max_seq_length is -1; allowed: a numb"),
        ({"sentence_bert_config": {"max_seq_length": True}}, "max_seq_length is True"),
        ({"sentence_bert_config": {"max_seq_length": float("nan")}}, "max_seq_length is nan"),
        ({"sentence_bert_config": {"do_lower_case": 1}}, "do_lower_case is 1; allowed: true"),
        ({"config_sentence_transformers": {"prompts": ["a"]}}, r"prompts is \['a'\]"),
        ({"config_sentence_transformers": {"prompts": {"a": 1}}}, "prompts is"),
        ({"config_sentence_transformers": {"default_prompt_name": "q"}}, "default_prompt_name is"),
        ({"config_sentence_transformers": {"similarity_fn_name": 1}}, "similarity_fn_name is 1"),
    ],
)
def test_hostile_files_are_one_line(tmp_path, files, message):
    with pytest.raises(CheckpointError, match=message) as raised:
        read_sentence_transformers(write(tmp_path, **files)).check_supported()
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 500


def test_weights_beside_damaged_settings_are_usable(copy):
    write(copy, sentence_bert_config={"do_lower_case": None})
    found = find_checkpoint(copy)
    assert read_weights(found)
    assert "do_lower_case is None" in found.sentence_transformers.unsupported


@pytest.fixture
def nested(safetensors, tmp_path):
    """A folder whose weights are in 0_Transformer; the two folders."""
    modules = modules_of("Transformer", "Pooling", transformer_path="0_Transformer")
    main = write(tmp_path / "model", modules, config_sentence_transformers={})
    inner = shutil.copytree(safetensors, main / "0_Transformer")
    (inner / "sentence_bert_config.json").write_text('{"max_seq_length": 20}')
    return main, inner


def test_weights_in_a_folder_of_their_own(nested):
    main, inner = nested
    found = find_checkpoint(main)
    assert found.weights_path == inner / "model.safetensors"
    assert found.vocab_file == inner / "vocab.txt"
    assert found.sentence_transformers.pooling_modes == ("mean",)
    assert found.sentence_transformers.max_seq_length == 20
    assert read_weights(found)
    # The weights alone are a checkpoint without these settings.
    assert find_checkpoint(inner).sentence_transformers is None


@pytest.mark.parametrize(
    ("transformer", "pooling", "expected"),
    [
        ("./0_Transformer", "./1_Pooling", "0_Transformer"),
        ("0_Transformer/", "1_Pooling/", "0_Transformer"),
        (".", "1_Pooling", ""),
        ("./", "1_Pooling", ""),
    ],
)
def test_other_spellings_of_a_modules_folder(tmp_path, transformer, pooling, expected):
    modules = modules_of("Transformer", "Pooling", transformer_path=transformer)
    modules[1]["path"] = pooling
    cls = {"pooling_mode_cls_token": True}
    settings = read_sentence_transformers(write(tmp_path, modules, cls))
    assert settings.transformer_path == expected
    assert settings.pooling_modes == ("cls",)
    assert settings.unsupported is None


@pytest.mark.parametrize("damaged", [False, True])
def test_the_settings_are_files_of_the_checkpoint(nested, damaged):
    main, inner = nested
    if damaged:
        (inner / "sentence_bert_config.json").write_text("{")
    settings = {
        main / "modules.json",
        main / "config_sentence_transformers.json",
        main / "1_Pooling" / "config.json",
        inner / "sentence_bert_config.json",
    }
    files = {path: role for role, path in find_checkpoint(main).files()}
    assert settings < files.keys()
    assert files[main / "modules.json"] == "the checkpoint's modules.json"


def test_a_file_of_such_a_folder(copy):
    write(copy)
    assert find_checkpoint(copy / "model.safetensors").sentence_transformers.normalize
