"""Log lines and errors on standard error: plain text, or one JSON object a line (`--log-json`)."""

import contextlib
import json
import logging
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from bert_features.errors import printable

LOG_JSON = "--log-json"
_as_json = False  # any thread may log, so this is no context variable


def is_json() -> bool:
    """Whether log lines are JSON objects now."""
    return _as_json


@contextlib.contextmanager
def log_form(*, as_json: bool) -> Iterator[None]:
    """Sets the form of log lines and errors until the block ends; JSON, once chosen, stays."""
    global _as_json
    before = _as_json
    _as_json = before or as_json
    try:
        yield
    finally:
        _as_json = before


def set_up_logging(*, as_json: bool = False) -> None:
    """Sends warnings of all libraries, and what this package reports, to standard error.

    The lines may be JSON objects, as after `log_form`.
    """
    global _as_json
    _as_json = _as_json or as_json
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Formatter("%(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    logging.getLogger("bert_features").setLevel(logging.INFO)


def log_fields(**fields: Any) -> dict[str, Any]:
    """The argument `extra` of a log call: values that a JSON line has as fields of their own."""
    return {"fields": fields}


def error_line(line: str, trace: str = "") -> str:
    """What an error prints, without a line break at its end."""
    if is_json():
        return _object("error", line, {"traceback": trace} if trace else {})
    # It may name what others have written: their control characters do not reach the terminal.
    return f"{trace}bert-features: {printable(line)}"


class _Formatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        if not is_json():
            line = super().format(record)
            ours = record.name == "bert_features" and not record.exc_info
            return printable(line) if ours else line  # as an error
        fields = dict(getattr(record, "fields", {}))
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return _object(record.levelname.lower(), record.getMessage(), fields, record.created)


def _object(
    level: str, message: str, fields: Mapping[str, Any], created: float | None = None
) -> str:
    time = datetime.now(UTC) if created is None else datetime.fromtimestamp(created, UTC)
    stamp = time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return json.dumps({"time": stamp, "level": level, "message": message, **fields}, default=str)
