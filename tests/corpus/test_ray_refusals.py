"""Runs on Ray that are refused, before a folder is made."""

import socket

import pytest

from bert_features import extract
from bert_features.errors import ConfigError, DeviceError, MissingExtraError


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"ray": "local", "processes": 2}, "processes and ray are both set"),
        ({"ray_actors": "2"}, "ray_actors needs ray; pass both"),
        ({"ray_resources": "CPU=1"}, "ray_resources needs ray; pass both"),
        ({"ray": "local", "ray_actors": "x"}, "ray_actors is 'x'"),
    ],
)
def test_settings_that_do_not_fit_together_are_refused(config, texts, tmp_path, settings, problem):
    with pytest.raises(ConfigError, match=problem):
        extract(config(), texts, f"{tmp_path}/out/", **settings)
    assert not (tmp_path / "out").exists()


def test_a_single_file_is_refused(config, texts, tmp_path):
    with pytest.raises(ConfigError, match=r"ray is local, but .* is a single file"):
        extract(config(), texts, tmp_path / "out.parquet", ray="local")


def test_without_ray_the_extra_is_named(config, texts, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"ray is not installed.*\[ray\]"):
        extract(config(), texts, f"{tmp_path}/out/", ray="local")
    assert not (tmp_path / "out").exists()


@pytest.mark.filterwarnings("ignore::DeprecationWarning:ray")
@pytest.mark.filterwarnings("ignore::FutureWarning:ray")
@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_an_address_where_nothing_listens_is_refused(config, texts, tmp_path, scheme):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"{scheme}127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(DeviceError, match=r"no Ray cluster answers at .*connection refus"):
            extract(config(), texts, f"{tmp_path}/out/", ray=address)
    assert not (tmp_path / "out").exists()
