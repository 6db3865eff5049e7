"""docs/serving.md: its code runs against a service."""

import re
from pathlib import Path

import pytest

from tests.serving.over_http import over_http

PAGE = Path(__file__).resolve().parents[2] / "docs" / "serving.md"


@pytest.mark.slow
def test_the_code_of_the_page_runs(service_of):
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    found = {}
    with over_http(service_of()) as url:
        exec(compile(code.replace("http://127.0.0.1:8000", url), PAGE.name, "exec"), found)
    assert found["vectors"].shape == (2, 8)
    assert found["vector"].shape == (8,)
    assert found["tokens"] == [["[CLS]", "is", "it", "[SEP]"], ["[CLS]", "no", "[SEP]"]]
    assert found["layers"]["layers_3"].values.shape == (1, 4, 8)
    assert found["records"][0].tokens == ("[CLS]", "it", "is", "[SEP]")
    assert found["outputs"] == ["mean", "last", "word", "half", "brain", "layers"]
