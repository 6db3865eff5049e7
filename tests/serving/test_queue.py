"""The queue: shares of requests, the bound, requests that nobody waits for."""

import threading

import numpy as np

from bert_features.formats.records import FeatureBatch
from bert_features.readers.input_example import InputExample
from bert_features.serving.queue import Queue, RequestJob


def job(count, tokens=10, outputs=("x",)):
    return job_of([tokens] * count, outputs)


def job_of(tokens, outputs=("x",)):
    examples = [InputExample(i, str(i)) for i in range(len(tokens))]
    return RequestJob(examples, tokens, outputs)


def taken(slices):
    found = [(piece.job, piece.numbers[0], piece.numbers[-1] + 1) for piece in slices]
    assert [[*range(start, stop)] for _, start, stop in found] == [p.numbers for p in slices]
    return found


def lengths(slices):
    return [[piece.job.tokens[number] for number in piece.numbers] for piece in slices]


def test_a_small_request_does_not_wait_for_a_large_one():
    queue, large, small = Queue(10_000), job(100), job(1)
    queue.put(large)
    queue.put(small)
    first = taken(queue.take(100, 100))
    assert first[:2] == [(large, 0, 5), (small, 0, 1)]
    assert first[-1] == (large, 7, 9)
    assert taken(queue.take(50, 50)) == [(large, 9, 14)]


def test_many_small_requests_do_not_hold_up_a_large_one():
    queue, large = Queue(10_000), job(100)
    queue.put(large)
    for _ in range(20):
        queue.put(job(5))
    first = [piece for piece in queue.take(100, 100) if piece.job is large]
    assert sum(piece.tokens for piece in first) >= 50


def test_requests_of_other_outputs_have_a_load_of_their_own():
    queue, first, other, last = Queue(10_000), job(1), job(1, outputs=("y",)), job(1)
    for each in (first, other, last):
        queue.put(each)
    assert taken(queue.take(100, 100)) == [(first, 0, 1), (last, 0, 1)]
    assert taken(queue.take(100, 100)) == [(other, 0, 1)]


def test_a_text_that_is_larger_than_a_load_is_taken_alone():
    queue, large = Queue(10_000), job(2, tokens=500)
    queue.put(large)
    assert taken(queue.take(100, 100)) == [(large, 0, 1)]


def test_a_full_queue_refuses_but_takes_any_request_when_it_is_empty():
    queue, first = Queue(100), job(20)
    assert queue.put(first)
    assert not queue.put(job(1))
    while queue.tokens:
        queue.take(100, 100)
    queue.put(job(10))
    assert queue.tokens == 100


def test_cancelled_requests_are_not_computed_and_leave_their_room():
    queue, cancelled, other = Queue(100), job(10), job(10)
    queue.put(cancelled)
    cancelled.answer.cancel()
    assert queue.tokens == 0  # by which the service refuses requests
    queue.put(other)
    assert queue.tokens == 100
    assert taken(queue.take(50, 50)) == [(other, 0, 5)]


def test_a_request_that_is_cancelled_when_half_is_taken_leaves_its_room():
    queue, half = Queue(100), job(10)
    queue.put(half)
    queue.take(50, 50)
    half.answer.cancel()
    assert queue.tokens == 0
    queue.put(job(10))
    assert queue.tokens == 100


def test_a_thread_that_waits_is_woken():
    queue, found = Queue(100), []
    thread = threading.Thread(target=lambda: found.extend(queue.take(10, 10)))
    thread.start()
    queue.put(job(1))
    thread.join(5)
    assert len(found) == 1


def test_a_request_gives_its_longest_texts_first():
    queue = Queue(10_000)
    queue.put(job_of([10, 40, 20, 30]))
    assert [lengths(queue.take(70, 70)) for _ in range(2)] == [[[40, 30]], [[20, 10]]]


def test_results_come_in_the_order_of_the_texts():
    whole = job_of([10, 40, 20, 30])
    for _ in range(2):
        numbers = whole.take(70).numbers
        vectors = np.array([[number] for number in numbers])
        whole.finish(numbers, FeatureBatch(vectors[:, 0], {"x": vectors}))
    answer = whole.answer.result(0)
    assert answer.unique_ids.tolist() == [0, 1, 2, 3]
    assert answer.sequence["x"].tolist() == [[0], [1], [2], [3]]
