"""The console script `bert-features`; `python -m bert_features` is the same."""

import os
import signal
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
    os.write(2, f"bert-features: interrupted{by}\n".encode())
    os._exit(128 + number)


if __name__ == "__main__":
    main()
