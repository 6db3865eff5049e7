"""A kind and a level that only this file knows: they reach every format, the plan and the service.

They are registered in a process of their own, before anything imports the settings.
"""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from bert_features.config.kinds import KINDS

pytestmark = [pytest.mark.slow, pytest.mark.release]
ROOT = Path(__file__).resolve().parents[2]


def run(program, *arguments):
    command = [sys.executable, "-c", textwrap.dedent(program), *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


def test_a_kind(toy, tmp_path):
    """`only_tested`: the length of the vector of each token, at each layer."""
    run(
        """
        import sys
        from dataclasses import replace
        from typing import Literal
        from bert_features.config import kinds
        from bert_features.config.kinds.base import numbered
        from bert_features.config.kinds.layers import Layers

        class OnlyTested(Layers):
            name = "only_tested"
            summary = "the length of each token's vector"
            settings = frozenset({"layers"})
            levels = ("token",)
            has_vectors = False

            def names(self, output, num_layers):
                return numbered(output.name or "only_tested", num_layers)

            def specs(self, *arguments):
                return [replace(s, kind="only_tested", width=1) for s in super().specs(*arguments)]

        kinds.KINDS["only_tested"] = OnlyTested()
        kinds.Kind = Literal[tuple(kinds.KINDS)]

        from keras import ops
        from bert_features.encoder import computations as computed

        def compute(encoded, outputs):
            wide = computed.COMPUTE["layers"](encoded, [replace(o, width=8) for o in outputs])
            return {n: ops.sqrt(ops.sum(v * v, axis=-1, keepdims=True)) for n, v in wide.items()}

        computed.COMPUTE["only_tested"] = compute

        import numpy as np
        from bert_features import FeatureExtractor, extract, plan, read_features
        from bert_features.corpus import job
        from bert_features.errors import ConfigError
        from bert_features.formats import SUFFIXES
        from bert_features.serving.catalog import config_to_serve
        from tests.serving.over_http import make_service
        from tests.toy import TOY
        from tests.serving.conftest import make_client

        toy, folder = sys.argv[1:]
        texts = ["the jackson is", "", "it"]
        (path := __import__("pathlib").Path(folder) / "in.txt").write_text(
            "".join(t + chr(10) for t in texts)
        )
        settings = dict(checkpoint=toy, do_lower_case=True, layers=(-1, 0), max_seq_length=16)
        layers = FeatureExtractor.from_checkpoint(**settings)(texts)
        want = [
            [np.linalg.norm(v.astype(np.float64), axis=-1)[:, None] for v in r.features.values()]
            for r in layers
        ]
        extractor = FeatureExtractor.from_checkpoint(kind="only_tested", **settings)

        def check(records):
            for record, vectors in zip(records, want, strict=True):
                assert list(record.features) == ["only_tested_0", "only_tested_1"]
                for found, expected in zip(record.features.values(), vectors, strict=True):
                    np.testing.assert_allclose(found, expected, rtol=1e-4)

        check(extractor(texts))
        job.FeatureExtractor = lambda config, **others: extractor  # traced once for all formats
        for suffix in dict.fromkeys(SUFFIXES):
            output = f"{folder}/norms{suffix}"
            extract(extractor.config, path, output)
            with read_features(output) as file:
                assert [f.kind for f in file.features] == ["only_tested"] * 2
                assert file.layers == [-1, 0]
                check(file)
        planned = plan(extractor.config, path)
        tokens = sum(len(record.tokens) for record in layers)
        assert planned.output_bytes("npz") == tokens * 2 * 4
        served = FeatureExtractor(config_to_serve(extractor.config, TOY))
        answer = make_client(make_service(served)).post("/v1/features", json={"texts": texts})
        for result, vectors in zip(answer.json()["results"], want, strict=True):
            np.testing.assert_allclose(result["features"]["features_0"], vectors[0], rtol=1e-4)
        try:
            FeatureExtractor.from_checkpoint(kind="only_tested", normalize=True, **settings)
        except ConfigError as error:
            assert "normalize has no meaning for kind 'only_tested'" in str(error), error
        else:
            raise AssertionError
        """,
        toy,
        tmp_path,
    )


@pytest.mark.parametrize("kind", sorted(KINDS.keys() - {"layers"}))
def test_every_kind_has_tests_of_its_numbers(kind):
    """`layers` is the default, which most tests have."""
    paths = [*ROOT.glob("tests/encoder/test_*.py"), *ROOT.glob("tests/extraction/test_*.py")]
    assert any(f'"{kind}"' in path.read_text(encoding="utf-8") for path in paths)


def test_a_level(tmp_path):
    """`half`: two vectors of each text; and a matrix for each pair of halves."""
    run(
        """
        import sys
        from bert_features.config.levels import LEVELS, LevelRow

        LEVELS["half"] = LevelRow(
            "half",
            1,
            "half_splits",
            "halves",
            {"sides": "text", "numbers": "int32"},
            {"sides": "side", "numbers": "number"},
        )
        LEVELS["half_pair"] = LevelRow("half", 2, "half_pair_splits", "half_pairs")

        import numpy as np
        from bert_features.config.features import Feature
        from bert_features.formats import FORMATS, SUFFIXES, open_writer, read_features
        from bert_features.formats.records import FeatureBatch, Rows

        features = (
            Feature("h", (-1,), "mean", 3, "float32", "half", "mean"),
            Feature("p", (-1,), "none", 2, "float32", "half_pair", kind="attention", heads=(0, 1)),
        )
        rng = np.random.default_rng(0)
        h, p = rng.normal(size=(4, 3)), rng.normal(size=(8, 2))
        h, p = h.astype(np.float16).astype(np.float32), p.astype(np.float16).astype(np.float32)
        sides, numbers = np.array(["l", "r", "l", "r"], object), np.arange(4, dtype=np.int32)
        batch = FeatureBatch(
            np.arange(2),
            levels={
                "half": Rows(
                    np.array([0, 2, 4]), {"sides": sides, "numbers": numbers}, {"h": h}
                ),
                "half_pair": Rows(np.array([0, 4, 8]), {}, {"p": p}),
            },
        )
        suffixes = {name: suffix for suffix, name in SUFFIXES.items()}
        for format in FORMATS:
            path = f"{sys.argv[1]}/f{suffixes.get(format, '.h5')}"
            with open_writer(path, format=format, features=features, metadata={}) as writer:
                writer.write(batch)
            with read_features(path) as file:
                for i, record in enumerate(file):
                    assert [*record.features] == ["h", "p"]
                    atol = 1e-5 if format == "jsonl" else 0
                    matrix = p[4 * i : 4 * i + 4].reshape(2, 2, 2).transpose(2, 0, 1)
                    found = record.features["h"], record.features["p"]
                    np.testing.assert_allclose(found[0], h[2 * i : 2 * i + 2], atol=atol)
                    np.testing.assert_allclose(found[1], matrix, atol=atol)
                    units = record.units["half"]
                    assert units["sides"] == ("l", "r") and units["numbers"].dtype == np.int32
                    assert units["numbers"].tolist() == [2 * i, 2 * i + 1]
                frame = file.to_pandas()
                assert frame["h"][1].shape == (2, 3) and frame["numbers"][1].tolist() == [2, 3]
                (row, _) = file.to_dataset()
                assert row["sides"].numpy().tolist() == [b"l", b"r"]
                assert file.to_arrow().num_rows == 2
                assert file[1:].features == features
        assert features[1].describe() == "p float32 [2, halfs, halfs]"
        """,
        tmp_path,
    )
