"""docs/features_file.md is enough to read a file: this reader has pyarrow and nothing of ours."""

import base64
import json
import math
import re
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from bert_features import ExtractConfig, extract, read_features

PAGE = (Path(__file__).parents[2] / "docs" / "features_file.md").read_text(encoding="utf-8")
TEXTS = ["a b", "the jacksonville is not", "no ||| it is this", "this is jack ?"]
OUTPUTS = [
    {"name": "token", "layers": (-1,), "dtype": "float16"},
    {"name": "last", "layers": (-1,)},
    {"name": "word", "level": "word", "layers": (-1, -2), "combine": "sum"},
    {"name": "text", "level": "sequence", "pooling": "cls+mean", "layers": (-1,)},
    {"name": "small", "level": "sequence", "pooling": "mean", "layers": (-1,), "dtype": "int8"},
    {"name": "bits", "level": "sequence", "pooling": "mean", "layers": (-1,), "dtype": "binary"},
    {"name": "span", "level": "span", "layers": (-1,)},
    {"name": "heads", "kind": "attention", "layers": (-1,)},
]


def read_by_the_page(folder):
    """The rows of a folder and its metadata: [{column: value}], {…}."""
    manifest = json.loads((folder / "_manifest.json").read_text())
    assert manifest["finished"] is not None
    count, rows = len(manifest["shards"]), []
    for number in range(count):
        name = f"part-{number:05d}-of-{count:05d}{manifest['suffix']}"
        table = pq.read_table(folder / name)
        metadata = json.loads(table.schema.metadata[b"bert_features"])
        assert metadata["format_version"] == 2
        features = {feature["name"]: feature for feature in metadata["features"]}
        for row in table.to_pylist():
            for feature in features.values():
                row[feature["name"]] = restored(row[feature["name"]], feature)
            rows.append(row)
    return rows, metadata


def restored(values, feature):
    values = np.array(values)
    if feature["dtype"] == "int8":
        least, largest = np.array(feature["scale"])
        return least + (values + 128.0) * (largest - least) / 255
    if feature["dtype"] == "binary":
        bits = np.unpackbits(values.astype(np.uint8), axis=-1)[..., : feature["width"]]
        return np.where(bits, 1, -1)
    return values.astype(np.float32)


@pytest.fixture(scope="module")
def folder(toy, tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    (folder / "in.txt").write_text("".join(f"{text}\n" for text in TEXTS))
    settings = {"checkpoint": toy, "do_lower_case": True, "max_seq_length": 16, "spans": "2/1"}
    settings |= {"outputs": OUTPUTS, "shard_examples": 3}
    extract(ExtractConfig.of(settings), folder / "in.txt", f"{folder}/out/")
    return folder / "out"


def test_a_reader_by_the_page_alone_reads_what_ours_reads(folder):
    rows, metadata = read_by_the_page(folder)
    file = read_features(folder, floats=True)
    assert metadata["id_type"] == "int"
    assert [row["unique_id"] for row in rows] == list(range(len(TEXTS)))
    for row, record in zip(rows, file, strict=True):
        assert tuple(row["tokens"]) == record.tokens
        assert tuple(row["words"]) == record.words
        text = TEXTS[row["unique_id"]].split(" ||| ")
        places = zip(row["word_starts"], row["word_ends"], row["word_type_ids"], strict=True)
        assert [text[side][start:end] for start, end, side in places] == row["words"]
        places = zip(row["span_begins"], row["span_ends"], row["span_type_ids"], strict=True)
        assert [text[side][begin:end] for begin, end, side in places] == row["spans"]
        for name, level in (("token", "tokens"), ("word", "words"), ("span", "spans")):
            assert len(row[name]) == len(row[level])
        count = len(row["tokens"])
        heads = row.pop("heads").reshape(count, count, -1)
        np.testing.assert_array_equal(np.moveaxis(heads, -1, 0), record.features["heads"])
        for name in {*record.features} - {"heads"}:
            np.testing.assert_allclose(row[name], record.features[name], rtol=0, atol=1e-6)


def canaries_of(metadata, name):
    text = metadata["recipe"]["canaries"][name]
    return np.frombuffer(base64.b64decode(text), "<f4").reshape(8, -1)


def test_canaries_by_the_page(folder):
    _, metadata = read_by_the_page(folder)
    for feature in metadata["features"]:
        assert canaries_of(metadata, feature["name"]).shape == (8, feature["width"])
    # The third vector of the first text, by a run of its own.
    order = sorted(range(8), key=lambda i: math.modf(i * 0.6180339887498949)[0])
    cat = folder.parent / "cat.txt"
    cat.write_text("The cat sat on the mat.\n")
    config = {n: metadata["recipe"]["settings"][n] for n in ("checkpoint", "max_seq_length")}
    config |= {"do_lower_case": True, "layers": (-1,)}
    extract(ExtractConfig.of(config), cat, folder.parent / "cat.npz")
    (record,) = read_features(folder.parent / "cat.npz")
    got = canaries_of(metadata, "last")[0]
    np.testing.assert_allclose(got, record.features["layer_output_0"][2][order], atol=1e-5)


def test_the_page_names_every_key_of_the_metadata_and_every_column(folder):
    rows, metadata = read_by_the_page(folder)
    named = set(re.findall(r"`(\w+)`", PAGE))
    optional = {"features", "metadata_crc32c"}
    assert {*metadata} | optional <= named
    columns = {*rows[0]} - {output["name"] for output in OUTPUTS}
    assert columns <= named
    assert {key for feature in metadata["features"] for key in feature} <= named
    assert len(PAGE.splitlines()) <= 80
