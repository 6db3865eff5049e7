"""The lock of a folder on an object store: renewed, refused to others, taken over from the dead."""

import os
import socket
import threading
import time

import fsspec
import pytest

from bert_features.corpus.holder import Holder
from bert_features.corpus.lease import LOCK, Lease, read_lock, watch
from bert_features.errors import OutputError
from bert_features.files import open_store

SECONDS = 0.2
# For one that watches a run that is alive: it must not look dead where the machine is busy.
PATIENT = 3.0
ME, OTHER = Holder(os.getpid(), socket.gethostname()), Holder(7, "other", 3)


@pytest.fixture
def store():
    fsspec.filesystem("memory").store.clear()
    return open_store("memory://bucket/run/")


def lease(store, holder=ME, seconds=SECONDS):
    return Lease(store, holder, seconds=seconds)


def wait_for(condition):
    while not condition():
        time.sleep(0.01)


def test_the_lock_names_its_holder_is_renewed_and_goes_with_the_run(store):
    with lease(store, OTHER) as held:
        assert read_lock(store).holder == OTHER
        wait_for(lambda: read_lock(store).renewals >= 2)
        held.check()
    assert not store.exists(LOCK)


def test_another_run_is_refused_by_the_name_of_the_first(store):
    message = r"another run is writing memory://bucket/run \(process 7 on other\); wait for its end"
    with (
        lease(store, OTHER),
        pytest.raises(OutputError, match=message),
        lease(store, seconds=PATIENT),
    ):
        pass
    assert not store.exists(LOCK)


def test_a_lock_that_nobody_renews_is_taken_over(store, caplog):
    caplog.set_level("INFO", "bert_features")
    store.write(LOCK, '{"holder":{"process":7,"machine":"other"},"token":"t","renewals":5}')
    started = time.monotonic()
    with lease(store) as held:
        assert time.monotonic() - started >= 3 * SECONDS
        assert read_lock(store).holder == ME
        held.check()
    assert "taking the lock of memory://bucket/run over from process 7 on other" in caplog.text
    assert not store.exists(LOCK)


def test_a_damaged_lock_is_taken_over(store):
    store.write(LOCK, "{")
    with lease(store):
        assert read_lock(store).holder == ME


def test_a_lock_that_goes_while_it_is_watched_is_free(store):
    store.write(LOCK, "{")
    timer = threading.Timer(SECONDS, store.remove, [LOCK])
    timer.start()
    with lease(store, seconds=10 * SECONDS):
        assert read_lock(store).holder == ME
    timer.join()


def test_of_two_that_take_over_at_the_same_time_one_begins(store):
    store.write(LOCK, "{")
    begun, refused = [], []

    def take(number):
        try:
            with lease(store, Holder(number, "here"), seconds=PATIENT / 6):
                begun.append(number)
                time.sleep(PATIENT)  # longer than the other one watches
        except OutputError as error:
            refused.append(str(error))

    threads = [threading.Thread(target=take, args=[number]) for number in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(begun) == len(refused) == 1
    assert f"process {begun[0]} on here" in refused[0]


def test_a_run_whose_lock_was_taken_ends_and_leaves_it_there(store):
    message = r"another run \(process 7 on other\) has taken the lock of .*; finished shards are ke"
    with lease(store) as held:
        theirs = '{"holder":{"process":7,"machine":"other"},"token":"t","renewals":0}'
        store.write(LOCK, theirs)
        wait_for(lambda: held._taken_by)
        with pytest.raises(OutputError, match=message):
            held.check()
    assert store.read(LOCK) == theirs.encode()


def test_a_run_that_slept_looks_at_its_lock_before_it_goes_on(store):
    with lease(store, seconds=1000.0) as held:
        store.remove(LOCK)
        held.check()  # not time to look yet
        held._renewed -= 2001.0
        with pytest.raises(OutputError, match=r"another run has taken the lock of"):
            held.check()


def test_whether_a_lock_is_alive_can_be_asked(store):
    assert watch(store, SECONDS) is None
    with lease(store, OTHER):
        assert watch(store, PATIENT) == OTHER
    store.write(LOCK, "{")
    assert watch(store, SECONDS) is None
    assert store.read(LOCK) == b"{"
