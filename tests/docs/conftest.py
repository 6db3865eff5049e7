"""What the tests of two pages share."""

from pathlib import Path

import pytest

from tests.docs.oracle import Oracle


@pytest.fixture(scope="package")
def oracle(minilm_dir: Path) -> Oracle:
    return Oracle(minilm_dir)
