"""JSON lines, field for field as google-research/bert's `extract_features.py` writes them.

One line per example:
`{"linex_index": 0, "features": [{"token": "[CLS]", "layers": [{"index": -1, "values": [..]}]}]}`.
The metadata lies beside the file, in `PATH.metadata.json`. There are no token ids in this format,
and values have 6 decimals.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from bert_features.errors import OutputError
from bert_features.records import Feature, FeatureBatch, FeatureRecord
from bert_features.writers.base import FeatureWriter
from bert_features.writers.reader import FeatureFile, Header, read_sidecar


class Writer(FeatureWriter):
    """Writes JSON lines and their sidecar."""

    has_sidecar = True

    def _open(self) -> None:
        self._file = self._create(self._partial(self.path))
        self._openings = [
            f'{{"index": {json.dumps(_index(feature))}, "values": ' for feature in self._features
        ]

    def _write(self, batch: FeatureBatch) -> None:
        _check_finite(batch)
        for record in batch.records():
            self._file.write(self._line(record).encode("ascii"))

    def _finish(self) -> None:
        """All was written."""

    def _line(self, record: FeatureRecord) -> str:
        columns = [convert_to_text(record.features[feature.name]) for feature in self._features]
        tokens = []
        for token, *vectors in zip(record.tokens, *columns, strict=True):
            layers = ", ".join(
                f"{opening}{vector}}}"
                for opening, vector in zip(self._openings, vectors, strict=True)
            )
            tokens.append(f'{{"token": {json.dumps(token)}, "layers": [{layers}]}}')
        return f'{{"linex_index": {record.unique_id}, "features": [{", ".join(tokens)}]}}\n'


class File(FeatureFile):
    """Reads JSON lines, those of the official script too; `token_ids` of the records are None."""

    format = "jsonl"

    def _read_header(self) -> Header:
        header = read_sidecar(self.path)
        if header is not None:
            return header
        with self.path.open(encoding="utf-8") as lines:
            first = next(lines, None)
        return Header({}, _features_of(json.loads(first)) if first else (), None)

    def _records(self) -> Iterator[FeatureRecord]:
        seen = 0
        with self.path.open(encoding="utf-8") as lines:
            for line in lines:
                yield self._record(json.loads(line))
                seen += 1
        self._check_count(seen)

    def _record(self, example: Mapping[str, Any]) -> FeatureRecord:
        rows = example["features"]
        expected = [_index(feature) for feature in self.features]
        for row in rows:
            received = [layer["index"] for layer in row["layers"]]
            if received != expected:
                raise ValueError(f"a token has layers {received}, expected {expected}")
        return FeatureRecord(
            unique_id=int(example["linex_index"]),
            tokens=tuple(row["token"] for row in rows),
            token_ids=None,
            features={
                feature.name: np.array(
                    [row["layers"][i]["values"] for row in rows], feature.dtype
                ).reshape(len(rows), feature.width)
                for i, feature in enumerate(self.features)
            },
        )


def _index(feature: Feature) -> int | str:
    """What stands for a feature in a line: the official script knows single layers only."""
    return feature.layers[0] if feature.combine == "none" else feature.name


def _features_of(example: Mapping[str, Any]) -> tuple[Feature, ...]:
    """The features of a file without a sidecar, as far as its first example tells them."""
    features = []
    for i, layer in enumerate(example["features"][0]["layers"]):
        index, width = layer["index"], len(layer["values"])
        single = isinstance(index, int) or index == "embeddings"
        features.append(
            Feature(
                name=f"layer_output_{i}" if single else index,
                layers=(index,) if single else (),
                combine="none" if single else "unknown",
                width=width,
                dtype="float32",
            )
        )
    return tuple(features)


def _check_finite(batch: FeatureBatch) -> None:
    for name, values in batch.features.items():
        bad = np.flatnonzero(~np.isfinite(values).all(axis=1))
        if bad.size:
            row = int(np.searchsorted(batch.row_splits, bad[0], side="right")) - 1
            raise OutputError(
                f"{name} of example {batch.unique_ids[row]} has a value that is not finite, which "
                "JSON cannot hold; find out why, or write another format"
            )


# Numbers as text. Python formats about 3 million floats a second; looking the digits up, in pieces
# of four bytes of which NUL bytes are then dropped, does 14 to 18 million.


def _pieces(texts: list[str]) -> np.ndarray:
    return np.frombuffer(b"".join(text.encode().ljust(4, b"\0") for text in texts), np.uint32)


def _bare(n: int) -> str:
    """Three decimals without the zeros at their end."""
    return f"{n:03d}".rstrip("0")


_WHOLE = _pieces([f" {n}" for n in range(100)] + [f" -{n}" for n in range(100)])
# Decimals 1-3; in the second half those after which there are only zeros.
_UPPER = _pieces([f".{n:03d}" for n in range(1000)] + [f".{_bare(n) or '0'}" for n in range(1000)])
_LOWER = _pieces([f"{_bare(n)}," for n in range(1000)])
# Below 100 millionths Python writes an exponent: 1e-06, 1.2e-05.
_TINY_SIGN = _pieces([" ", " -"])
_TINY_DIGITS = _pieces([f"{n / 10**6!r}".partition("-")[0] for n in range(100)])
_TINY_EXPONENT = _pieces(["-06,"] * 10 + ["-05,"] * 90)
_END_OF_ROW = _pieces(["\n"])


def convert_to_text(values: np.ndarray) -> list[str]:
    """Each row as `json.dumps([round(float(x), 6) for x in row])` has it.

    Args:
      values: float16 or float32 [rows, D]; finite, D > 0.

    Returns:
      `rows` texts.
    """
    exact = values.astype(np.float64)
    # A float32 (24 bits) times 10**6 (15625, 14 bits, times a power of two) is exact in float64's
    # 53 bits, so rint sees what round() sees and breaks the same ties to even.
    millionths = np.rint(np.abs(exact) * 1e6)
    large = (millionths >= 100 * 10**6).any(axis=1)  # not in the tables
    millionths[large] = 0
    pieces = _digits(millionths.astype(np.uint32), np.signbit(exact).astype(np.uint32))
    texts = pieces.tobytes().translate(None, b"\0").decode("ascii").splitlines()
    rows = [f"[{text[1:-1]}]" for text in texts]
    for i in np.flatnonzero(large).tolist():
        rows[i] = str([round(x, 6) for x in exact[i].tolist()])
    return rows


def _digits(millionths: np.ndarray, negative: np.ndarray) -> np.ndarray:
    """Numbers [rows, D], below 10**8, as pieces [rows, 3 * D + 1]: ` -12` `.345` `678,` … newline.

    `negative` is 0 or 1 for each.
    """
    whole, decimals = np.divmod(millionths, np.uint32(10**6))
    upper, lower = np.divmod(decimals, np.uint32(1000))
    pieces = np.empty((len(millionths), 3 * millionths.shape[1] + 1), np.uint32)
    first, second, third = (pieces[:, i:-1:3] for i in range(3))
    first[...] = _WHOLE[whole + 100 * negative]
    second[...] = _UPPER[upper + np.uint32(1000) * (lower == 0)]
    third[...] = _LOWER[lower]
    pieces[:, -1] = _END_OF_ROW

    tiny = np.nonzero((millionths > 0) & (millionths < 100))
    first[tiny] = _TINY_SIGN[negative[tiny]]
    second[tiny] = _TINY_DIGITS[millionths[tiny]]
    third[tiny] = _TINY_EXPONENT[millionths[tiny]]
    return pieces
