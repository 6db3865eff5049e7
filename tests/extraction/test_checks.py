"""Checks of inputs and settings that need no TensorFlow."""

import pytest

from bert_features.config.extract_config import ExtractConfig
from bert_features.errors import ConfigError
from bert_features.extraction.checks import check_input_and_checkpoint


@pytest.mark.parametrize("names", [["a.txt"], ["b.txt", "a.txt"]])
def test_inputs_without_any_example_are_refused_by_the_name_of_the_first(tmp_path, names):
    paths = [tmp_path / name for name in names]
    for path in paths:
        path.write_text("")
    with pytest.raises(ConfigError, match=f"{paths[0]} has no examples"):
        check_input_and_checkpoint(ExtractConfig(checkpoint="absent"), *paths)
