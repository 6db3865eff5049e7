"""A process forked after TensorFlow was used: an error at once, where it would wait for ever."""

import multiprocessing

import pytest

from bert_features import FeatureExtractor
from bert_features.official.tokenization import BasicTokenizer, FullTokenizer


def report(task, queue):
    try:
        queue.put(str(task()))
    except Exception as error:
        queue.put(f"{type(error).__name__}: {error}")


@pytest.mark.filterwarnings("ignore:.*fork")
@pytest.mark.parametrize("task", ["encode", "call", "make", "tokenize", "make tokenizer", "words"])
def test_a_forked_process_is_refused_at_once(toy, task):
    extractor = FeatureExtractor.from_checkpoint(toy, layers=-1)
    tokenizer, words = FullTokenizer(f"{toy}/vocab.txt"), BasicTokenizer()
    tasks = {
        "encode": lambda: extractor.encode("the bank").shape,
        "call": lambda: extractor(["the bank", "a jackson"]),
        "make": lambda: FeatureExtractor.from_checkpoint(toy, layers=-1).encode("a"),
        "tokenize": lambda: tokenizer.tokenize("the bank"),
        "make tokenizer": lambda: FullTokenizer(f"{toy}/vocab.txt").tokenize("the bank"),
        "words": lambda: words.tokenize("the bank"),
    }
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    child = context.Process(target=report, args=(tasks[task], queue))
    child.start()
    child.join(10)
    child.kill()
    child.join()
    assert not queue.empty(), "it waits for ever"
    message = queue.get()
    assert message.startswith("DeviceError: this process was forked")
    assert "start processes by 'spawn'" in message
    assert extractor.encode("the bank").shape == (4, 8)  # the parent computes as before
