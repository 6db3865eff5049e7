"""The files of the page at `/`: their headers, and what a browser may keep."""

import re

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from bert_features.serving.page_files import FOLDER, page_routes

FILES = sorted(path.name for path in FOLDER.iterdir())


@pytest.fixture(scope="module")
def client():
    with TestClient(Starlette(routes=page_routes())) as client:
        yield client


def addresses(name):
    return ["/"] if name == "index.html" else [f"/page/{name}"]


@pytest.mark.parametrize("name", FILES)
def test_every_file_comes_with_the_policy_and_is_asked_for_once(client, name):
    (address,) = addresses(name)
    first = client.get(address)
    assert first.status_code == 200
    assert first.content == (FOLDER / name).read_bytes()
    assert "script-src 'self'" in first.headers["content-security-policy"]
    assert "unsafe" not in first.headers["content-security-policy"]
    assert first.headers["cache-control"] == "no-cache"
    again = client.get(address, headers={"If-None-Match": first.headers["etag"]})
    assert again.status_code == 304
    assert "content-security-policy" in again.headers


@pytest.mark.parametrize("address", ["/page/", "/page/none.js", "/page/../page_files.py"])
def test_other_files_are_not_found(client, address):
    assert client.get(address).status_code == 404


def test_no_file_names_another_address():
    """But for the namespace of SVG, which is a name and no address."""
    for path in FOLDER.iterdir():
        found = re.findall(r"(?:https?:)?//[\w.-]+\.\w+\S*", path.read_text(encoding="utf-8"))
        assert [f for f in found if "//www.w3.org/2000/svg" not in f] == [], path.name
