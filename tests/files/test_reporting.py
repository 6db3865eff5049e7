"""Failures of disks and paths as the project's errors."""

import os

import pytest

from bert_features.errors import CheckpointError, ConfigError
from bert_features.files import storage_errors


class TestStorageErrors:
    @pytest.mark.parametrize(
        ("failure", "reason"),
        [
            (OSError(28, os.strerror(28)), "No space left on device"),
            (OSError("odd"), "odd"),
            (RuntimeError("lib: no space left\non device (path)"), "No space left on device"),
            (RuntimeError("x; Permission denied"), "Permission denied"),
        ],
    )
    def test_failures_of_the_disk(self, failure, reason):
        with (
            pytest.raises(CheckpointError, match=f"^cannot write x: {reason}; do it$") as caught,
            storage_errors("write x", error=CheckpointError, advice="do it"),
        ):
            raise failure
        assert caught.value.__cause__ is failure

    @pytest.mark.parametrize(
        "failure", [ValueError("odd"), ConfigError("No space left on device"), KeyboardInterrupt()]
    )
    def test_others_are_left_alone(self, failure):
        with pytest.raises(type(failure)) as caught, storage_errors("write x"):
            raise failure
        assert caught.value is failure
