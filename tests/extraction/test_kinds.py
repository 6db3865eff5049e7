"""Each kind and level in shards, with repeated texts and from the cache: the same values."""

import json

import pytest

from bert_features import ExtractConfig, extract, read_features
from tests import multi_vector, sparse_encoder
from tests.corpus.runs import computing_each
from tests.extraction import test_attention, test_masked_lm
from tests.formats.feature_files import assert_same

TEXTS = ["the river bank is no jackson.", "", "a [MASK] boat", "is it " * 12]
TOY = {"do_lower_case": True, "max_seq_length": 16}
CASES = {
    "labels": {**TOY, "layers": [-1], "level": "word", "label_field": "y"},
    "spans": {**TOY, "layers": [-1], "level": "span", "span_field": "s", "normalize": True},
    "attention": {**TOY, "outputs": test_attention.OUTPUTS},
    "masked_lm": {"do_lower_case": True, "outputs": [test_masked_lm.OUTPUT]},
    "score": {
        "do_lower_case": True,
        "kind": "score",
        "level": "word",
        "layers": ["embeddings", 0, -1],
    },
    "sparse": {"kind": "sparse"},
    "documents": multi_vector.KIND,
    "queries": {**multi_vector.KIND, "prompt": "query"},
}


@pytest.fixture
def checkpoint_of(toy, tmp_path):
    masked = {name: str(test_masked_lm.FOLDER) for name in ("masked_lm", "score")}
    late = multi_vector.write("classic", tmp_path / "late")
    others = {**masked, "sparse": str(sparse_encoder.WEIGHTS)}
    others |= dict.fromkeys(("documents", "queries"), str(late))
    return lambda name: others.get(name, toy)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_killed_run_repeats_and_the_cache_change_nothing(name, checkpoint_of, tmp_path):
    rows = [{"text": text, "s": [[0, len(text) // 2, "half"]]} for text in TEXTS]
    if name == "labels":
        rows = [{"tokens": text.split(), "y": text.upper().split()} for text in TEXTS]
    (source := tmp_path / "in.jsonl").write_text("".join(f"{json.dumps(r)}\n" for r in rows * 2))
    settings = {"checkpoint": checkpoint_of(name), **CASES[name]}

    plain = ExtractConfig.of({**settings, "dedupe": True, "shard_examples": 3})
    with computing_each():
        extract(plain, source, f"{tmp_path}/out/")
    shards = sorted((tmp_path / "out").glob("*.parquet"))
    before = [shard.read_bytes() for shard in shards]
    shards[1].unlink()
    with computing_each():
        extract(plain, source, f"{tmp_path}/out/")
    assert [shard.read_bytes() for shard in shards] == before

    cached = ExtractConfig.of({**settings, "cache": str(tmp_path / "cache")})
    first, second = (extract(cached, source, tmp_path / f"{n}.npz").counts for n in "ab")
    assert (first.examples_reused, first.examples_from_cache) == (4, 0)
    assert (second.examples_reused, second.examples_from_cache) == (8, 8)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    files = read_features(tmp_path / "out"), read_features(tmp_path / "b.npz", verify=True)
    for expected, received in zip(*files, strict=True):
        assert_same(received, expected)
