"""The place of the cache."""

import os
from pathlib import Path

from bert_features import errors
from bert_features.files.reporting import Reporting

CACHE_VARIABLE = "BERT_FEATURES_CACHE"

IN_CACHE: Reporting = {
    "error": errors.CheckpointError,
    "advice": f"set {CACHE_VARIABLE} to a folder that has room and that you may write",
}


def cache_dir() -> Path:
    """The folder for downloads and compiled code: $BERT_FEATURES_CACHE, or the platform's."""
    if chosen := os.environ.get(CACHE_VARIABLE):
        return Path(chosen).expanduser()
    import platformdirs

    return Path(platformdirs.user_cache_dir("bert_features"))
