"""The official script's program and the tutorial's, with changed imports: the official numbers."""

import json
from pathlib import Path

import numpy as np
import pytest

from bert_features.official import tf1 as tf
from tests.cli.forks import call_in_fork, run_script
from tests.official.programs import tutorial

PROGRAM = Path(__file__).with_name("programs") / "extract_features.py"
TOLERANCE = 2e-5


@pytest.fixture(autouse=True)
def _log_level():
    before = tf.logging.get_verbosity()
    yield
    tf.logging.set_verbosity(before)


def arguments(folder, texts, output, length, *more):
    return [
        f"--input_file={texts}",
        f"--output_file={output}",
        f"--vocab_file={folder / 'vocab.txt'}",
        f"--bert_config_file={folder / 'bert_config.json'}",
        f"--init_checkpoint={folder / 'bert_model.ckpt'}",
        "--do_lower_case=True",
        f"--max_seq_length={length}",
        *more,
    ]


def read_jsonl(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.slow
def test_the_script_as_a_command(tmp_path, toy):
    texts, output = tmp_path / "texts.txt", tmp_path / "features.jsonl"
    texts.write_text("is this jack ?\nno ||| it is not .\n", encoding="utf-8")
    flags = arguments(Path(toy), texts, output, 24, "--layers=-1", "--batch_size=4")
    call_in_fork(run_script, PROGRAM, flags, tmp_path / "errors")
    assert [len(row["features"]) for row in read_jsonl(output)] == [6, 8]
    errors = (tmp_path / "errors").read_text()
    assert "TPUConfig: not used any more (all devices of this machine share" in errors
    assert "name = bert/embeddings/word_embeddings:0, shape = (30, 8), *INIT_FROM" in errors


@pytest.mark.slow
@pytest.mark.release
@pytest.mark.eight_devices
def test_the_script_on_eight_devices(tmp_path, minilm_tf1, official):
    """Every field of the file is the official one."""
    from tests.official.programs import extract_features

    texts, output = tmp_path / "texts.txt", tmp_path / "features.jsonl"
    texts.write_text("".join(f"{text}\n" for text in official.texts), encoding="utf-8")
    config = json.loads((minilm_tf1 / "bert_config.json").read_text())
    two_blocks = tmp_path / "bert_config.json"
    two_blocks.write_text(json.dumps({**config, "num_hidden_layers": 2}))
    more = ("--use_tpu=True", "--master=grpc://a", "--layers=-1,-2")
    flags = arguments(minilm_tf1, texts, output, 48, f"--bert_config_file={two_blocks}", *more)
    extract_features.FLAGS(["program", *flags])
    extract_features.main([])
    vocabulary = (minilm_tf1 / "vocab.txt").read_text(encoding="utf-8").split("\n")
    rows = read_jsonl(output)
    assert [row["linex_index"] for row in rows] == list(range(len(official.texts)))
    for number, row in enumerate(rows):
        assert list(row) == ["linex_index", "features"]
        assert [list(f) for f in row["features"]] == [["token", "layers"]] * len(row["features"])
        tokens = [feature["token"] for feature in row["features"]]
        assert tokens == [vocabulary[i] for i in official.ids[number]]
        for position, feature in enumerate(row["features"]):
            assert [layer["index"] for layer in feature["layers"]] == [-1, -2]
            for layer in feature["layers"]:
                wanted = official.layers[2 + layer["index"]][number][position]
                np.testing.assert_allclose(layer["values"], wanted, rtol=0, atol=TOLERANCE)


@pytest.mark.slow
@pytest.mark.release
def test_the_tutorial(minilm_tf1, official, monkeypatch):
    monkeypatch.setattr(tutorial, "BERT_PRETRAINED_DIR", str(minilm_tf1))
    numbers = [i for i, text in enumerate(official.texts) if " ||| " not in text]
    features = tutorial.get_features([official.texts[i] for i in numbers], dim=100)
    vocabulary = (minilm_tf1 / "vocab.txt").read_text(encoding="utf-8").split("\n")
    assert len(features) == len(numbers) > 0
    for number, of_text in zip(numbers, features, strict=True):
        total = sum(official.layers[layer][number] for layer in tutorial.LAYERS)
        # Of equal tokens the tutorial keeps the last vector.
        wanted = {vocabulary[i]: total[p] for p, i in enumerate(official.ids[number])}
        assert of_text.keys() == wanted.keys()
        for token, vector in of_text.items():
            assert vector.shape == (100,)
            np.testing.assert_allclose(vector, wanted[token][:100], rtol=0, atol=4 * TOLERANCE)
