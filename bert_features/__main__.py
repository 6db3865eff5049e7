"""The console script `bert-features`; `python -m bert_features` is the same."""

import signal


def main() -> None:
    """Runs the command line."""
    # Imports do not survive an exception well. `cli.edge` takes the signals once a command begins.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from bert_features.cli import main as run
    from bert_features.machine.quiet_tensorflow import claim_process

    claim_process()
    run()


if __name__ == "__main__":
    main()
