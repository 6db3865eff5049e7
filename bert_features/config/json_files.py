"""Reading the JSON files of a checkpoint, whoever made them."""

import json
from pathlib import Path
from typing import Any

from bert_features.errors import CheckpointError

# The largest are the indices of checkpoints in shards: well below 1 MB for BERTs.
MAX_BYTES = 16 << 20
LFS_POINTER = b"version https://git-lfs.github.com/spec/"


def check_pointer(data: bytes, source: str) -> None:
    """Refuses what Git LFS leaves in a clone instead of a large file; raises CheckpointError."""
    if data.startswith(LFS_POINTER):
        raise CheckpointError(
            f"{source} is a pointer of Git LFS, not the file itself; run 'git lfs pull' in its "
            "folder"
        )


def read_json(path: str | Path) -> Any:
    """Reads a JSON file; raises CheckpointError if it cannot, or as `parse_json`."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:  # a path that no file can have
        raise CheckpointError(f"cannot read {str(path)!r}: {error}") from error
    return parse_json(data, str(path))


def read_json_object(path: str | Path) -> dict[str, Any]:
    """Reads a JSON file that holds one object; raises CheckpointError for anything else."""
    values = read_json(path)
    if not isinstance(values, dict):
        raise CheckpointError(f"{path} is not a config file: expected a JSON object")
    return values


def parse_json(data: bytes, source: str) -> Any:
    """The values in the bytes of a JSON file; `source` says where they come from.

    Raises CheckpointError if it is not JSON, has more than `MAX_BYTES`, is nested too deeply, or
    holds an integer with more digits than Python reads.
    """
    if len(data) > MAX_BYTES:
        raise CheckpointError(
            f"{source} has more than {MAX_BYTES:,} bytes; allowed: a JSON file of a checkpoint"
        )
    check_pointer(data, source)
    try:
        return json.loads(data.decode("utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{source} is not JSON: {error}") from error
    except RecursionError as error:
        raise CheckpointError(f"{source} is nested too deeply; fetch it again") from error
    except ValueError as error:  # Python's limit of 4,300 digits; reading more takes too long
        raise CheckpointError(
            f"{source} holds an integer of too many digits; fetch it again"
        ) from error
