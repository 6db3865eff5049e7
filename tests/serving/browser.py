"""The headless Chromium that tests of the page drive."""

import contextlib
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find_chromium() -> str:
    """The Chromium of scripts/browser.sh, or else one on PATH; skips the test if there is none."""
    fetched = Path(sys.prefix) / "chromium" / "chromium"
    if fetched.is_file():
        return str(fetched)
    for name in _NAMES:
        if found := shutil.which(name):
            return found
    pytest.skip(
        f"no Chromium on PATH nor in {fetched.parent}; scripts/browser.sh says why it fetched none"
    )


@contextlib.contextmanager
def chromium() -> Iterator[Any]:
    """A running headless Chromium, driven by Playwright."""
    from playwright.sync_api import sync_playwright

    program = find_chromium()
    libraries = Path(program).parent / "lib"
    added = {"LD_LIBRARY_PATH": str(libraries)} if libraries.is_dir() else {}
    with sync_playwright() as driver:
        # Its sandbox needs rights that a container has not.
        browser = driver.chromium.launch(
            executable_path=program, args=["--no-sandbox"], env={**os.environ, **added}
        )
        try:
            yield browser
        finally:
            browser.close()
