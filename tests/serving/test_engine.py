"""The engine: what is made once for all requests, and requests that fail alone."""

import threading

import numpy as np
import pytest

from bert_features.extraction.counts import Counts
from bert_features.extraction.extractor import FeatureExtractor
from bert_features.readers.input_example import InputExample
from bert_features.serving.engine import Engine
from bert_features.serving.queue import Queue, RequestJob
from tests.serving.conftest import OUTPUTS


@pytest.fixture
def engine(extractor):
    return Engine(extractor, queue=Queue(1 << 20))


@pytest.fixture
def submit(engine, extractor):
    def submit(*texts, outputs=("mean",)):
        examples = [InputExample(i, text) for i, text in enumerate(texts)]
        specs = [spec for name in outputs for spec in extractor.outputs if spec.name == name]
        return engine.submit(examples, [len(text) + 2 for text in texts], specs).answer

    return submit


def test_vectors_of_several_loads_come_in_the_order_of_the_texts(extractor, submit):
    texts = [" ".join(["a b it no"[i % 9 :]] * (i % 7 + 1)) for i in range(400)]
    assert sum(map(len, texts)) > 4096  # tokens of a load, as `submit` counts them
    examples = [InputExample(i, text) for i, text in enumerate(texts)]
    expected = extractor.with_outputs(("mean",)).compute(examples, Counts(), prompt="")
    answer = submit(*texts).result(60)
    assert answer.unique_ids.tolist() == [*range(400)]
    np.testing.assert_allclose(answer.sequence["mean"], expected.sequence["mean"], atol=1e-5)


@pytest.mark.parametrize("packing", [True, False])
def test_devices_that_compile_each_shape_do_so_before_the_first_request(
    extractor_of, monkeypatch, packing
):
    settings = {"outputs": OUTPUTS[2:3], "packing": packing, "batch_tokens": 1024}
    extractor = extractor_of(**settings)
    extractor.preparation.runtime.any_shape = False  # as on a TPU
    computed = []
    prepare = type(extractor._step)._prepare

    def note(step, batch, form):
        computed.append(batch["input_word_ids"].shape)
        return prepare(step, batch, form)

    monkeypatch.setattr(type(extractor._step), "_prepare", note)
    engine = Engine(extractor, queue=Queue(1 << 20))
    engine.warm_up(extractor.outputs, many=True)
    warm = set(computed)
    assert warm == ({(8, 128), (1, 128)} if packing else {(64, 16)})
    for texts in (["a b it"] * 300, ["a"]):
        examples = [InputExample(number, text) for number, text in enumerate(texts)]
        engine.submit(examples, [5] * len(texts), extractor.outputs).answer.result(30)
    assert set(computed) == warm


def test_only_the_request_with_the_fault_fails(engine, submit, monkeypatch):
    compute = FeatureExtractor.compute

    def fail_on_b(self, examples, counts, **options):
        if any(example.text_a == "b" for example in examples):
            raise RuntimeError("no b")
        return compute(self, examples, counts, **options)

    monkeypatch.setattr(FeatureExtractor, "compute", fail_on_b)
    release = threading.Event()
    monkeypatch.setattr(engine, "_noted", lambda counts, seconds: release.wait(10))
    held = [submit("a") for _ in range(2)]  # both lanes wait
    for each in held:
        each.result(10)
    good, bad = submit("a", "it"), submit("b")
    release.set()
    assert len(good.result(10)) == 2
    with pytest.raises(RuntimeError, match="no b"):
        bad.result(10)


def test_a_request_whose_results_cannot_be_put_together_does_not_end_a_thread(
    submit, monkeypatch, caplog
):
    finish, failures = (
        RequestJob.finish,
        [MemoryError("no room")] * 2,
    )  # as many as there are threads

    def fail_twice(job, start, results):
        if failures:
            raise failures.pop()
        finish(job, start, results)

    monkeypatch.setattr(RequestJob, "finish", fail_twice)
    for _ in range(2):
        with pytest.raises(MemoryError):
            submit("a").result(10)
    assert len(submit("a").result(10)) == 1
