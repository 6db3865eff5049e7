"""A pipeline in the manner of google-research/bert's extract_features.py.

Pads every row to the maximum length and writes every token's vector as JSON, rounded to 6 digits,
with one line per text. Runs on PyTorch, because TensorFlow 1 no longer runs.
"""

import json
import tempfile
from pathlib import Path

import numpy as np

from benchmarking.corpora import Corpus
from benchmarking.programs.base import Done, Settings, SortedBatches
from benchmarking.programs.pytorch import TransformersEncoder

_BATCH_SIZE = 32  # the script's default


class OfficialMannerJob:
    """Writes the token vectors of the last layer as JSON lines."""

    def __init__(self, folder: Path, corpus: Corpus, settings: Settings) -> None:
        self._encoder = TransformersEncoder(folder, settings)
        self._batches = SortedBatches(folder, corpus.max_length)
        vocabulary = (folder / "vocab.txt").read_text(encoding="utf-8")
        self._pieces = vocabulary.split("\n")
        self._folder = tempfile.TemporaryDirectory()

    def run(self, corpus: Corpus) -> Path:
        """Writes the file; returns its path."""
        output = Path(self._folder.name, "features.jsonl")
        with output.open("w", encoding="utf-8") as file:
            for rows, batch in self._batches(corpus.texts, _BATCH_SIZE, length=corpus.max_length):
                (hidden,) = self._encoder.run([batch])
                for row, ids, mask, values in zip(
                    rows.tolist(), batch["input_ids"], batch["attention_mask"], hidden, strict=True
                ):
                    line = self._line(row, ids[: mask.sum()], values)
                    file.write(json.dumps(line) + "\n")
        return output

    def _line(self, row: int, ids: np.ndarray, values: np.ndarray) -> dict[str, object]:
        features = []
        for i, token in enumerate(ids.tolist()):
            numbers = [round(float(x), 6) for x in values[i].flat]
            features.append(
                {"token": self._pieces[token], "layers": [{"index": -1, "values": numbers}]}
            )
        return {"linex_index": row, "features": features}

    def finish(self, result: Path) -> Done:
        """Averages the vectors that were written."""
        vectors = []
        with result.open(encoding="utf-8") as file:
            for line in file:
                tokens = json.loads(line)["features"]
                vectors.append(np.mean([t["layers"][0]["values"] for t in tokens], axis=0))
        return Done(
            np.array(vectors, np.float32), self._batches.tokens, self._batches.computed_tokens
        )
