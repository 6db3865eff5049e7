"""The console script `bert-features`; `python -m bert_features` is the same."""

import os
import signal
from types import FrameType
from typing import NoReturn


def main() -> None:
    """Runs the command line."""
    # Until a command begins there is nothing to clean up, and imports do not survive an exception
    # well. From then on `cli.edge` takes the signals.
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        signal.signal(signal.SIGINT, _end)
    from bert_features.cli import main as run

    run()


def _end(number: int, frame: FrameType | None) -> NoReturn:
    os.write(2, b"bert-features: interrupted\n")
    os._exit(128 + number)


if __name__ == "__main__":
    main()
