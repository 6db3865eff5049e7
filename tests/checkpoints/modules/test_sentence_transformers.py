"""Folders that sentence-transformers wrote: their settings, and what is refused."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from bert_features.checkpoints.find import find_checkpoint
from bert_features.checkpoints.modules.sentence_transformers import (
    read_dense,
    read_sentence_transformers,
    write_settings,
)
from bert_features.checkpoints.pooling import auto_length
from bert_features.checkpoints.read import read_weights
from bert_features.config.outputs import parse_outputs
from bert_features.errors import CheckpointError
from tests import sentence_dense
from tests.reference import folder_changes

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
    "name", ["roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet"]
)
def test_older_names_of_the_transformers_file(tmp_path, name):
    """As sentence-transformers reads them: today's name counts unless it holds nothing."""
    write(tmp_path, sentence_bert_config={})
    file = tmp_path / f"sentence_{name}_config.json"
    file.write_text('{"max_seq_length": 7, "do_lower_case": true}')
    settings = read_sentence_transformers(tmp_path)
    assert (settings.max_seq_length, settings.do_lower_case) == (7, True)
    assert file in settings.files
    (tmp_path / "out").mkdir()
    write_settings(settings, tmp_path / "out")
    copy = read_sentence_transformers(tmp_path / "out")
    assert (copy.max_seq_length, copy.do_lower_case) == (7, True)
    file.write_text('{"later": 1}')
    with pytest.raises(CheckpointError, match=rf"{file.name}: later is 1"):
        read_sentence_transformers(tmp_path).check_supported()
    write(tmp_path, sentence_bert_config={"max_seq_length": 5})
    assert read_sentence_transformers(tmp_path).max_seq_length == 5


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"modules": []}, "modules"),
        ({"modules": [1]}, "a module is 1"),
        ({"modules": [{"type": [], "path": ""}]}, "a module is"),
        *(
            ({"modules": modules_of("Transformer", transformer_path=path)}, "path is")
            for path in ("../x", "/etc", "a/../b", "./.hidden", "a\0", "x" * 999)
        ),
        ({"modules": modules_of("Transformer", "Pooling", package="mine.")}, "are mine"),
        ({"modules": modules_of("Transformer", "Pooling", "Pooling")}, "are Transformer"),
        ({"modules": modules_of("Transformer", "Dense", "Pooling")}, "are Transformer"),
        ({"modules": modules_of("Transformer")}, "are Transformer"),
        ({"modules": modules_of("Transformer", "Pooling", "Dense")}, "there is no 2_Dense/config"),
        ({"pooling": None}, "there is no 1_Pooling/config"),
        ({"pooling": {"pooling_mode_mean_tokens": "yes"}}, "mean_tokens is 'yes'"),
        ({"pooling": {"pooling_mode": ["mean", []]}}, "pooling_mode is"),
        ({"pooling": [1]}, "expected a JSON object"),
        *(
            ({"sentence_bert_config": {"max_seq_length": length}}, f"max_seq_length is {length}")
            for length in (-1, True, float("nan"))
        ),
        ({"sentence_bert_config": {"do_lower_case": 1}}, "do_lower_case"),
        ({"config_sentence_transformers": {"prompts": ["a"]}}, "prompts"),
        ({"config_sentence_transformers": {"prompts": {"a": 1}}}, "prompts"),
        ({"config_sentence_transformers": {"default_prompt_name": "q"}}, "default_prompt_name"),
        ({"config_sentence_transformers": {"similarity_fn_name": 1}}, "similarity_fn_name"),
    ],
)
def test_hostile_files_are_one_line(tmp_path, files, message):
    with pytest.raises(CheckpointError, match=message) as raised:
        read_sentence_transformers(write(tmp_path, **files)).check_supported()
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 500


# Beside the changes of `folder_changes`.
NOT_FOLLOWED = [
    ({"2_Dense_config": {"activation_function": "mine.Tanh"}}, "activation_function"),
    ({"2_Dense_config": {"in_features": 0}}, "in_features"),
    ({"2_Dense_config": {"in_features": 10**9}}, "in_features"),
    ({"2_Dense_config": {"bias": "no"}}, "bias"),
    ({"1_Pooling_config": {"pooling_mode": ["cls", "cls"]}}, "pooling_mode"),
    ({"config_sentence_transformers": {"truncate_dim": 0}}, "truncate_dim"),
    ({"config_sentence_transformers": {"truncate_dim": "8"}}, "truncate_dim"),
]


@pytest.mark.parametrize(("changes", "message"), NOT_FOLLOWED)
def test_settings_that_would_change_the_vectors_are_refused_by_name(tmp_path, changes, message):
    folder = sentence_dense.write("labse", tmp_path / "in", **changes)
    settings = find_checkpoint(folder).sentence_transformers
    with pytest.raises(CheckpointError, match=message) as raised:
        settings.check_supported()
    assert "\n" not in str(raised.value)
    (tmp_path / "out").mkdir()
    write_settings(settings, tmp_path / "out")
    assert read_sentence_transformers(tmp_path / "out").unsupported is not None


NEUTRAL = {
    "sentence_bert_config": {"unpad_inputs": True, "model_args": {}, "query_length": None},
    "2_Dense_config": {"use_residual": False, "later_setting": None},
    "1_Pooling_config": {"embedding_dimension": 99, "pooling_mode_mean_tokens": True},
    "3_Normalize_config": {"later_setting": 1},
    "config_sentence_transformers": {"requirements": {}, "truncate_dim": None},
}


@pytest.mark.parametrize("name", folder_changes.FOLDERS)
def test_each_key_that_changes_vectors_is_followed_or_refused_by_name(tmp_path, name):
    """What sentence-transformers computes shows whether it does."""
    verdicts = json.loads((folder_changes.DATA / "folder_changes.json").read_text())[name]
    folder_changes.write(name, tmp_path)

    def read():
        found = find_checkpoint(tmp_path)
        settings, late = found.sentence_transformers, found.multi_vector
        problem = {"dense": settings.unsupported, "sparse": settings.sparse_problem}
        return (settings, late), problem[name] if late is None else late.unsupported

    usual, problem = read()
    assert problem is None
    wrong = []
    for key, change in folder_changes.changes(tmp_path):
        got, problem = read()
        if problem is None and change in verdicts["other"] and got == usual:
            wrong.append(change)
        if problem is not None and key not in problem:
            wrong.append((change, problem))
    assert not wrong


def test_settings_without_an_effect_are_left_aside(tmp_path):
    settings = read_sentence_transformers(sentence_dense.write("labse", tmp_path, **NEUTRAL))
    assert settings.unsupported is None
    assert settings == replace(
        read_sentence_transformers(sentence_dense.write("labse", tmp_path)), files=settings.files
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"linear.weight": np.ones((16, 15), np.float32)}, r"linear.weight \(16, 15\); its "),
        ({"linear.bias": np.ones(16, np.int64)}, "linear.bias is int64, expected floats"),
        ({"residual.weight": np.ones(1, np.float32)}, "holds .*residual.weight"),
        (None, "model.safetensors"),
    ],
)
def test_weights_of_a_dense_that_do_not_fit(tmp_path, changes, message):
    path = sentence_dense.write("labse", tmp_path) / "2_Dense" / "model.safetensors"
    path.write_bytes(b"\xff" * 2000) if changes is None else save_file(
        load_file(path) | changes, path
    )
    settings = read_sentence_transformers(tmp_path)
    with pytest.raises(CheckpointError, match=message):
        read_dense(settings, settings.dense)


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
    lengths = [
        auto_length(found, parse_outputs([{"level": "sequence", "pooling": pooling}]))
        for pooling in ("auto", "mean")
    ]
    assert lengths == [20, None]
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
