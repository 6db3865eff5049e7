"""The engine: a request that fails takes no other with it."""

import threading

import pytest

from bert_features.readers.input_example import InputExample
from bert_features.serving.engine import Engine
from bert_features.serving.queue import Job, Queue


@pytest.fixture
def engine(extractor):
    return Engine(extractor, queue=Queue(1 << 20))


def submit(engine, texts, *outputs):
    examples = [InputExample(i, text) for i, text in enumerate(texts)]
    return engine.submit(examples, [len(text) + 2 for text in texts], outputs).answer


def test_only_the_request_with_the_fault_fails(engine, monkeypatch):
    compute = type(engine._all).compute

    def fail_on_b(self, examples, counts):
        if any(example.text_a == "b" for example in examples):
            raise RuntimeError("no b")
        return compute(self, examples, counts)

    monkeypatch.setattr(type(engine._all), "compute", fail_on_b)
    release = threading.Event()
    monkeypatch.setattr(engine, "_noted", lambda counts, seconds: release.wait(10))
    held = [submit(engine, ["a"], "mean") for _ in range(2)]  # both lanes wait
    for each in held:
        each.result(10)
    good, bad = submit(engine, ["a", "it"], "mean"), submit(engine, ["b"], "mean")
    release.set()
    assert len(good.result(10)) == 2
    with pytest.raises(RuntimeError, match="no b"):
        bad.result(10)


def test_a_request_whose_results_cannot_be_put_together_does_not_end_a_thread(
    engine, monkeypatch, caplog
):
    finish, failures = Job.finish, [MemoryError("no room")] * 2  # as many as there are threads

    def fail_twice(job, start, results):
        if failures:
            raise failures.pop()
        finish(job, start, results)

    monkeypatch.setattr(Job, "finish", fail_twice)
    for _ in range(2):
        with pytest.raises(MemoryError):
            submit(engine, ["a"], "mean").result(10)
    assert len(submit(engine, ["a"], "mean").result(10)) == 1
