"""The engine: each request gets its own vectors, whatever is computed with it."""

import random
import threading

import numpy as np
import pytest

from bert_features.readers.input_example import InputExample
from bert_features.serving.engine import Engine
from bert_features.serving.queue import Job, Queue

WORDS = ["a", "b", "the", "jackson", "is", "not", "it"]


@pytest.fixture
def engine(extractor):
    engine = Engine(extractor, queue=Queue(1 << 20))
    yield engine
    engine.close()


def texts_of(seed, count):
    choose = random.Random(seed)
    return [" ".join(choose.choices(WORDS, k=choose.randrange(7))) for _ in range(count)]


def submit(engine, texts, *outputs):
    examples = [InputExample(i, text) for i, text in enumerate(texts)]
    return engine.submit(examples, [len(text) + 2 for text in texts], outputs).answer


def test_requests_of_many_threads_get_their_own_vectors(engine, extractor):
    texts = [texts_of(seed, seed * 7 % 40 + 1) for seed in range(30)]
    names = ["mean", "last"]
    found = [None] * len(texts)

    def ask(i):
        found[i] = submit(engine, texts[i], names[i % 2]).result(60)

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(texts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, results in enumerate(found):
        name = names[i % 2]
        wanted = [record.features[name] for record in extractor(texts[i])]
        given = results.features[name]
        np.testing.assert_allclose(
            given, np.stack(wanted) if name == "mean" else np.concatenate(wanted), atol=1e-5
        )
        assert results.counts["tokens_lost"].tolist() == [0] * len(texts[i])


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


def test_counts_are_those_of_the_load(extractor):
    noted = []
    engine = Engine(extractor, queue=Queue(100), noted=lambda c, s: noted.append((c, s)))
    submit(engine, ["a b", "it"], "mean").result(10)
    engine.close()
    ((counts, seconds),) = noted
    assert (counts.examples, counts.tokens) == (2, 7)
    assert seconds > 0
