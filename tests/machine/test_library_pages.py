"""Pages of libraries leave memory, and nothing that was written to them is lost."""

import ctypes
import mmap
import re
from pathlib import Path

import numpy as np
import pytest

from bert_features.machine import library_pages
from bert_features.machine.library_pages import release_library_pages

pytestmark = pytest.mark.skipif(
    not library_pages.SMAPS.exists(), reason="only Linux says which pages are unchanged"
)


def resident_files():
    """Megabytes of files that are in this process's memory."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"RssFile:\s+(\d+) kB", status)[1]) / 1024


def test_what_is_not_used_leaves_memory_and_comes_back():
    x = np.random.default_rng(0).normal(size=(50, 50))
    product, before = x @ x, resident_files()
    release_library_pages()
    assert resident_files() < before / 2
    np.testing.assert_array_equal(x @ x, product)


def test_a_page_that_was_written_stays(tmp_path):
    """As the relocated pages of a library, which are read-only once it is loaded."""
    path = tmp_path / "made_up.so"
    path.write_bytes(bytes(3 * mmap.PAGESIZE))
    with (
        path.open("rb") as file,
        mmap.mmap(
            file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE
        ) as pages,
    ):
        pages[mmap.PAGESIZE] = 7
        start = ctypes.addressof(ctypes.c_char.from_buffer(pages))
        protect = ctypes.CDLL(None).mprotect
        assert protect(ctypes.c_void_p(start), ctypes.c_size_t(len(pages)), mmap.PROT_READ) == 0
        release_library_pages()
        assert pages[mmap.PAGESIZE] == 7
