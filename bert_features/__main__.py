"""The console script `bert-features`; `python -m bert_features` is the same."""

import json
import os
import signal
import sys
import time
from types import FrameType
from typing import NoReturn


def main() -> None:
    """Runs the command line."""
    # Until a command begins there is nothing to clean up, and imports do not survive an exception
    # well. From then on `cli.edge` takes the signals.
    for ending in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(ending) != signal.SIG_IGN:
            signal.signal(ending, _end)
    from bert_features.cli import main as run

    run()


def _end(number: int, frame: FrameType | None) -> NoReturn:
    by = "" if number == signal.SIGINT else f" by {signal.Signals(number).name}"
    line = f"bert-features: interrupted{by}"
    if "--log-json" in sys.argv:  # as `cli.logs` writes it, which cannot be imported now
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        line = json.dumps({"time": stamp, "level": "error", "message": f"interrupted{by}"})
    os.write(2, f"{line}\n".encode())
    os._exit(128 + number)


if __name__ == "__main__":
    main()
