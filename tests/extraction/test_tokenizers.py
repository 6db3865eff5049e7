"""Checkpoints with the tokenizers of other families: found, run, exported, converted, refused."""

import hashlib
import json
import shutil
import struct

import numpy as np
import pytest
from google.protobuf.empty_pb2 import Empty
from google.protobuf.unknown_fields import UnknownFieldSet
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from bert_features import FeatureExtractor, export_savedmodel, extract, load_export
from bert_features.checkpoints.convert import convert
from bert_features.checkpoints.find import find_checkpoint
from bert_features.checkpoints.read import read_weights
from bert_features.checkpoints.tokenizer import check_vocab, make_tokenizer, tokenizer_of
from bert_features.config.extract_config import ExtractConfig
from bert_features.errors import CheckpointError, ConfigError
from bert_features.export.checks import Options, check_source
from bert_features.extraction.recipe import plan_recipe
from bert_features.layers.features import BertFeatures
from bert_features.layers.text_input import BertTextInput
from bert_features.neighbors.queries import _token_vector
from bert_features.readers.input_example import InputExample
from bert_features.serving.catalog import config_to_serve
from bert_features.text.tokenizer_files import read_tokenizer
from tests.cli.command_line import run
from tests.family_tokenizers import DATA, FILES, golden
from tests.reference.numpy_encoder import NumpyEncoder
from tests.reference.tf1_checkpoint import write_directory
from tests.serving.conftest import make_client
from tests.serving.over_http import make_service
from tests.toy import TOY, random_weights

CONFIG = TOY.model_copy(update={"vocab_size": 1024, "max_position_embeddings": 64})
SIZES = {"albert": 1000, "xlm_roberta": 1002, "roberta": 1024, "modernbert": 1024}
LAST = {"name": "last", "layers": [-1]}
TEXTS = ["In 1948, two  blanks", "日本国憲法 第一章", ""]


def write(folder, name, family_files):
    """A toy BERT with the tokenizer of a family."""
    config = CONFIG.model_copy(update={"vocab_size": SIZES[name]})
    write_directory(folder, config, [], random_weights(config))
    (folder / "vocab.txt").unlink()
    for path in (family_files / name).iterdir():
        shutil.copy(path, folder)
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory, family_files):
    root = tmp_path_factory.mktemp("families")
    return {name: write(root / name, name, family_files) for name in FILES}


@pytest.fixture(scope="module", params=FILES)
def folder(request, folders):
    return folders[request.param]


@pytest.mark.slow
def test_the_tokenizer_is_found_beside_the_weights(folder):
    found = find_checkpoint(folder)
    assert found.vocab_file == folder / FILES[folder.name]
    assert found.do_lower_case is (folder.name == "albert")
    texts = json.loads(str(golden("texts")))
    ids = [number for row in make_tokenizer(found).encode_ids(texts) for number in row]
    assert ids == golden(f"{folder.name}.ids").tolist()
    shown = run("inspect", folder)
    assert FILES[folder.name] in shown.stdout


def test_camembert_takes_ids_of_its_own_from_its_sentencepiece_model(folders, tmp_path):
    """The file looks like XLM-R's; transformers' own tokenizer gave the ids."""
    golden_values = json.loads((DATA / "camembert.json").read_text())
    folder = shutil.copytree(folders["xlm_roberta"], tmp_path / "copy")
    values = json.loads((folder / "config.json").read_text())
    values |= {"model_type": "camembert", "vocab_size": 1005}
    (folder / "config.json").write_text(json.dumps(values))
    tokenizer = make_tokenizer(find_checkpoint(folder))
    assert tokenizer.encode_ids(golden_values["texts"]) == golden_values["ids"]
    frame, tokens = tokenizer.frame, tokenizer.tokens
    assert [frame.pad_id, frame.unknown_id, frame.mask_id] == golden_values["specials"]
    assert [tokens[number] for number in frame.special_ids] == ["<s>", "</s>"]
    cls, sep = [frame.cls_id], [frame.sep_id]
    for pair, ids in zip(golden_values["pairs"], golden_values["pair_ids"], strict=True):
        first, second = tokenizer.encode_ids(pair)
        assert [*cls, *first, *sep * frame.separators, *second, *sep] == ids
    # The command takes the file alone, if it knows the family: by its config, here or elsewhere.
    path, vocabulary = tmp_path / "in.txt", find_checkpoint(folder).vocab_file
    known = zip(golden_values["texts"], golden_values["ids"], strict=True)
    texts, want = zip(*((t, ids) for t, ids in known if t.strip() and t.isprintable()), strict=True)
    path.write_text("\n".join(texts) + "\n")
    alone, config = shutil.copy(vocabulary, tmp_path), folder / "config.json"
    for options in ([vocabulary], [alone, "--config-file", config]):
        result = run("tokenize", path, "--format", "ids", "--vocab-file", *options)
        lines = result.stdout.splitlines()
        assert [list(map(int, line.split())) for line in lines] == list(want)


def test_robertas_first_files_are_its_tokenizer(folders, tmp_path):
    """vocab.json and merges.txt, without a tokenizer.json."""
    folder = shutil.copytree(folders["roberta"], tmp_path / "copy")
    model = json.loads((folder / "tokenizer.json").read_text())["model"]
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.json").write_text(json.dumps(model["vocab"]))
    merges = "".join(f"{first} {second}\n" for first, second in model["merges"])
    (folder / "merges.txt").write_text(f"#version: 0.2\n{merges}")
    found = find_checkpoint(folder)
    assert (found.vocab_file.name, found.do_lower_case) == ("vocab.json", False)
    texts, tokenizer = json.loads(str(golden("texts"))), make_tokenizer(found)
    encodings = tokenizer.encode(texts)
    assert [n for e in encodings for n in e.ids] == golden("roberta.ids").tolist()
    other = make_tokenizer(find_checkpoint(folders["roberta"]))
    assert tokenizer.frame == other.frame
    assert [e.offsets for e in encodings] == [e.offsets for e in other.encode(texts)]
    convert(found, tmp_path / "out", to="safetensors")
    again = make_tokenizer(find_checkpoint(tmp_path / "out"))
    assert again.encode_ids(texts) == [e.ids for e in encodings]
    assert again.encode_ids(["a<s></s>"]) == tokenizer.encode_ids(["a<s></s>"])
    (folder / "merges.txt").unlink()
    with pytest.raises(CheckpointError, match=r"vocab\.json"):
        make_tokenizer(find_checkpoint(folder))


def test_a_special_token_that_is_typed_is_text_in_a_tokenizer_json_too(family_files, tmp_path):
    """As in SentencePiece; `tokenizers` by itself finds <s> among the pieces."""
    values = json.loads((DATA / "camembert.json").read_text())
    source = family_files / "xlm_roberta" / FILES["xlm_roberta"]
    model = read_tokenizer(source)
    assert tokenizer_of(model, False).encode_ids(values["typed"]) == values["typed_ids"]
    path = tmp_path / "tokenizer.json"
    write_unigram(source, model.tokens, path)
    made = tokenizer_of(read_tokenizer(path), False)
    assert made.tokens == model.tokens
    assert made.encode_ids(values["typed"]) == values["typed_ids"]


def fields_of(message, number):
    """The values of the fields of a protocol buffer with a number."""
    fields = UnknownFieldSet(Empty.FromString(message))
    return [field.data for field in fields if field.field_number == number]


def write_unigram(source, tokens, path):
    """The tokenizer.json of an XLM-R, as transformers makes it, without normalisation."""
    pieces = fields_of(source.read_bytes(), 1)
    bits = [next(iter(fields_of(piece, 2)), 0) for piece in pieces]
    scores = [struct.unpack("<f", struct.pack("<I", each))[0] for each in bits]
    vocab = list(zip(tokens, [0.0, *scores, 0.0], strict=True))
    tokenizer = Tokenizer(models.Unigram(vocab, unk_id=3))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    ends = {"special_tokens": [("<s>", 0), ("</s>", 2)]}
    pair = "<s> $A </s> </s> $B </s>"
    tokenizer.post_processor = processors.TemplateProcessing("<s> $A </s>", pair, **ends)
    tokenizer.save(str(path))


@pytest.mark.parametrize("model_type", ["bert", "xlm-roberta", "camembert"])
def test_a_table_may_have_rows_beyond_the_pieces_of_xlm_r(folders, model_type):
    """As multilingual MiniLM and E5, whose 250,037 rows are more than the 250,002 pieces."""
    file = read_tokenizer(folders["xlm_roberta"] / FILES["xlm_roberta"])
    config = CONFIG.model_copy(update={"vocab_size": SIZES["xlm_roberta"] + 35})
    check_vocab(file, config.model_copy(update={"model_type": model_type}), "a.model")
    with pytest.raises(CheckpointError, match=r"1002 pieces, .* 1001 rows"):
        check_vocab(file, CONFIG.model_copy(update={"vocab_size": 1001}), "a.model")


@pytest.mark.slow
def test_features_are_those_of_the_framed_ids(folder):
    extractor = FeatureExtractor.from_checkpoint(
        folder,
        outputs=[
            {"name": "t", "layers": [-1]},
            {"name": "w", "layers": [-1], "level": "word"},
            {"name": "m", "layers": [-1], "level": "sequence", "special_tokens": False},
        ],
        word_split="whitespace",
        device="cpu",
    )
    tokenizer, frame = extractor.tokenizer, extractor.tokenizer.frame
    examples = [InputExample(0, TEXTS[0]), InputExample(1, TEXTS[0], TEXTS[1])]
    first, second = tokenizer.encode(TEXTS[:2])
    sep = [frame.sep_id]
    rows = [
        [frame.cls_id, *first.ids, *sep],
        [frame.cls_id, *first.ids, *sep * frame.separators, *second.ids, *sep],
    ]
    encoder = NumpyEncoder(extractor.checkpoint.config, read_weights(extractor.checkpoint))
    for record, ids in zip(extractor(examples), rows, strict=True):
        assert record.tokens == tuple(tokenizer.convert_ids_to_tokens(ids))
        types = np.zeros((1, len(ids)), int)
        if record.unique_id:
            types[0, 1 + len(first.ids) + frame.separators :] = frame.has_types
        states = encoder(np.array([ids]), np.ones_like(types), types)[-1][0]
        np.testing.assert_allclose(record.features["t"], states, atol=1e-5)
        words = TEXTS[0].split() + (TEXTS[1].split() if record.unique_id else [])
        assert list(record.words) == words
        kept = [i for i, number in enumerate(ids) if number not in frame.special_ids]
        np.testing.assert_allclose(record.features["m"], states[kept].mean(axis=0), atol=1e-5)


@pytest.mark.slow
def test_an_answer_of_the_service_has_the_tokens_of_a_pair(folders):
    """RoBERTa puts two separators between the texts."""
    config = ExtractConfig.of({"checkpoint": folders["roberta"], "outputs": [LAST]})
    extractor = FeatureExtractor(
        config_to_serve(config, find_checkpoint(folders["roberta"]).config)
    )
    client = make_client(make_service(extractor))
    body = {"pairs": [["two blanks", "a"], ["a", ""]], "outputs": ["last"], "tokens": True}
    pair, alone = client.post("/v1/features", json=body).json()["results"]
    first, second = extractor.tokenizer.encode(["two blanks", "a"])
    assert pair["tokens"] == ["<s>", *first.tokens, "</s>", "</s>", *second.tokens, "</s>"]
    places = [None, *map(list, first.offsets), None, None, *map(list, second.offsets), None]
    assert pair["offsets"] == places
    assert set(pair["type_ids"]) == {0}
    assert alone["tokens"] == ["<s>", *second.tokens, "</s>"]
    assert alone["offsets"] == [None, *map(list, second.offsets), None]


def test_tokenize_prints_pieces_and_frames(folders, tmp_path):
    path = tmp_path / "in.txt"
    path.write_text("two ||| a\n")
    options = ("--checkpoint", folders["xlm_roberta"], "--special-tokens")
    shown = run("tokenize", path, *options)
    tokens = shown.stdout.split()
    assert tokens[0] == "<s>"
    assert tokens[-4:] == ["</s>", "</s>", "▁a", "</s>"]
    alone = run(
        "tokenize", path, "--vocab", folders["roberta"] / "tokenizer.json", "--format", "jsonl"
    )
    found = json.loads(alone.stdout)
    assert "".join(found["tokens"]) == "twoa"
    assert set(found["type_ids"]) == {0}
    cut = run("tokenize", path, *options, "--max-seq-length", "6", "--format", "ids")
    assert len(cut.stdout.split()) == 6
    assert run("tokenize", path, *options, "--uncased").exit_code != 0


@pytest.mark.slow
@pytest.mark.release
def test_sentencepiece_is_exported_inside(folders, tmp_path):
    folder = folders["albert"]
    settings = {"outputs": [LAST], "max_seq_length": 24}
    to = export_savedmodel(tmp_path / "out", checkpoint=folder, **settings)
    export = load_export(to)
    extractor = FeatureExtractor.from_checkpoint(folder, device="cpu", **settings)
    found = export(TEXTS)
    ids = found["input_word_ids"]
    records = extractor(TEXTS)
    for row, record in zip(ids, records, strict=True):
        assert row[: len(record.token_ids)].tolist() == record.token_ids.tolist()
    np.testing.assert_allclose(
        found["last"][0], records[0].features["last"][: ids.shape[1]], atol=1e-5
    )
    assert export.tokens == tuple(extractor.tokenizer.tokens)
    assert (to / "assets" / "spiece.model").is_file()
    again = find_checkpoint(to)
    assert again.do_lower_case is True
    assert make_tokenizer(again).encode_ids(TEXTS) == extractor.tokenizer.encode_ids(TEXTS)


def test_a_sentencepiece_model_as_the_vocabulary_of_a_layer_is_named(family_files):
    path = family_files / "albert" / FILES["albert"]
    with pytest.raises(CheckpointError, match="is a SentencePiece model"):
        BertTextInput(path)


def test_what_the_host_tokenizes_is_exported_for_ids_alone(folders, tmp_path):
    folder = folders["modernbert"]
    message = "TensorFlow has no operation for .*tokenizer.json.*pass signature='ids'"
    with pytest.raises(ConfigError, match=message):
        export_savedmodel(tmp_path / "text", checkpoint=folder, layers=-1)
    source = check_source(find_checkpoint(folder), Options(signature="ids", layers=-1))
    assert source.special_ids == [1, 2]
    with pytest.raises(ConfigError, match="no WordPiece vocabulary"):
        BertTextInput.from_checkpoint(folder)
    layer = BertFeatures.from_checkpoint(folder, outputs=[LAST | {"special_tokens": True}])
    assert layer.special_ids == (1, 2)


def test_a_converted_checkpoint_keeps_its_tokenizer(folder, tmp_path):
    convert(find_checkpoint(folder), tmp_path / "out", to="tf1")
    found = find_checkpoint(tmp_path / "out")
    assert found.vocab_file.read_bytes() == (folder / FILES[folder.name]).read_bytes()
    assert found.do_lower_case is (folder.name == "albert")


def test_a_table_of_another_size_is_refused(folders, family_files, tmp_path):
    vocab = family_files / "xlm_roberta" / FILES["xlm_roberta"]
    found = find_checkpoint(folders["albert"], vocab_file=vocab)
    with pytest.raises(CheckpointError, match=r"1002 pieces, .* 1000 rows"):
        make_tokenizer(found)


def test_a_recipe_has_the_version_of_tokenizers_and_the_digest_of_the_file(folders):
    for name in ("roberta", "albert"):
        recipe = plan_recipe(ExtractConfig(layers=-1), find_checkpoint(folders[name]))
        assert "tokenizers" in recipe.versions
        digest = hashlib.sha256((folders[name] / FILES[name]).read_bytes()).hexdigest()
        assert recipe.vocabulary == {"sha256": digest}


@pytest.mark.parametrize("dedupe", [False, True])
def test_pieces_of_a_pair_are_counted_without_its_special_tokens(folders, tmp_path, dedupe):
    path = tmp_path / "in.txt"
    path.write_text("two blanks ||| a\nno pair\n" * 2)
    settings = {"layers": -1, "dedupe": dedupe, "max_seq_length": 8, "batch_size": 4}
    config = ExtractConfig.of({"checkpoint": folders["roberta"], **settings})
    extract(config, path, tmp_path / "out.npz", ledger_path=tmp_path / "ledger.jsonl")
    lines = (tmp_path / "ledger.jsonl").read_text().splitlines()
    tokenizer = make_tokenizer(find_checkpoint(folders["roberta"]))
    two, one, alone = (len(ids) for ids in tokenizer.encode_ids(["two blanks", "a", "no pair"]))
    kept = [min(two + one, 4), min(alone, 6)] * 2
    found = [json.loads(line) for line in lines]
    assert [line["tokens_kept"] for line in found] == kept
    lost = [two + one - kept[0], alone - kept[1]] * 2
    assert [line["tokens_lost"] for line in found] == lost
    assert lost[0] > 0


def test_a_token_of_a_query_is_found_behind_a_blank(folders):
    for name in ("xlm_roberta", "roberta"):
        extractor = FeatureExtractor.from_checkpoint(folders[name], outputs=[LAST], device="cpu")
        (record,) = extractor(["I saw the a bank"])
        tokenizer = extractor.tokenizer
        pieces = tokenizer.tokenize(" a" if name == "roberta" else "a")
        assert len(pieces) == 1
        place = record.tokens.index(pieces[0])
        found = _token_vector(record, "last", "a", extractor)
        np.testing.assert_allclose(found, record.features["last"][place], atol=1e-6)
        with pytest.raises(ConfigError, match="is not in the query"):
            _token_vector(record, "last", "th", extractor)
