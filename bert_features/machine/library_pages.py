"""Memory of shared libraries that a process has used and needs no more."""

import contextlib
import ctypes
import mmap
import re
from pathlib import Path

SMAPS = Path("/proc/self/smaps")

# A mapping of a library, read-only, of whose pages none differs from the file. Relocated pages do;
# they would lose what was written. An emulator may say that all sizes are 0, and nothing by that.
_UNCHANGED = re.compile(
    rb"^([0-9a-f]+)-([0-9a-f]+) r-[x-]p .*\.so\S*\n"
    rb"(?:\w+: .*\n)*?Rss: +[1-9]\d* kB\n(?:\w+: .*\n)*?Anonymous: +0 kB",
    re.MULTILINE,
)


def release_library_pages() -> None:
    """Takes libraries' pages out of this process's memory; those that it needs come back.

    They come from the system's cache of files, 64 KiB at a time. Importing TensorFlow touches 420
    MiB of them: tables of relocations, and code that runs once. Does nothing where the system does
    not say which pages are unchanged, as only Linux does.

    No other thread may unload a library meanwhile: memory that took its place would be lost.
    """
    with contextlib.suppress(OSError):
        mappings = _UNCHANGED.findall(SMAPS.read_bytes())
        libc = ctypes.CDLL(None)
        for first, last in mappings:
            start = int(first, 16)
            size = int(last, 16) - start
            libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(size), mmap.MADV_DONTNEED)
