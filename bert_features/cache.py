"""Where what was downloaded or compiled is kept for later."""

import os
from pathlib import Path

CACHE_VARIABLE = "BERT_FEATURES_CACHE"


def cache_dir() -> Path:
    """$BERT_FEATURES_CACHE, or the platform's place."""
    told = os.environ.get(CACHE_VARIABLE)
    if told:
        return Path(told).expanduser()
    import platformdirs

    return Path(platformdirs.user_cache_dir("bert_features"))
