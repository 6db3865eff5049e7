"""What all processes of a run or a service import; the one that they are forks of does so.

See `extraction.forks`.
"""

import signal

from bert_features.machine.quiet_tensorflow import claim_process, import_tensorflow

# A terminal that closes, or systemd, ends all processes at once. This one ends after the run or the
# service, which learns from it how the others ended. They have handlers of their own.
for _ending in (signal.SIGTERM, signal.SIGHUP):
    if signal.getsignal(_ending) != signal.SIG_IGN:  # as under nohup
        signal.signal(_ending, lambda number, frame: None)

claim_process()
import_tensorflow("tensorflow", "cpu")

import bert_features.extraction.pipeline  # noqa: E402
import bert_features.extraction.preparation  # noqa: E402, F401
