"""Where a run shares features between its processes, and with later runs.

Importing this imports no framework.
"""

import contextlib
import logging
import secrets
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from bert_features.config.extract_config import ExtractConfig
from bert_features.errors import OutputError
from bert_features.extraction.feature_store import FeatureStore, StorePlace
from bert_features.files import Staging, is_url, local_path, real_target, storage_errors
from bert_features.machine import onednn

if TYPE_CHECKING:
    from bert_features.extraction.extractor import FeatureExtractor

logger = logging.getLogger("bert_features")

_GB = 10**9
_RUN_BITS = 63  # SQLite's integers have 64, with a sign


def check_cache(config: ExtractConfig) -> None:
    """Makes the cache folder of the settings, and refuses one that cannot be written.

    Raises:
      OutputError: it is an address, or cannot be written.
    """
    if config.cache is None:
        return
    if is_url(config.cache):
        raise OutputError(f"the cache {config.cache} is an address; pass a local folder")
    folder = local_path(config.cache)
    with storage_errors(f"write the cache {folder}", advice="choose a folder that you may write"):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass


@contextlib.contextmanager
def store_place(config: ExtractConfig, target: Path | None) -> Iterator[StorePlace | None]:
    """Where a run keeps the features of texts; None without `dedupe`.

    Without a cache it is a hidden folder beside a file that the run writes, gone at the end. What a
    killed run leaves of it is removed by the next run that writes the file.

    Args:
      config: the settings.
      target: the file; None for standard output, or if it is at an address.

    Raises:
      OutputError: there is no such place.
    """
    run = secrets.randbits(_RUN_BITS)
    if not config.dedupe:
        yield None
    elif config.cache is not None:
        limit = None if config.cache_gb is None else int(config.cache_gb * _GB)
        yield StorePlace(local_path(config.cache), run, lasting=True, max_bytes=limit)
    elif target is None:
        with tempfile.TemporaryDirectory(prefix="bert_features_") as temporary:
            yield StorePlace(Path(temporary), run)
    else:
        with storage_errors(f"write beside {target}"):
            staging = Staging([real_target(target)], overwrite=True)
        try:
            folder = staging.scratch("texts")
            folder.mkdir()
            yield StorePlace(folder, run)
        finally:
            staging.discard()


@contextlib.contextmanager
def open_store(
    place: StorePlace | None, extractor: "FeatureExtractor"
) -> Iterator[FeatureStore | None]:
    """The store at a place, for the features of an extractor; None if there is no place."""
    if place is None:
        yield None
        return
    from bert_features.extraction.fingerprint import describe_features

    if extractor.devices.kind == "cpu" and (off := onednn.find_off()):
        logger.warning(
            "equal texts get equal features only within 1e-5, not to the last bit: oneDNN is off "
            "(%s); %s",
            off.reason,
            off.remedy,
        )
    with FeatureStore(place, describe_features(extractor)) as store:
        yield store
