"""A process forked after TensorFlow was used: an error at once, where it would wait for ever."""

import json
import multiprocessing

import pytest

from bert_features import BertFeatures, BertTextInput, FeatureExtractor, FullTokenizer
from tests.cli.forks import call_in_fork

TASKS = ["encode", "call", "make", "tokenize", "make tokenizer", "layer", "text input"]


@pytest.fixture(scope="module")
def messages(toy, tmp_path_factory):
    """What each forked process says; the forks are those of a process in which nothing else ran."""
    path = tmp_path_factory.mktemp("forked") / "messages.json"
    call_in_fork(fork_and_ask, toy, path)
    return json.loads(path.read_text())


@pytest.mark.parametrize("task", TASKS)
def test_a_forked_process_is_refused_at_once(messages, task):
    assert messages[task].startswith("DeviceError: ")  # Keras puts more before the message
    assert "this process was forked" in messages[task]
    assert "start processes by 'spawn'" in messages[task]
    assert "make the extractor inside the function" in messages[task]  # where only forks exist


def test_its_parent_computes_as_before(messages):
    assert messages["parent"] == "(4, 8)"


def report(task, queue):
    try:
        queue.put(str(task()))
    except Exception as error:
        queue.put(f"{type(error).__name__}: {error}")


def message_of(task):
    """What a fork says that runs a task; `it waits` after ten seconds without a word."""
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    child = context.Process(target=report, args=(task, queue))
    child.start()
    child.join(10)
    child.kill()
    child.join()
    return "it waits" if queue.empty() else queue.get()


def fork_and_ask(toy, path):
    extractor = FeatureExtractor.from_checkpoint(toy, layers=-1)
    layer, text_input = (
        BertFeatures.from_checkpoint(toy, layers=-1),
        BertTextInput.from_checkpoint(toy, max_seq_length=16),
    )
    layer(rows := text_input(["a jackson"]))
    tokenizer = FullTokenizer(f"{toy}/vocab.txt")
    tasks = [
        lambda: extractor.encode("the bank").shape,
        lambda: extractor(["the bank", "a jackson"]),
        lambda: FeatureExtractor.from_checkpoint(toy, layers=-1).encode("a"),
        lambda: tokenizer.tokenize("the bank"),
        lambda: FullTokenizer(f"{toy}/vocab.txt").tokenize("the bank"),
        lambda: layer(rows),
        lambda: text_input(["the bank"]),
    ]
    said = dict(zip(TASKS, map(message_of, tasks), strict=True))
    path.write_text(json.dumps({**said, "parent": str(extractor.encode("the bank").shape)}))
