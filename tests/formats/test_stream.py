"""JSON lines to standard output: the lines of a .jsonl file, and errors that are one sentence."""

import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from bert_features.errors import OutputError
from bert_features.formats.stream import StreamWriter
from tests.formats.feature_files import EVERYTHING, ONE, make_batch, write


def test_the_lines_are_those_of_a_file(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    batches = [make_batch(EVERYTHING, [2, 0, 3]), make_batch(EVERYTHING, [1])]
    write(tmp_path / "f.jsonl", "jsonl", EVERYTHING, *batches)
    writer = StreamWriter(features=EVERYTHING)
    for batch in batches:
        writer.write(batch)
    expected = (tmp_path / "f.jsonl").read_bytes()
    assert capfdbinary.readouterr().out == expected
    assert (writer.records, writer.bytes_written) == (4, len(expected))


def test_values_that_json_cannot_hold() -> None:
    batch = make_batch(ONE, [2])
    batch.features["layer_output_0"][0, 0] = np.nan
    with pytest.raises(OutputError, match="has a value that is not finite"):
        StreamWriter(features=ONE).write(batch)


def test_standard_output_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    with pytest.raises(OutputError, match="cannot write to standard output: it is closed; pass a"):
        StreamWriter(features=ONE)


def test_the_disk_is_full() -> None:
    code = """
        from bert_features.errors import OutputError
        from bert_features.formats.stream import StreamWriter
        from tests.formats.feature_files import ONE, make_batch
        import os, sys
        try:
            StreamWriter(features=ONE).write(make_batch(ONE, [2]))
        except OutputError as error:
            print(error, file=sys.stderr)
            os._exit(0)
    """
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).resolve().parents[2],
        )
    assert done.stderr == (
        "cannot write to standard output: No space left on device; what is there is incomplete\n"
    )
