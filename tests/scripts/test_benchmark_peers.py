"""The parts of benchmarks/peers.py that need no peers: options, errors, texts, turns."""

import json
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = ROOT / "benchmarks"


def test_the_parts_of_the_first_feature_exist(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from benchmarking.first_feature import _PARTS

    for module, name in (function for functions in _PARTS.values() for function in functions):
        assert callable(attrgetter(name)(import_module(f"bert_features.{module}")))


class FakeWorker:
    """A worker in this process; a subclass answers the calls."""

    def __init__(self, program: str, log: Path) -> None:
        self.program = program

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None

    def cpu_seconds(self) -> float:
        return 0.0


def test_words_become_means_of_their_tokens(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    import tokenizers

    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from benchmarking.programs.base import SortedBatches, SortedWords

    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "no", "jack", "##son", "!"]
    (tmp_path / "vocab.txt").write_text("\n".join(vocabulary))
    tokenizers.BertWordPieceTokenizer(str(tmp_path / "vocab.txt")).save(
        str(tmp_path / "tokenizer.json")
    )
    batches = SortedWords(tmp_path, 16)
    ((rows, batch),) = batches(["no", "jackson! no"], 2)
    assert rows.tolist() == [1, 0]  # the longest first
    assert batch["input_ids"].tolist() == [[2, 6, 7, 8, 5, 3], [2, 5, 3, 0, 0, 0]]
    third = np.float32(1 / 3)
    np.testing.assert_array_equal(
        batches.weights(rows, 6),
        np.array(
            [
                [[0, third, third, third, 0, 0], [0, 0, 0, 0, 1, 0]],
                [[0, 1, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0]],
            ],
            np.float32,
        ),
    )
    assert [batches.num_words(row) for row in rows] == [2, 1]
    texts = ["no", "jackson! no", "jackson"]
    # 3, 6 and 4 tokens; rows of 6, 6 and 4 in batches of two.
    assert SortedBatches(tmp_path, 16).count(texts, 2) == (13, 16)


class VectorWorker(FakeWorker):
    """Makes the vector (1, 0) of each text, or of its words; some programs add a difference."""

    differences: ClassVar[dict[str, float]] = {}
    loaded: ClassVar[list[tuple[str, bool]]] = []

    def __call__(self, do: str, **arguments):
        if do == "load_job":
            self.loaded.append((self.program, arguments["words"]))
            return {"seconds": 1.0}
        texts = json.loads(Path(arguments["corpus"]).read_text())["texts"]
        _, words = self.loaded[-1]
        count = sum(len(text.split()) for text in texts) if words else len(texts)
        if save := arguments.get("save"):
            np.save(save, np.full((count, 2), [1.0 + self.differences[self.program], 0.0]))
        tokens = {"tokens": 10, "computed_tokens": 20, "traces": None}
        return {"seconds": 2.0, "peak_bytes": 1, **tokens}


@pytest.mark.parametrize("words", [False, True])
def test_a_peer_whose_vectors_differ_is_not_timed(
    words: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from benchmarking import jobs
    from benchmarking.corpora import ud_ewt
    from benchmarking.processes import BenchmarkError
    from benchmarking.report import _jobs

    peer, other = ("flair fp32", "keras-hub fp32") if words else ("keras-hub fp32", "flair fp32")
    monkeypatch.setattr(jobs, "Worker", VectorWorker)
    monkeypatch.setattr(jobs, "run_module", lambda *arguments: "")
    monkeypatch.setattr("benchmarking.processes._SETTLING_SECONDS", 0.0)
    names = ["bert_features fp32", "transformers fp32"]
    arguments = {"rounds": 2, "models": tmp_path, "log": tmp_path, "words": words}
    for difference in (5e-5, 2e-4):
        VectorWorker.loaded = []
        VectorWorker.differences = {**dict.fromkeys(names, 0.0), peer: difference}
        (table,) = jobs.run_jobs([ud_ewt(["a text"])], [*names, peer, other], **arguments)
        timed = {row["program"]: row["max_difference"] for row in table["rows"]}
        assert set(VectorWorker.loaded) == {(name, words) for name in [*names, peer]}
        assert set(timed) == {*names, peer} - ({peer} if difference > 1e-4 else set())
        assert set(table["refused"]) == ({peer} if difference > 1e-4 else set())
    document = _jobs(table)
    assert document.startswith("## Words, ud_ewt" if words else "## Whole job, ud_ewt")
    assert f"{peer} is refused on ud_ewt: its float32 vectors differ" in document
    what = "words" if words else "texts"
    with pytest.raises(BenchmarkError, match=f"none of {other} makes vectors of {what}"):
        jobs.run_jobs([], [other], **arguments)


def test_one_text_at_a_time_in_each_way_of_the_project(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from benchmarking.programs.project import ProjectCalls

    vectors = [way() for way in ProjectCalls(Path(), "A cat.").ways.values()]
    for vector in vectors[1:]:
        np.testing.assert_allclose(vector, vectors[0], rtol=0, atol=1e-5)
