"""Fixtures: a service of the toy checkpoint, and clients that call its application directly."""

import functools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from bert_features.config.extract_config import ExtractConfig
from bert_features.config.serve_settings import Limits, ServeSettings
from bert_features.extraction.extractor import FeatureExtractor
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
    from bert_features.runtime import tensorflow_devices
    from bert_features.serving.catalog import config_to_serve

    def make(**settings: Any) -> FeatureExtractor:
        config = ExtractConfig.of({"checkpoint": toy, **SETTINGS, **settings})
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tensorflow_devices, "_cpu", lambda: (None, 1))
            return FeatureExtractor(config_to_serve(config, TOY))

    return make


@pytest.fixture(scope="session")
def extractor(extractor_of: Callable[..., FeatureExtractor]) -> FeatureExtractor:
    """It keeps the extractors of single outputs, each of which takes a second to trace."""
    extractor = extractor_of()
    extractor.with_outputs = functools.cache(extractor.with_outputs)  # type: ignore[method-assign]
    return extractor


@pytest.fixture
def service_of(extractor: FeatureExtractor) -> Iterator[Callable[..., Any]]:
    """Makes services with these limits; they are closed at the end."""
    from bert_features.serving.service import Service

    made = []

    def make(extractor: FeatureExtractor = extractor, **settings: Any) -> Any:
        known = set(vars(Limits()))
        limits = {name: settings.pop(name) for name in [*settings] if name in known}
        wanted = ServeSettings.of(limits=replace(Limits(), **limits), **settings)
        made.append(Service(extractor, wanted))
        return made[-1]

    yield make
    for service in made:
        service.close()


@pytest.fixture
def client_of(service_of: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """Makes clients of services with these limits."""
    from starlette.testclient import TestClient

    from bert_features.serving.app import make_app

    clients = []

    def make(**settings: Any) -> Any:
        client = TestClient(make_app(service_of(**settings)))
        clients.append(client)
        return client

    yield make
    for client in clients:
        client.close()
