"""A service in this process, and on a port of this machine."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any

import uvicorn

from bert_features.config.serve_settings import Limits, ServeSettings
from bert_features.extraction.extractor import FeatureExtractor


def make_service(extractor: FeatureExtractor, **settings: Any) -> Any:
    """A service with these settings and limits."""
    from bert_features.serving.service import Service

    limits = {name: settings.pop(name) for name in vars(Limits()) if name in settings}
    return Service(extractor, ServeSettings.of(limits=Limits(**limits), **settings))


@contextlib.contextmanager
def over_http(service: Any, **changes: Any) -> Iterator[str]:
    """Serves in a thread until the block ends; gives the address.

    Args:
      service: the service.
      **changes: other settings of uvicorn.
    """
    from bert_features.serving.app import make_app
    from bert_features.serving.worker import settings_of_uvicorn

    config = settings_of_uvicorn(service.settings, app=make_app(service))
    for name, value in changes.items():
        setattr(config, name, value)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()
