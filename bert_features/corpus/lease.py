"""The lock of a folder on an object store: an object that its holder renews.

A run that is alive writes its lock again every few seconds. Another run watches the lock: if it
changes, the run refuses to begin; if it stays the same for several renewals, its holder has
crashed, and the run takes the lock over. Each run measures by its own monotonic clock, so no two
clocks are compared. Two runs that take a lock over at the same time both write it; the last one has
it, and the other one finds that out.
"""

import contextlib
import logging
import secrets
import threading
import time
from typing import Self

from pydantic import BaseModel, ConfigDict, ValidationError

from bert_features.corpus.holder import UNKNOWN, Holder
from bert_features.errors import OutputError
from bert_features.files import storage_errors
from bert_features.files.object_store import ObjectStore

logger = logging.getLogger("bert_features")

LOCK = ".lock"
RENEWAL_SECONDS = 10.0
# Renewals that a run must miss before another one takes its lock.
MISSED_RENEWALS = 3
_LOOKS_PER_RENEWAL = 5
_END_SECONDS = 5.0  # for a renewal that has begun


class _Content(BaseModel):
    """What the lock says: who holds it, which run that is, and how often it was renewed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    holder: Holder
    token: str
    renewals: int


class Lease:
    """The lock of one run on a folder; a context manager.

    Args:
      store: the folder.
      me: this run.
      seconds: the time between two renewals.

    Raises:
      OutputError: another run has the lock, or it cannot be written.
    """

    def __init__(self, store: ObjectStore, me: Holder, *, seconds: float) -> None:
        self._store, self._seconds = store, seconds
        self._content = _Content(holder=me, token=secrets.token_hex(8), renewals=0)
        self._taken_by: Holder | None = None
        self._renewed = time.monotonic()
        self._renewing = threading.Lock()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._keep, daemon=True)

    def __enter__(self) -> Self:
        with storage_errors(
            f"write {self._store.folder}", advice="choose a folder that you may write"
        ):
            while not self._is_taken():
                pass
        self._renewed = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._end.set()
        self._thread.join(_END_SECONDS)
        # Without this, another run would take the lock over after some time.
        with contextlib.suppress(OSError, OutputError):
            if not self._thread.is_alive() and self._is_mine():
                self._store.remove(LOCK)

    def _is_taken(self) -> bool:
        """Whether this run has the lock after one try; raises if a run that is alive has it."""
        self._store.create(LOCK, self._text())
        if self._is_mine():
            return True
        self._take_over()
        return self._is_mine()

    def check(self) -> None:
        """Refuses to go on if another run has taken the lock.

        Raises:
          OutputError: it has, or the server does not say.
        """
        if time.monotonic() - self._renewed > 2 * self._seconds:
            # This process was stopped for a while, or the server out of reach.
            with storage_errors(
                f"write the lock of {self._store.folder}", advice="finished shards are kept"
            ):
                self._renew()
        if self._taken_by is not None:
            raise OutputError(
                f"another run{_named(self._taken_by)} has taken the lock of {self._store.folder}, "
                "so this one ends; finished shards are kept"
            )

    def _keep(self) -> None:
        while self._taken_by is None and not self._end.wait(self._seconds):
            try:
                self._renew()
            except (OSError, OutputError) as error:
                logger.info("could not renew the lock of %s: %s", self._store.folder, error)

    def _renew(self) -> None:
        with self._renewing:
            started = time.monotonic()
            found = read_lock(self._store)
            if found is None or found.token != self._content.token:
                self._taken_by = found.holder if found else UNKNOWN
                return
            renewals = self._content.renewals + 1
            self._content = self._content.model_copy(update={"renewals": renewals})
            self._store.write(LOCK, self._text())
            self._renewed = started

    def _take_over(self) -> None:
        """Writes the lock of a run that has crashed; does nothing if it is gone meanwhile."""
        found = read_lock(self._store)
        if found is None:
            return
        alive = watch(self._store, self._seconds)
        if alive is not None:
            raise OutputError(
                f"another run is writing {self._store.folder}{_named(alive)}; wait for its end, "
                "or end it"
            )
        if read_lock(self._store) != found:  # it is gone, or another run was faster
            return
        logger.info(
            "taking the lock of %s over from %s, which has stopped",
            self._store.folder,
            found.holder,
        )
        self._store.write(LOCK, self._text())
        time.sleep(self._seconds / _LOOKS_PER_RENEWAL)  # for one that does so at the same time

    def _is_mine(self) -> bool:
        found = read_lock(self._store)
        return found is not None and found.token == self._content.token

    def _text(self) -> str:
        return self._content.model_dump_json() + "\n"


def _named(holder: Holder) -> str:
    return "" if holder == UNKNOWN else f" ({holder})"


def read_lock(store: ObjectStore) -> _Content | None:
    """What the lock of a folder says; None if there is none."""
    try:
        text = store.read(LOCK)
    except FileNotFoundError:
        return None
    try:
        return _Content.model_validate_json(text)
    except ValidationError:
        return _Content(holder=UNKNOWN, token=text.decode("utf-8", "replace"), renewals=0)


def watch(store: ObjectStore, seconds: float) -> Holder | None:
    """The run that renews the lock of a folder; None if none does, which takes some time to see.

    Args:
      store: the folder.
      seconds: the time between two renewals.
    """
    first = read_lock(store)
    if first is None:
        return None
    patience = MISSED_RENEWALS * seconds
    logger.info(
        "%s has the lock of %s; looking for up to %.0f s whether it is alive",
        first.holder,
        store.folder,
        patience,
    )
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        time.sleep(seconds / _LOOKS_PER_RENEWAL)
        now = read_lock(store)
        if now is None:
            return None
        if now != first:
            return now.holder
    return None
