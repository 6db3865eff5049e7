"""Settings beside a tokenizer's file: the ids of transformers 5.24, or a refusal by name."""

import base64
import json
import os
import shutil

import pytest

from bert_features.checkpoints.tokenizer import tokenizer_of
from bert_features.errors import CheckpointError
from bert_features.text.json_model import JsonModel
from bert_features.text.tokenizer_files import NAMES, read_tokenizer, rules_of, write_tokenizer
from bert_features.text.tokenizer_settings import with_ids
from bert_features.text.vocabulary import ids_of
from tests.tokenizer_settings import (
    CASES,
    GENERIC,
    PIECES,
    REFERENCE,
    SIZE,
    added,
    family_file,
    template,
    wordpiece,
    write,
)

VOCAB = {"vocab.txt": "".join(f"{piece}\n" for piece in PIECES)}
BYTE_LEVEL = CASES["add_prefix_space"].files
BYTE_LEVEL = {name: BYTE_LEVEL[name] for name in ("vocab.json", "merges.txt")}
EXPECTED = json.loads(REFERENCE.read_text())


def _path(folder):
    return next(folder / name for name in NAMES if (folder / name).is_file())


def _read(files, folder, model_type="bert"):
    return read_tokenizer(_path(write(files, folder, model_type)), model_type)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_ids_are_those_of_transformers(name, tmp_path):
    case, expected = CASES[name], EXPECTED[name]
    file = _read(case.files, tmp_path, case.model_type)
    tokenizer = tokenizer_of(file, case.lower)
    assert tokenizer.encode_ids(case.texts) == expected["ids"]
    a, b = expected["ids"][:2]
    frame = tokenizer.frame
    row = [frame.cls_id, *a, *[frame.sep_id] * frame.separators, *b, frame.sep_id]
    assert row == expected["pair"]
    types = [int(frame.has_types) * (n > len(a) + frame.separators) for n in range(len(row))]
    # RoBERTa's models take no types, whatever its tokenizer gives.
    assert types == expected["types"] or case.model_type == "roberta"
    found = tokenizer.encode(case.texts)
    assert [encoding.ids for encoding in found] == expected["ids"]
    if (
        name.startswith("keep_accents") or "offsets" not in expected
    ):  # stripped accents belong to the piece before
        return
    for text, encoding, places in zip(case.texts, found, expected.get("offsets", ()), strict=False):
        for ours, (start, end) in zip(encoding.offsets, places, strict=True):
            part = text[start:end]
            start += len(part) - len(part.lstrip())
            assert ours == (start, start + len(part.strip()))


@pytest.mark.parametrize("name", CASES)
def test_a_copy_gives_the_same(name, tmp_path):
    case = CASES[name]
    (tmp_path / "a").mkdir(), (tmp_path / "b").mkdir()
    source = _path(write(case.files, tmp_path / "a", case.model_type))
    file = read_tokenizer(source, case.model_type)
    target = write_tokenizer(source, tmp_path / "b", case.model_type, case.lower)
    assert target == _path(tmp_path / "b")
    copy = read_tokenizer(target, case.model_type)
    assert (copy.tokens, copy.frame) == (file.tokens, file.frame)
    assert type(copy) is type(file)
    if isinstance(file, JsonModel):
        assert tokenizer_of(copy, case.lower).encode_ids(case.texts) == EXPECTED[name]["ids"]
    else:
        assert rules_of(copy, case.lower) == rules_of(file, case.lower)


def test_plain_files_have_no_rules_and_others_name_theirs(tmp_path):
    plain, rules = ("plain", "klue/roberta", "mpnet", "never_split"), {}
    for name in (*plain, "chinese", "Digits", "added_tokens.json"):
        folder = tmp_path / str(len(rules))
        folder.mkdir()
        file = _read(CASES[name].files, folder, CASES[name].model_type)
        rules[name] = rules_of(file, True)
    assert not any(rules[name] for name in plain)
    assert rules["chinese"] == {"tokenize_chinese_chars": "false"}
    assert "individual_digits" in rules["Digits"]["pre_tokenizer"]
    assert list(file.added) == ["covid-19", "[E1]", "<e1>"]
    assert "covid-19" in rules["added_tokens.json"]["added_tokens"]
    assert tokenizer_of(file, True).splits_words


@pytest.mark.parametrize(("type_of_b", "rules"), [(1, set()), (0, {"post_processor"})])
def test_only_a_post_processor_that_is_not_berts_is_a_rule(type_of_b, rules, tmp_path):
    pair = f"[CLS]:0 A:0 [SEP]:0 B:{type_of_b} [SEP]:{type_of_b}"
    values = wordpiece(post_processor=template("[CLS]:0 A:0 [SEP]:0", pair))
    files = {"tokenizer.json": values, "tokenizer_config.json": GENERIC}
    file = _read(files, tmp_path)
    assert rules_of(file, True).keys() == rules
    assert isinstance(file, JsonModel) is bool(rules)


def test_equal_pieces_and_added_words_of_several(tmp_path):
    config = {"added_tokens_decoder": {str(SIZE + 1): {"content": "the river"}}}
    files = {"vocab.txt": VOCAB["vocab.txt"] + "the\n", "tokenizer_config.json": config}
    tokenizer = tokenizer_of(_read(files, tmp_path), True)
    assert tokenizer.tokenize("The river, the the river.") == [
        "the river",
        ",",
        "the",
        "the river",
        ".",
    ]
    assert tokenizer.encode_ids(["the"]) == [[SIZE]]
    assert not tokenizer.splits_words


@pytest.mark.parametrize("takes", [None, "lstrip", "rstrip"])
def test_an_added_word_that_takes_a_blank_of_either_side_splits_no_words(takes, tmp_path):
    word = {"content": "[E1]"} | ({takes: True} if takes else {})
    config = {"added_tokens_decoder": {str(SIZE): word}}
    file = _read(VOCAB | {"tokenizer_config.json": config}, tmp_path)
    assert tokenizer_of(file, True).splits_words is (takes is None)


def test_added_tokens_without_an_id_come_behind_those_with_one(tmp_path):
    config = {"additional_special_tokens": ["[E0]"]}
    files = VOCAB | {"added_tokens.json": {"[E1]": SIZE}, "tokenizer_config.json": config}
    assert _read(files, tmp_path).tokens == [*PIECES, "[E1]", "[E0]"]
    alone = {"content": "[E0]", "id": None}
    assert with_ids({"[E0]": alone}, {}) == [alone | {"id": 0}]


def test_a_special_token_may_be_added_to_a_vocabulary_without_it(tmp_path):
    pieces = [piece for piece in PIECES if piece != "[MASK]"]
    files = {"vocab.txt": "\n".join(pieces), "added_tokens.json": {"[MASK]": len(pieces)}}
    file = _read(files, tmp_path)
    assert file.tokens == [*pieces, "[MASK]"]
    assert file.frame.mask_id == len(pieces)


def test_special_tokens_in_a_text_are_text(tmp_path):
    for name in ("WhitespaceSplit", "added_tokens.json", "do_basic_tokenize"):
        folder = tmp_path / name
        folder.mkdir()
        tokenizer = tokenizer_of(_read(CASES[name].files, folder), True)
        assert set(tokenizer.encode_ids(["[CLS] [SEP] <s> [MASK]"])[0]) == {1}, name


def _config(**values):
    return VOCAB | {"tokenizer_config.json": values}


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (_config(tokenizer_class="BertJapaneseTokenizer"), "BertJapaneseTokenizer"),
        (_config(tokenizer_class="PhobertTokenizer"), "PhobertTokenizer"),
        (_config(cls_token="<s>"), "cls_token"),
        (_config(strip_accents="no"), "strip_accents"),
        (_config(do_lower_case="false"), "do_lower_case"),
        (_config(tokenize_chinese_chars=0), "tokenize_chinese_chars"),
        (_config(added_tokens_decoder={"9999": {"content": "[Q]"}}), r"'\[Q\]' has id 9999"),
        (_config(added_tokens_decoder={"x": {}}), "vocab.txt"),
        (_config(added_tokens_decoder={"45": 3}), "vocab.txt"),
        (VOCAB | {"bpe.codes": "a b"}, "BertweetTokenizer"),
        (
            BYTE_LEVEL | {"tokenizer_config.json": {"tokenizer_class": "HerbertTokenizerFast"}},
            "HerbertTokenizer",
        ),
        (BYTE_LEVEL | {"config.json": {"tokenizer_class": "GPT2Tokenizer"}}, "GPT2Tokenizer"),
        (
            {
                "vocab.txt": "\n".join([*PIECES[:-2], *PIECES[:-3:-1]]),
                "tokenizer.json": wordpiece(),
            },
            f"'{PIECES[-2]}' has id {SIZE - 1} in the first",
        ),
        (VOCAB | {"added_tokens.json": {"x": 2**32 - 1}}, "'x' has id 4294967295"),
        (VOCAB | {"added_tokens.json": "[" * 100_000}, "added_tokens.json"),
        (VOCAB | {"tokenizer_config.json": "[]"}, "tokenizer_config.json"),
        ({"tokenizer.json": wordpiece(more=[added(SIZE + 5, "[Q]")])}, "whose ids are not 0 to"),
    ],
)
def test_other_files_that_are_not_followed(files, message, tmp_path):
    with pytest.raises(CheckpointError, match=message):
        _read(files, tmp_path)


def _split(regex):
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}


def _replace(**rule):
    return {"type": "Replace", "pattern": {"String": "a"}, **rule}


def _charsmap(text, units=b""):
    data = (1024).to_bytes(4, "little") + units.ljust(1024, b"\0") + text
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(data).decode()}


HOSTILE = [
    ({"pre_tokenizer": _split("(")}, "no tokenizer that can be read"),
    ({"normalizer": _replace(content="x" * 10**6)}, "4,000,004 letters of one that its normalizer"),
    (
        {"normalizer": {"type": "Sequence", "normalizers": [_replace(content="aa")] * 40}},
        "can make; allowed: 256",
    ),
    ({"normalizer": {"type": "Prepend", "prepend": "x" * 999}}, "4,000 letters of one"),
    ({"normalizer": _charsmap(b"x" * 999)}, "3,996 letters of one"),
    ({"normalizer": _charsmap(b"x\0\xff")}, "its precompiled_charsmap is damaged"),
    ({"normalizer": {"type": "Precompiled", "precompiled_charsmap": "8P///w=="}}, "damaged"),
    (
        {"normalizer": {"type": "Sequence", "normalizers": [{"type": "ByteLevel"}] * 20}},
        "letters of one",
    ),
    (
        {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "ByteLevel"}] * 20}},
        "letters of one",
    ),
    ({"normalizer": _replace(pattern={"String": ""}, content="x")}, "no tokenizer that can be"),
    ({"normalizer": _replace(pattern={"Regex": "x*"}, content="x")}, "no tokenizer that can be"),
    ({"pre_tokenizer": _split("(" * 999 + "a" + ")*" * 999)}, "999 groups of a Regex; allowed: 64"),
    ({"pre_tokenizer": _split("a" * 4097)}, "4,097 letters of a Regex; allowed: 4,096"),
    ({"model__continuing_subword_prefix": "__"}, "model.continuing_subword_prefix is '__'"),
    (
        {"model__vocab": {"a": 0, "zz": 2**32 - 1}, "model__merges": [], "added_tokens": []},
        "has 2 pieces, but an id of 4294967295",
    ),
    (  # the first id that leaves out too many
        {"model__vocab": {"a": 0, "zz": 2**16 + 3}, "model__merges": [], "added_tokens": []},
        "has 2 pieces, but an id of 65539",
    ),
    ({"model__vocab": {"a": 0, "zz": 2**32}}, "no tokenizer that can be read"),
    ({"model__vocab": {}}, "no tokenizer that can be read|post_processor"),
    ({"model__dropout": 0.5}, "model.dropout is 0.5"),
    ({"added_tokens": [{"content": "x"}]}, "has no text and id"),
    ({"added_tokens": [added(2**31, "[x]")]}, r"'\[x\]' has id 2147483648, but the ids"),
    ({"post_processor": template("[CLS]:0", "[CLS]:0")}, "no tokenizer|post_processor"),
]


@pytest.mark.parametrize(("changes", "message"), HOSTILE)
def test_hostile_files_are_refused_in_one_line(changes, message, tmp_path, capfd):
    values = json.loads(json.dumps(CASES["ModernBERT with markers"].files["tokenizer.json"]))
    for path, value in changes.items():
        parent, _, last = path.rpartition("__")
        (values[parent] if parent else values)[last] = value
    with pytest.raises(CheckpointError, match=message) as caught:
        _read({"tokenizer.json": values}, tmp_path, "modernbert")
    assert "\n" not in str(caught.value)
    os.write(2, b"after")
    assert capfd.readouterr().err == "after"  # and nothing by the library itself


def test_a_tokenizer_is_tried_without_a_standard_error(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "dup", lambda _: (_ for _ in ()).throw(OSError(9, "closed")))
    assert _read(CASES["ModernBERT with markers"].files, tmp_path, "modernbert").tokens


def test_a_text_at_which_the_library_panics_is_one_error(tmp_path):
    files = {
        "tokenizer.json": wordpiece(pre_tokenizer=_split("(b+)+$")),
        "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast"},
    }
    tokenizer = tokenizer_of(_read(files, tmp_path), True)
    with pytest.raises(CheckpointError, match=r"fails at a text: .*retry-limit"):
        tokenizer.encode_ids(["b" * 40 + "!"])


def test_a_sentencepiece_model_of_endless_numbers_is_refused(tmp_path):
    path = tmp_path / "spiece.model"
    path.write_bytes(b"\xff" * 3_000_000)
    with pytest.raises(CheckpointError, match="not a SentencePiece model"):
        read_tokenizer(path)


def test_tokens_added_to_a_sentencepiece_model_are_those_of_tokenizer_json(family_files, tmp_path):
    shutil.copyfile(family_files / "albert" / "spiece.model", tmp_path / "spiece.model")
    values = json.loads((family_files / "roberta" / "tokenizer.json").read_text())
    count = len(values["model"]["vocab"])
    values["added_tokens"] = [added(count, "[E1]")]
    file = _read({"tokenizer.json": values}, tmp_path)
    assert file.tokens[count] == "[E1]"
    assert ids_of(file.tokens)["[E1]"] == tokenizer_of(file, False).encode_ids(["[E1]"])[0][0]


@pytest.mark.parametrize("files", [VOCAB, VOCAB | {"added_tokens.json": {"[Q]": SIZE}}])
def test_a_tokenizer_whose_inputs_are_without_types(files, tmp_path):
    inputs = {"model_input_names": ["input_ids", "attention_mask"]}
    file = _read(files | {"tokenizer_config.json": inputs}, tmp_path)
    assert not file.frame.has_types
    assert not tokenizer_of(file, True).frame.has_types
    assert "token_type_ids" in rules_of(file, True)
    (tmp_path / "copy").mkdir()
    copy = write_tokenizer(_path(tmp_path), tmp_path / "copy", "bert", True)
    assert not read_tokenizer(copy, "bert").frame.has_types


@pytest.mark.parametrize(
    ("tokenizer_class", "counts"),
    [
        ("PreTrainedTokenizerFast", True),
        ("TokenizersBackend", True),
        ("XLMRobertaTokenizer", False),
    ],
)
def test_a_tokenizer_json_beside_a_sentencepiece_model(tokenizer_class, counts, tmp_path):
    files = {
        "sentencepiece.bpe.model": family_file("xlm_roberta/sentencepiece.bpe.model"),
        "tokenizer.json": CASES["ModernBERT with markers"].files["tokenizer.json"],
        "tokenizer_config.json": {"tokenizer_class": tokenizer_class},
    }
    files["tokenizer.json"] = files["tokenizer.json"] | {"added_tokens": []}
    assert isinstance(_read(files, tmp_path, "xlm-roberta"), JsonModel) is counts
