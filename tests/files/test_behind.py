"""BehindFile: a thread writes the bytes of a file in order, in bounded memory."""

import io
import subprocess
import sys
import threading
import time

import pytest

from bert_features.files import behind
from bert_features.files.behind import BehindFile


class Recorder(io.BytesIO):
    """A file that notes the threads that wrote to it, and its content when it was closed."""

    def __init__(self):
        super().__init__()
        self.threads, self.content = set(), b""
        self.may_write = threading.Event()
        self.may_write.set()

    def write(self, data):
        self.may_write.wait(10)
        self.threads.add(threading.get_ident())
        return super().write(data)

    def close(self):
        self.content = self.content or self.getvalue()
        super().close()


@pytest.fixture(autouse=True)
def small_sizes(monkeypatch):
    monkeypatch.setattr(behind, "_SMALL_BYTES", 4)
    monkeypatch.setattr(behind, "_ENOUGH_BYTES", 10)
    monkeypatch.setattr(behind, "_MAX_BYTES", 30)


def write_parts(file):
    for number in range(100):
        part = bytes([number]) * (number % 13)
        assert file.write(part) == len(part)


WANTED = b"".join(bytes([number]) * (number % 13) for number in range(100))


@pytest.mark.parametrize("wrapped", [bytes, bytearray, memoryview])
def test_bytes_are_written_in_order_by_another_thread(wrapped):
    raw = Recorder()
    file = BehindFile(raw, pytest.fail)
    for start in range(0, len(WANTED), 7):
        file.write(wrapped(WANTED[start : start + 7]))
    assert file.tell() == len(WANTED)
    file.close()
    file.close()
    assert raw.content == WANTED
    assert raw.threads - {threading.get_ident()}
    assert file.closed


def test_flush_writes_everything():
    raw = Recorder()
    file = BehindFile(raw, pytest.fail)
    write_parts(file)
    file.flush()
    assert raw.getvalue() == WANTED
    file.write(b"more")
    file.close()
    assert raw.content == WANTED + b"more"


def test_a_small_piece_may_change_afterwards():
    raw, piece = Recorder(), bytearray(b"abc")
    file = BehindFile(raw, pytest.fail)
    file.write(piece)
    piece[:] = b"xyz"
    file.close()
    assert raw.content == b"abc"


def test_the_checksum_is_that_of_all_bytes():
    # The check value of CRC-32C is that of these nine digits.
    for parts in ((b"123456789",), (b"1234", b"", memoryview(b"56789"))):
        file = BehindFile(Recorder(), pytest.fail, checksummed=True)
        for part in parts:
            file.write(part)
        file.close()
        assert file.crc == 0xE3069283
    assert BehindFile(Recorder(), pytest.fail).crc is None


def test_what_waits_is_bounded():
    raw = Recorder()
    raw.may_write.clear()
    file, written = BehindFile(raw, pytest.fail), []

    def write():
        for _ in range(10):
            file.write(b"0123456789")
            written.append(file.tell())

    thread = threading.Thread(target=write)
    thread.start()
    deadline = time.monotonic() + 5
    while len(written) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.1)  # would another be taken?
    assert written == [10, 20, 30]
    raw.may_write.set()
    thread.join()
    file.close()
    assert raw.content == b"0123456789" * 10


def test_a_piece_larger_than_the_bound_is_written():
    raw = Recorder()
    file = BehindFile(raw, pytest.fail)
    for _ in range(3):
        file.write(b"x" * 100)
    file.close()
    assert raw.content == b"x" * 300


def test_a_failure_is_reported_and_the_thread_ends():
    class Full(Recorder):
        def write(self, data):
            raise OSError("full")

    before, reported, raw = threading.active_count(), [], Full()
    file = BehindFile(raw, reported.append)
    write_parts(file)
    file.close()
    assert {str(error) for error in reported} == {"full"}
    assert raw.closed
    assert threading.active_count() == before


def test_a_file_that_cannot_be_closed_ends_its_thread():
    class Unclosable(Recorder):
        def flush(self):
            raise OSError("no")

    before, raw = threading.active_count(), Unclosable()
    file = BehindFile(raw, pytest.fail)
    write_parts(file)
    with pytest.raises(OSError, match="no"):
        file.close()
    assert threading.active_count() == before


def test_a_file_is_written_in_an_exit_handler(tmp_path):
    path = tmp_path / "f"
    program = (
        "import atexit, sys; from bert_features.files.behind import BehindFile;"
        "file = BehindFile(open(sys.argv[1], 'xb'), print);"
        "atexit.register(lambda: [file.write(b'x' * (5 << 20)), file.close()])"
    )
    subprocess.run([sys.executable, "-c", program, path], check=True)
    assert path.stat().st_size == 5 << 20
