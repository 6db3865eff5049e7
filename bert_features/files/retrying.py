"""Calls to servers that are tried again: only after failures that may pass."""

import logging
import random
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

logger = logging.getLogger("bert_features")

# Drivers try again too, with shorter pauses; these tries come after theirs.
TRIES = 4
FIRST_PAUSE_SECONDS = 1.0  # doubles with each try, times 0.5 to 1.5
MAX_SECONDS = 180.0  # of all tries: no other begins after that
# Calls at a time: a server answers after some ten milliseconds.
_AT_A_TIME = 16

# 409 is that of two requests that create the same object.
_PASSING_STATUS = frozenset({408, 409, 429, 500, 502, 503, 504})
# Names of the base classes of failed connections in aiohttp, botocore, requests and fsspec.
_PASSING_CLASSES = frozenset(
    {
        "ChecksumError",
        "ClientConnectionError",
        "ClientPayloadError",
        "ConnectionError",
        "FSTimeoutError",
        "HTTPClientError",
        "IncompleteRead",
        "ProxyError",
        "Timeout",
        "TimeoutError",
    }
)

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def retrying(call: Callable[[], _Result], action: str) -> _Result:
    """The result of a call, which is tried again after failures that may pass.

    Args:
      call: the call; it can be repeated.
      action: what it does, for the log: `read s3://bucket/a`.

    Raises:
      Exception: that of the last try.
    """
    started = time.monotonic()
    for attempt in range(1, TRIES):
        try:
            return call()
        except Exception as problem:
            pause = random.uniform(0.5, 1.5) * FIRST_PAUSE_SECONDS * 2 ** (attempt - 1)
            if not may_pass(problem) or time.monotonic() - started + pause > MAX_SECONDS:
                raise
            logger.info(
                "could not %s (%s); try %d of %d in %.1f s",
                action,
                first_line(problem),
                attempt + 1,
                TRIES,
                pause,
            )
            time.sleep(pause)
    return call()


def may_pass(problem: BaseException) -> bool:
    """Whether a failure may be gone at the next try: a timeout, a lost connection, a busy server.

    No permission and a missing file or bucket do not pass.
    """
    status = status_of(problem)
    if status is not None:
        return status in _PASSING_STATUS
    names = {kind.__name__ for each in _causes(problem) for kind in type(each).__mro__}
    return not _PASSING_CLASSES.isdisjoint(names)


def status_of(problem: BaseException) -> int | None:
    """The HTTP status in a driver's error, or in one that caused it; None if there is none."""
    for each in _causes(problem):
        response = getattr(each, "response", None)
        metadata = response.get("ResponseMetadata", {}) if isinstance(response, dict) else {}
        found = metadata.get("HTTPStatusCode")  # botocore's
        for value in (found, getattr(each, "code", None), getattr(each, "status", None)):
            if isinstance(value, int) or (isinstance(value, str) and value.isdigit()):
                return int(value)
    return None


def first_line(problem: BaseException) -> str:
    """A driver's message in one line of a bounded length."""
    text = getattr(problem, "strerror", None) or problem
    return " ".join(str(text).split())[:200] or type(problem).__name__


def in_parallel(call: Callable[[_Item], _Result], items: Iterable[_Item]) -> Iterator[_Result]:
    """The results of a call for each item, in order; many are asked for at a time."""
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        yield from pool.map(call, items)


def _causes(problem: BaseException) -> Iterator[Any]:
    each: BaseException | None = problem
    while each is not None:
        yield each
        each = each.__cause__
