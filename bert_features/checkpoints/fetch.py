"""One file over HTTP: resumed where it broke off, bounded, checked, and of one version only.

The bytes that have come are kept beside a description, in .json, of the file they begin.
"""

import base64
import contextlib
import hashlib
import logging
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, ValidationError

from bert_features.checkpoints.pace import (
    DEFAULT_LIMITS,
    Clock,
    Pace,
    PaceLimits,
    TooLongError,
    TooSlowError,
)
from bert_features.errors import CheckpointError, ConfigError
from bert_features.files import IN_CACHE, write_whole

if TYPE_CHECKING:
    import requests

logger = logging.getLogger("bert_features")

_BLOCK = 1 << 18
_LONGEST_WAIT = 60.0  # seconds, whatever the server asks for
_RETRIED_STATUSES = (408, 425, 429)  # and those from 500 on

# Called with the bytes that have come and the size of the whole, None while it is unknown.
Progress = Callable[[int, int | None], None]


@dataclass(frozen=True)
class Patience:
    """How long to go on with a server that fails.

    Attributes:
      attempts: the most connections, the first included.
      backoff: seconds; the second connection is tried at once, the third after twice this time,
        each further one after twice the time before. A server can ask for more by Retry-After.
      timeout: seconds without a connection, and without a byte, that end an attempt.
      pace: the least speed, which ends an attempt, and the longest time of all attempts.
    """

    attempts: int = 5
    backoff: float = 0.5
    timeout: tuple[float, float] = (10.0, 60.0)
    pace: PaceLimits = DEFAULT_LIMITS


class _Arriving(BaseModel):
    """The file that a .partial file is the beginning of, as the server describes it.

    Attributes:
      url: its address.
      size: bytes of the whole; None if unknown.
      etag: its version; None if unknown, or if it is weak.
      last_modified: its date, as the server writes it; None if unknown.
      md5: of the whole, in hexadecimal; None if unknown.
    """

    model_config = ConfigDict(frozen=True)

    url: str
    size: int | None
    etag: str | None
    last_modified: str | None
    md5: str | None

    @property
    def validator(self) -> str | None:
        """The value for If-Range; None if nothing can be resumed."""
        return self.etag or self.last_modified

    def is_contradicted(self, now: "_Arriving") -> bool:
        """Whether the server now describes another file; what it leaves out contradicts nothing."""
        if self.md5 and now.md5 and self.md5 != now.md5:
            return True
        if self.etag and now.etag:  # more exact than a date, which may differ between its servers
            return self.etag != now.etag
        return bool(
            self.last_modified and now.last_modified and self.last_modified != now.last_modified
        )


class _TryAgainError(Exception):
    """An attempt that failed for a reason that may pass.

    Args:
      reason: what went wrong.
      wait: seconds that the server asks for.
    """

    def __init__(self, reason: str, wait: float = 0.0) -> None:
        super().__init__(reason)
        self.wait = wait


@dataclass(frozen=True)
class Fetch:
    """The download of one file, which goes on from the bytes that are already there.

    Attributes:
      url: its address.
      partial: where it goes; what has come stays there after a failure that may pass.
      max_bytes: a larger file is refused.
      progress: called as bytes arrive.
      patience: with the server.
      otherwise: what the user can do instead, for messages.
      clock: gives seconds, for the pace.
    """

    url: str
    partial: Path
    max_bytes: int
    progress: Progress
    patience: Patience
    otherwise: str
    clock: Clock = time.monotonic

    def run(self) -> None:
        """Downloads it, in several attempts if necessary.

        Raises:
          CheckpointError: the server does not send it, or sends something else than it states; or
            its description cannot be written.
          OSError: `partial` cannot be written.
        """
        from urllib3.exceptions import MaxRetryError
        from urllib3.util import Retry

        if self.patience.attempts < 1:
            raise ConfigError(f"attempts is {self.patience.attempts}; allowed: at least 1")
        # Counted here and not in requests' adapter, which cannot continue a body that broke off.
        retries = Retry(self.patience.attempts - 1, backoff_factor=self.patience.backoff)
        pace = Pace(self.patience.pace, self.clock)
        while True:
            try:
                with _network_errors(self.url, self.otherwise):
                    return self._attempt(pace)
            except TooLongError as error:
                raise self._given_up(str(error)) from error
            except _TryAgainError as error:
                try:
                    retries = retries.increment("GET", self.url, error=error)
                except MaxRetryError:
                    tried = f"(tried {self.patience.attempts} times) "
                    raise self._given_up(str(error), tried) from error
                wait = min(max(retries.get_backoff_time(), error.wait), _LONGEST_WAIT)
                logger.info("%s: %s; trying again in %g s", self.url, error, wait)
                time.sleep(wait)

    def _given_up(self, reason: str, tried: str = "") -> CheckpointError:
        kept = _size(self.partial)
        resume = f" The {kept:,} bytes that came are kept: run it again." if kept else ""
        return CheckpointError(
            f"cannot download {self.url} {tried}".rstrip() + f": {reason}.{resume} {self.otherwise}"
        )

    def _attempt(self, pace: Pace) -> None:
        import requests

        kept, done = _read_arriving(self.partial), _size(self.partial)
        if kept is None or kept.url != self.url or kept.validator is None:
            kept, done = None, 0
        if kept is not None and done and done == kept.size:
            self._check_md5(kept)
            return
        # Not compressed on the way: lengths and ranges must be the file's own.
        headers = {"Accept-Encoding": "identity"}
        pace.begin_attempt()
        if kept is not None and kept.validator is not None and done:
            headers |= {"Range": f"bytes={done}-", "If-Range": kept.validator}
            logger.info("going on from byte %s of %s", f"{done:,}", self.url)
        with requests.get(
            self.url, headers=headers, stream=True, timeout=self.patience.timeout
        ) as response:
            self._check_answer(response)
            if response.status_code == 206:
                arriving = self._continue(response, kept, done)
            else:
                done, arriving = 0, self._begin(response)
            self._receive(response, done, arriving.size, pace)
        self._check_md5(arriving)

    def _check_answer(self, response: "requests.Response") -> None:
        code = response.status_code
        status = f"the server answered {code} {response.reason or ''}".strip()
        if code == 416:
            # The bytes here are as many as the file has, or more: they are of another file.
            discard(self.partial)
            raise _TryAgainError(status)
        if code in _RETRIED_STATUSES or code >= 500:
            asked = response.headers.get("Retry-After", "")
            raise _TryAgainError(status, float(asked) if re.fullmatch(r"\d{1,9}", asked) else 0.0)
        if code not in (200, 206):
            raise CheckpointError(f"cannot download {self.url}: {status}. {self.otherwise}")
        if self.url.startswith("https://") and not response.url.startswith("https://"):
            raise CheckpointError(
                f"{self.url} redirects to {response.url}, which is not encrypted. {self.otherwise}"
            )
        encoding = response.headers.get("Content-Encoding", "identity")
        if encoding != "identity":
            raise CheckpointError(
                f"{self.url} comes as {encoding}, which was not asked for. {self.otherwise}"
            )

    def _begin(self, response: "requests.Response") -> _Arriving:
        """Makes room for the whole file."""
        arriving = _arriving(self.url, response, _number(response, "Content-Length"))
        # In this order: a new description must never stand beside old bytes.
        discard(self.partial)
        write_whole(_arriving_path(self.partial), arriving.model_dump_json(), **IN_CACHE)
        return arriving

    def _continue(
        self, response: "requests.Response", kept: _Arriving | None, done: int
    ) -> _Arriving:
        """Checks that a 206 goes on where the partial file ends, in the same version of it."""
        if kept is None or not _is_rest(response, done, kept.size):
            discard(self.partial)
            received = response.headers.get("Content-Range", "")
            raise _TryAgainError(f"the server answered with the wrong range {received!r}")
        # Some servers ignore If-Range, and send a part of whatever they have now.
        if kept.is_contradicted(_arriving(self.url, response, kept.size)):
            discard(self.partial)
            raise _TryAgainError("the file has changed at the server")
        return kept

    def _receive(
        self, response: "requests.Response", done: int, total: int | None, pace: Pace
    ) -> None:
        if total is not None and total > self.max_bytes:
            raise self._too_large()
        self.progress(done, total)
        with self.partial.open("ab") as file:
            for block in _blocks(response):
                done += len(block)
                if done > self.max_bytes:
                    raise self._too_large()
                if total is not None and done > total:
                    discard(self.partial)
                    raise CheckpointError(
                        f"{self.url} sent more than the {total} bytes that it announced. "
                        f"{self.otherwise}"
                    )
                file.write(block)
                self.progress(done, total)
                if done != total:
                    pace.add(len(block))
        if total is not None and done < total:
            raise _TryAgainError(f"the connection broke off at {done:,} of {total:,} bytes")

    def _check_md5(self, arriving: _Arriving) -> None:
        """Compares what has come with the checksum that the server states, if it states one."""
        if arriving.md5 is None:
            return
        with self.partial.open("rb") as file:
            # Not for security, which some systems forbid MD5 for.
            md5 = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False))
        received = md5.hexdigest()
        if received != arriving.md5:
            discard(self.partial)
            raise _TryAgainError(
                f"damaged on the way: MD5 {received} came, the server states {arriving.md5}"
            )

    def _too_large(self) -> CheckpointError:
        discard(self.partial)
        return CheckpointError(
            f"{self.url} has more than {self.max_bytes:,} bytes: it cannot be that checkpoint. "
            f"{self.otherwise}"
        )


def _blocks(response: "requests.Response") -> Iterator[bytes]:
    """The body as it comes: requests' own iterator waits for a whole block, however slowly."""
    while block := response.raw.read1(_BLOCK):
        yield block


def _arriving(url: str, response: "requests.Response", size: int | None) -> _Arriving:
    etag = response.headers.get("ETag", "")
    return _Arriving(
        url=url,
        size=size,
        # A weak one is for the same meaning, not the same bytes; If-Range takes none.
        etag=None if etag.startswith("W/") else etag or None,
        last_modified=response.headers.get("Last-Modified") or None,
        md5=_stated_md5(response),
    )


def _stated_md5(response: "requests.Response") -> str | None:
    """The MD5 of the whole file by Google Cloud Storage's header, in hexadecimal."""
    # Google's archives have one; an object in several parts has only a CRC32C, and a file stored
    # compressed has the checksum of that form.
    if response.headers.get("x-goog-stored-content-encoding", "identity") != "identity":
        return None
    stated = response.headers.get("x-goog-hash", "")
    match = re.search(r"(?:^|[,\s])md5=([A-Za-z0-9+/]{22}==)(?:$|[,\s])", stated)
    return base64.b64decode(match[1]).hex() if match else None


def _is_rest(response: "requests.Response", done: int, size: int | None) -> bool:
    """Whether a 206 holds bytes from `done` on, of a file of that size."""
    stated = response.headers.get("Content-Range", "")
    match = re.fullmatch(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18})", stated)
    if match is None:
        return False
    first, last, total = map(int, match.groups())
    length = _number(response, "Content-Length")
    fits = first == done and first <= last < total and total == (size or total)
    return fits and length in (None, last - first + 1)


def _number(response: "requests.Response", header: str) -> int | None:
    text = response.headers.get(header, "")
    return int(text) if re.fullmatch(r"[0-9]{1,18}", text) else None


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _arriving_path(partial: Path) -> Path:
    return partial.with_name(f"{partial.name}.json")


def _read_arriving(partial: Path) -> _Arriving | None:
    try:
        return _Arriving.model_validate_json(_arriving_path(partial).read_bytes())
    except (FileNotFoundError, ValidationError):
        return None


def discard(partial: Path) -> None:
    """Removes what has come of a file, and its description."""
    # Bytes without a description are never used; a description without bytes does no harm.
    partial.unlink(missing_ok=True)
    _arriving_path(partial).unlink(missing_ok=True)


@contextlib.contextmanager
def _network_errors(url: str, otherwise: str) -> Iterator[None]:
    """Sorts network failures: those that may pass become `_TryAgainError`, others are final."""
    import requests
    from urllib3.exceptions import HTTPError, ProtocolError, ReadTimeoutError

    passing = (
        requests.ConnectionError,
        requests.Timeout,
        # Of the body, which is read without requests.
        ProtocolError,
        ReadTimeoutError,
        TooSlowError,
    )
    try:
        yield
    except requests.exceptions.SSLError as error:
        raise CheckpointError(f"cannot reach {url}: {_reason(error)}. {otherwise}") from error
    except passing as error:
        raise _TryAgainError(_reason(error)) from error
    except (requests.RequestException, HTTPError, ValueError) as error:
        # The last two come of addresses that a server redirects to, and are no addresses.
        raise CheckpointError(f"cannot download {url}: {_reason(error)}. {otherwise}") from error


def _reason(error: BaseException) -> str:
    """What went wrong, without the names of the classes it was wrapped in."""
    inner = getattr(error, "reason", None) or (error.args[0] if error.args else None)
    if isinstance(inner, BaseException):
        return _reason(inner)
    text = inner if isinstance(inner, str) else str(error)
    # urllib3 puts the connection it was before the words.
    text = re.sub(r"^\S+\(.*?\): ", "", " ".join(text.split()))
    return text[:300].rstrip(".") or type(error).__name__
