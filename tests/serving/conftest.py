"""Fixtures: a service of the toy checkpoint, and clients that call its application directly."""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from bert_features.config.extract_config import ExtractConfig
from bert_features.extraction.extractor import FeatureExtractor
from tests.serving.over_http import make_service, over_http
from tests.toy import TOY

OUTPUTS = [
    {"name": "mean", "level": "sequence", "pooling": "mean", "layers": [-1]},
    {"name": "last", "layers": [-1]},
    {"name": "word", "level": "word", "layers": [-2]},
    {"name": "half", "level": "sequence", "pooling": "cls", "layers": [-1], "dtype": "float16"},
    {"name": "brain", "level": "sequence", "pooling": "max", "layers": [-1], "dtype": "bfloat16"},
]
SETTINGS = {"max_seq_length": 16, "do_lower_case": True, "outputs": OUTPUTS}


@pytest.fixture(scope="session")
def extractor_of(toy: str) -> Callable[..., FeatureExtractor]:
    """Makes extractors with the settings of a service."""
    from bert_features.serving.catalog import config_to_serve

    def make(**settings: Any) -> FeatureExtractor:
        config = ExtractConfig.of({"checkpoint": toy, **SETTINGS, **settings})
        return FeatureExtractor(config_to_serve(config, TOY))

    return make


@pytest.fixture(scope="session")
def extractor(extractor_of: Callable[..., FeatureExtractor]) -> FeatureExtractor:
    """It keeps the extractors of single outputs, each of which takes a second to trace."""
    extractor = extractor_of()
    extractor.with_outputs = functools.cache(extractor.with_outputs)  # type: ignore[method-assign]
    return extractor


@pytest.fixture(scope="session")
def service(extractor: FeatureExtractor) -> Any:
    """A service with the default settings, which tests share."""
    return make_service(extractor)


@pytest.fixture(scope="module")
def url(service: Any) -> Iterator[str]:
    """The address of the module's service, over HTTP."""
    with over_http(service) as url:
        yield url


def make_client(service: Any) -> Any:
    """A client that calls the application of a service directly."""
    from starlette.testclient import TestClient

    from bert_features.serving.app import make_app

    return TestClient(make_app(service), base_url="http://127.0.0.1:8000")


@pytest.fixture(scope="session")
def client(service: Any) -> Iterator[Any]:
    """A client that calls the application of that service directly."""
    with make_client(service) as client:
        yield client


@pytest.fixture(scope="session")
def service_of(extractor: FeatureExtractor) -> Callable[..., Any]:
    """Makes services with these limits."""
    return lambda extractor=extractor, **settings: make_service(extractor, **settings)


@pytest.fixture(scope="session")
def client_of(service_of: Callable[..., Any]) -> Callable[..., Any]:
    """Makes clients of services with these limits."""
    return lambda **settings: make_client(service_of(**settings))
