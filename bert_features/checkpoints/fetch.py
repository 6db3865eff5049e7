"""One file over HTTP: resumed where it broke off, bounded, and of one version or not at all.

What has come of a file lies beside a description, in .json, of which file it is the beginning of.
"""

import contextlib
import logging
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, ValidationError

from bert_features.errors import CheckpointError, ConfigError

if TYPE_CHECKING:
    import requests

logger = logging.getLogger("bert_features")

_BLOCK = 1 << 18

# Called with the bytes that are there and the bytes there will be, None while nobody has told.
Progress = Callable[[int, int | None], None]


@dataclass(frozen=True)
class Patience:
    """How long to go on with a server.

    Attributes:
      attempts: connections at most, the first included.
      backoff: seconds before the second one, doubled before each further one.
      timeout: seconds without a connection, and without a byte, that end an attempt.
    """

    attempts: int = 5
    backoff: float = 0.5
    timeout: tuple[float, float] = (10.0, 60.0)


class _Arriving(BaseModel):
    """Which archive a .partial file is the beginning of.

    Attributes:
      url: its address.
      size: bytes of the whole; None if the server has not told.
      etag: its version by the server's word, if strong.
      last_modified: its date by the server's word.
    """

    model_config = ConfigDict(frozen=True)

    url: str
    size: int | None
    etag: str | None
    last_modified: str | None

    @property
    def validator(self) -> str | None:
        """What If-Range takes; without one nothing can be resumed."""
        return self.etag or self.last_modified


class _TryAgainError(Exception):
    """An attempt that failed for a reason that may pass."""


@dataclass(frozen=True)
class Fetch:
    """The download of one file, which goes on from what is there of it already.

    Attributes:
      url: its address.
      partial: where it goes; what has come stays there when this fails.
      most_bytes: what is larger is refused.
      progress: called as bytes arrive.
      patience: with the server.
      otherwise: what the user can do if it cannot be had, for messages.
    """

    url: str
    partial: Path
    most_bytes: int
    progress: Progress
    patience: Patience
    otherwise: str

    def run(self) -> None:
        """Downloads it, in several attempts if need be.

        Raises:
          CheckpointError: it cannot be had, or is not what the server says it is.
          OSError: `partial` cannot be written.
        """
        for attempt in range(1, self.patience.attempts + 1):
            try:
                with _network_errors(self.url, self.otherwise):
                    return self._attempt()
            except _TryAgainError as error:
                if attempt == self.patience.attempts:
                    raise self._given_up(error) from error
                wait = self.patience.backoff * 2 ** (attempt - 1)
                logger.info("%s: %s; trying again in %g s", self.url, error, wait)
                time.sleep(wait)
        raise ConfigError(f"attempts is {self.patience.attempts}; allowed: at least 1")

    def _given_up(self, error: _TryAgainError) -> CheckpointError:
        kept = _size(self.partial)
        resume = f" The {kept:,} bytes that came are kept: run it again." if kept else ""
        return CheckpointError(
            f"cannot download {self.url} (tried {self.patience.attempts} times): {error}.{resume} "
            f"{self.otherwise}"
        )

    def _attempt(self) -> None:
        import requests

        done = _size(self.partial)
        kept = _read_arriving(self.partial)
        if kept is None or kept.url != self.url or kept.validator is None:
            kept, done = None, 0
        if done and kept is not None and done == kept.size:
            return
        # Not compressed on the way: lengths and ranges are to be the archive's own.
        headers = {"Accept-Encoding": "identity"}
        if done and kept is not None and kept.validator is not None:
            headers |= {"Range": f"bytes={done}-", "If-Range": kept.validator}
        if done:
            logger.info("going on from byte %s of %s", f"{done:,}", self.url)
        with requests.get(
            self.url, headers=headers, stream=True, timeout=self.patience.timeout
        ) as response:
            self._check_answer(response)
            if response.status_code == 206:
                total = self._continue(response, kept, done)
            else:
                done, total = 0, self._begin(response)
            self._receive(response, done, total)

    def _check_answer(self, response: "requests.Response") -> None:
        status = f"{response.status_code} {response.reason or ''}".strip()
        if response.status_code == 416:
            # What is here is as long as the file or longer, and nobody knows of which file.
            discard(self.partial)
            raise _TryAgainError(f"the server answered {status}")
        if response.status_code in (408, 425, 429) or response.status_code >= 500:
            raise _TryAgainError(f"the server answered {status}")
        if response.status_code not in (200, 206):
            raise CheckpointError(
                f"cannot download {self.url}: the server answered {status}. {self.otherwise}"
            )
        if self.url.startswith("https://") and not response.url.startswith("https://"):
            raise CheckpointError(f"{self.url} redirects to {response.url}, which is not encrypted")
        encoding = response.headers.get("Content-Encoding", "identity")
        if encoding != "identity":
            raise CheckpointError(f"{self.url} comes as {encoding}, which was not asked for")

    def _begin(self, response: "requests.Response") -> int | None:
        """Makes room for the whole file; how many bytes it has, None if the server does not say."""
        arriving = _arriving(self.url, response, _number(response, "Content-Length"))
        # In this order: a new description must never stand beside old bytes.
        discard(self.partial)
        write_whole(_arriving_path(self.partial), arriving.model_dump_json())
        return arriving.size

    def _continue(
        self, response: "requests.Response", kept: _Arriving | None, done: int
    ) -> int | None:
        """Checks that a 206 goes on where the partial file ends, in the same version of it."""
        if kept is None or not _is_range(response, done, kept.size):
            discard(self.partial)
            told = response.headers.get("Content-Range", "")
            raise _TryAgainError(f"the server answered with the wrong range {told!r}")
        # Some servers do not know If-Range, and answer with a part of whatever is there now.
        now = _arriving(self.url, response, kept.size)
        if (kept.etag and now.etag and kept.etag != now.etag) or (
            kept.last_modified and now.last_modified and kept.last_modified != now.last_modified
        ):
            discard(self.partial)
            raise _TryAgainError("the file has changed at the server")
        return kept.size

    def _receive(self, response: "requests.Response", done: int, total: int | None) -> None:
        if total is not None and total > self.most_bytes:
            raise self._too_large()
        self.progress(done, total)
        with self.partial.open("ab") as file:
            for block in response.iter_content(_BLOCK):
                done += len(block)
                if done > self.most_bytes:
                    raise self._too_large()
                if total is not None and done > total:
                    discard(self.partial)
                    raise CheckpointError(f"{self.url} sent more than the {total} bytes it told of")
                file.write(block)
                self.progress(done, total)
        if total is not None and done < total:
            raise _TryAgainError(f"the connection broke off at {done:,} of {total:,} bytes")

    def _too_large(self) -> CheckpointError:
        discard(self.partial)
        return CheckpointError(
            f"{self.url} has more than {self.most_bytes:,} bytes: it cannot be that checkpoint"
        )


def _arriving(url: str, response: "requests.Response", size: int | None) -> _Arriving:
    etag = response.headers.get("ETag")
    return _Arriving(
        url=url,
        size=size,
        # A weak one tells that the meaning is the same, not the bytes; If-Range takes none.
        etag=None if etag is None or etag.startswith("W/") else etag,
        last_modified=response.headers.get("Last-Modified"),
    )


def _is_range(response: "requests.Response", done: int, size: int | None) -> bool:
    """Whether a 206 holds the bytes from `done` on, of a file of that size."""
    told = response.headers.get("Content-Range", "")
    match = re.fullmatch(r"bytes (\d+)-(\d+)/(\d+|\*)", told)
    if match is None:
        return False
    first, last, total = int(match[1]), int(match[2]), match[3]
    length = _number(response, "Content-Length")
    return (
        first == done
        and (size is None or last < size)
        and (size is None or total in ("*", str(size)))
        and (length is None or length == last - first + 1)
    )


def _number(response: "requests.Response", header: str) -> int | None:
    text = response.headers.get(header, "")
    return int(text) if text.isascii() and text.isdecimal() else None


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
    """Sorts what requests raises: what may pass, and what will not."""
    import requests

    passing = (
        requests.ConnectionError,
        requests.Timeout,
        requests.exceptions.ChunkedEncodingError,
    )
    try:
        yield
    except requests.exceptions.SSLError as error:
        raise CheckpointError(f"cannot reach {url}: {_reason(error)}. {otherwise}") from error
    except passing as error:
        raise _TryAgainError(_reason(error)) from error
    except requests.RequestException as error:
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


def write_whole(path: Path, text: str) -> None:
    """Writes a small file so that it is there as a whole or as it was."""
    new = path.with_name(f"{path.name}.new")
    new.write_text(text, encoding="utf-8")
    new.replace(path)
