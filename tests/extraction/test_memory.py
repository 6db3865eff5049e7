"""Memory that is used again, but never while anybody has it."""

import gc
import threading
import weakref

import numpy as np
import pyarrow as pa
import pytest

from bert_features.extraction.memory import Memory

SHAPE = (1000, 768)  # 1.5 MB in float16


def address(array):
    return array.__array_interface__["data"][0]


def test_memory_is_used_again_once_nobody_has_it():
    memory = Memory()
    array = memory.empty(SHAPE, np.float16)
    first = address(array)
    assert address(memory.empty(SHAPE, np.float16)) != first
    del array
    assert address(memory.empty((700, 768), np.float32)) == first  # the last to be dropped


def test_without_the_memory_an_array_frees_its_block():
    memory = Memory()
    arrays = [memory.empty(SHAPE, np.float16) for _ in range(2)]
    blocks = [weakref.ref(array.base.base.obj) for array in arrays]
    del memory
    arrays.pop()
    assert [block() is None for block in blocks] == [False, True]


def content(kept):
    return kept.to_pybytes() if isinstance(kept, pa.Buffer) else kept.tobytes()


@pytest.mark.parametrize(
    "keep",
    [
        lambda array: array[3:5],
        lambda array: array.reshape(-1)[7:],
        lambda array: array.view(np.uint8).T,
        lambda array: memoryview(array),
        lambda array: pa.py_buffer(array[1:]),
        lambda array: np.asarray(memoryview(array[2:])),
    ],
)
def test_a_view_keeps_the_memory(keep):
    memory = Memory()
    array = memory.empty(SHAPE, np.float16)
    array[:] = 7
    kept = keep(array)
    before = content(kept)
    del array
    gc.collect(1)  # all of this is young, and the rest takes half a second
    memory.empty(SHAPE, np.float16)[:] = 8
    assert content(kept) == before


def test_free_memory_does_not_grow():
    memory = Memory()
    for megabytes in range(1, 400, 7):  # each too large for the blocks before it
        memory.empty((megabytes << 20,), np.uint8)
    assert sum(map(len, memory._free)) < 6 * (400 << 20)
    assert len(memory._free) <= 6


def test_threads_do_not_share_an_array():
    memory = Memory()
    wrong = []

    def use(value):
        for _ in range(200):
            array = memory.empty((512, 1024), np.float32)
            array[:] = value
            if not (array == value).all():
                wrong.append(value)

    threads = [threading.Thread(target=use, args=(value,)) for value in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
