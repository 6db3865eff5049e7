"""Scale files that do not fit an output; tests/corpus/test_scales.py has whole runs."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from bert_features.config.extract_config import ExtractConfig
from bert_features.errors import ConfigError
from bert_features.extraction.scales import add_scales, scales_of_files
from bert_features.formats.records import Feature, FeatureBatch
from tests.formats.feature_files import write
from tests.toy import TOY

SOME = Feature("some", (-1,), "none", 8, "float32", "sequence", "mean")
OTHER = replace(SOME, name="other")
OWN = replace(SOME, name="int8")
INT8 = {"name": "int8", "dtype": "int8", "level": "sequence", "pooling": "mean", "layers": [-1]}
VARIED = np.arange(24, dtype=np.float32).reshape(3, 8) ** 2


@pytest.mark.parametrize(
    ("features", "columns", "fits"),
    [
        ([SOME], [VARIED], True),  # the only one
        ([OTHER, OWN], [VARIED * 0, VARIED], True),
        ([OWN, OTHER], [VARIED, VARIED * 0], True),
        ([SOME, OTHER], [VARIED, VARIED], False),
        ([replace(SOME, width=7)], [VARIED[:, :7]], False),
        ([replace(SOME, dtype="binary")], [np.ones((3, 1), np.uint8)], False),
        ([SOME], [VARIED * 0], False),
        ([SOME], [VARIED[:1]], False),
    ],
)
def test_only_varied_vectors_of_the_same_shape_give_a_scale(tmp_path, features, columns, fits):
    path = tmp_path / "vectors.npz"
    sequence = {f.name: values for f, values in zip(features, columns, strict=True)}
    write(path, "npz", tuple(features), FeatureBatch(np.arange(len(columns[0])), sequence))
    settings = {"checkpoint": "absent", "outputs": [INT8 | {"scale_from": str(path)}]}
    outputs = ExtractConfig.of(settings).plan_outputs(TOY)
    preparation = SimpleNamespace(checkpoint=None)
    if fits:
        least, largest = scales_of_files(outputs, preparation)["int8"]
        np.testing.assert_array_equal([least, largest], [VARIED.min(axis=0), VARIED.max(axis=0)])
    else:
        with pytest.raises(ConfigError, match="no vectors that differ"):
            scales_of_files(outputs, preparation)


@pytest.mark.parametrize(("given", "expected"), [({}, 1000), ({"scale_from": 7}, 7)])
def test_int8_takes_its_scales_from_the_first_1000_texts_or_as_many_as_set(given, expected):
    settings = {"checkpoint": "absent", "outputs": [INT8 | given]}
    outputs = ExtractConfig.of(settings).plan_outputs(TOY)
    left = iter(range(1100))
    _, texts = add_scales(
        outputs,
        left,
        lambda head: [FeatureBatch(np.arange(len(head)), {"int8": np.tile(VARIED, (400, 1))})],
    )
    assert next(left) == expected  # the texts before it were taken
    assert [*texts][: expected + 1] == [*range(expected), expected + 1]
