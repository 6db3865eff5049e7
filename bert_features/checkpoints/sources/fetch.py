"""One file over HTTP, by requests: tried again, and resumed where it broke off.

Nothing is recorded of the version of a file that came in part. If it has changed at the server, the
whole does not pass the checksums of its archive, and is discarded.
"""

import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bert_features.errors import CheckpointError

if TYPE_CHECKING:
    import requests

logger = logging.getLogger("bert_features")

_BLOCK = 1 << 18
_ATTEMPTS = 5
_BACKOFF = 0.5  # seconds; doubles with each attempt, unless the server asks for another
_TIMEOUT = (10.0, 60.0)  # seconds without a connection, and without a byte
_MAX_PAUSE = 30.0  # seconds, whatever the server asks for
_PASSING_STATUSES = (408, 425, 429, 500, 502, 503, 504)

# Called with the bytes that have come and the size of the whole, None while it is unknown.
Progress = Callable[[int, int | None], None]


class _BrokenOffError(Exception):
    """The rest of the file is still to come."""


def fetch(url: str, partial: Path, *, max_bytes: int, progress: Progress, otherwise: str) -> None:
    """Downloads a file to `partial`, from the byte where an earlier call broke off.

    What has come stays there after a failure that may pass. Raises CheckpointError if the server
    cannot be reached, answers with an error or keeps breaking off, or the file is larger than
    `max_bytes`; the error ends with `otherwise`, what the user can do instead. Raises OSError if
    `partial` cannot be written.
    """
    import requests
    from requests.adapters import HTTPAdapter
    from urllib3.exceptions import HTTPError
    from urllib3.util import Retry

    class BoundedRetry(Retry):
        def get_retry_after(self, response: Any) -> float | None:
            return min(super().get_retry_after(response) or 0.0, _MAX_PAUSE) or None

    retry = BoundedRetry(
        _ATTEMPTS - 1,
        backoff_factor=_BACKOFF,
        status_forcelist=_PASSING_STATUSES,
        raise_on_status=False,
    )
    with requests.Session() as session:
        for scheme in ("http://", "https://"):
            session.mount(scheme, HTTPAdapter(max_retries=retry))
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                _receive(session, url, partial, max_bytes, progress)
                return
            except (requests.RequestException, HTTPError, _BrokenOffError, ValueError) as error:
                done = _size(partial)
                # Before the first byte of an answer, Retry has tried again already.
                resumable = isinstance(error, HTTPError | _BrokenOffError)
                if not resumable or attempt == _ATTEMPTS:
                    kept = f"; {done:,} bytes that came are kept" if done else ""
                    raise CheckpointError(
                        f"cannot download {url}: {_reason(error)}{kept}. {otherwise}"
                    ) from error
                logger.info("resuming %s at byte %s: %s", url, f"{done:,}", _reason(error))


def _receive(
    session: "requests.Session", url: str, partial: Path, max_bytes: int, progress: Progress
) -> None:
    """Appends to `partial` what is missing."""
    done = _size(partial)
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={done}-"} if done else {})
    with session.get(url, headers=headers, stream=True, timeout=_TIMEOUT) as response:
        if url.startswith("https://") and not response.url.startswith("https://"):
            raise CheckpointError(
                f"{url} is redirected to {response.url}, which is not encrypted; use https:// only"
            )
        status, stated = response.status_code, response.headers.get("Content-Range", "")
        if status == 416 and stated == f"bytes */{done}":
            return
        if status not in (200, 206, 416):
            raise ValueError(f"the server answered {status} {response.reason}")
        if not (done and status == 206 and stated.startswith(f"bytes {done}-")):
            partial.unlink(missing_ok=True)
            done = 0
            if status != 200:
                raise _BrokenOffError("the server does not have the rest of this file")
        length = response.headers.get("Content-Length", "")
        total = done + int(length) if length.isdigit() else None
        progress(done, total)
        with partial.open("ab") as file:
            for block in response.raw.stream(_BLOCK, decode_content=False):
                done += len(block)
                if done > max_bytes:
                    break
                file.write(block)
                progress(done, total)
    if done > max_bytes:
        partial.unlink()
        raise CheckpointError(
            f"{url} has more than {max_bytes:,} bytes, so it is not that checkpoint; check the "
            "address"
        )


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _reason(error: BaseException) -> str:
    """What went wrong, without the names of the classes it was wrapped in."""
    inner = getattr(error, "reason", None) or (error.args[0] if error.args else None)
    if isinstance(inner, BaseException):
        return _reason(inner)
    text = inner if isinstance(inner, str) else str(error)
    # urllib3 puts the connection it was before the words.
    text = re.sub(r"^\S+\(.*?\): ", "", " ".join(text.split()))
    return text[:300].rstrip(".") or type(error).__name__
