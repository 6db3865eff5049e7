"""Whether a checkpoint gives the numbers that tutorials print for bert-base-uncased."""

import json
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np

from bert_features.check.finding import Finding, Status
from bert_features.checkpoints.sources.minilm import MINILM
from bert_features.extraction.extractor import FeatureExtractor
from bert_features.formats.records import FeatureRecord

# Values are printed with four decimals; the rest is float32 in another order, of values up to 5.
_DIFFERENCE = 3e-4
_SEGMENTS = (1, 0)


class _Measured(NamedTuple):
    """The numbers of a checkpoint beside those of one edition.

    Attributes:
      difference: the largest difference of a value of the three banks.
      block: the same of the first block; None if the edition prints none.
      cosine: the largest difference of a cosine, by half of its last printed digit.
    """

    difference: float
    block: float | None
    cosine: float

    @property
    def agrees(self) -> bool:
        values = max(self.difference, self.block or 0.0)
        return values <= _DIFFERENCE and self.cosine <= 1


def check_tutorials(
    checkpoint: str = MINILM, *, expected: Mapping[str, Any] | None = None, **settings: Any
) -> Iterator[Finding]:
    """Compares pieces, vectors and cosines with those of tutorials, by segment id and edition.

    Args:
      checkpoint: anything `find_checkpoint` accepts.
      expected: the numbers, by default those of `tutorials.json`.
      **settings: settings of `ExtractConfig`: device, do_lower_case, vocab_file, …

    Yields:
      A finding for each text, for each segment id, and a verdict: `broken` if the checkpoint has
      the size of the tutorials' and agrees with no edition. Another checkpoint gets its own
      numbers, as notes.

    Raises:
      BertFeaturesError: the checkpoint is not usable, or the wanted device is missing.
    """
    if expected is None:
        expected = json.loads((files(__package__) / "tutorials.json").read_text("utf-8"))
    outputs = [
        {"name": "block", "layers": [0]},
        {
            "name": "sum",
            "layers": list(range(-expected["last_layers"], 0)),
            "combine": "sum",
        },
    ]
    settings = {"checkpoint": checkpoint, "outputs": outputs, "precision": "float32", **settings}
    texts = [text["text"] for text in expected["texts"]]
    extractor = FeatureExtractor.from_checkpoint(**settings)
    config, of = extractor.checkpoint.config, expected["checkpoint"]
    is_another = any(getattr(config, n) != v for n, v in of.items() if n != "name")
    if config.type_vocab_size < 2 or not extractor.tokenizer.frame.has_types:  # no segments
        yield _verdict([], expected, is_another=True)
        return
    records = {0: extractor(texts)}
    records[1] = FeatureExtractor.from_checkpoint(**settings, segment=1)(texts)
    for text, record in zip(expected["texts"], records[_SEGMENTS[0]], strict=True):
        yield _check_pieces(text, record, extractor.tokenizer.frame.pad_id, is_another)
    shape = f"{config.num_hidden_layers} layers and the embeddings, each [tokens, H]"
    yield Finding("tutorials, shapes", "ok", f"{shape}: {[*records[1][0].features['sum'].shape]}")
    yield from _check_banks({s: records[s][0] for s in _SEGMENTS}, expected, is_another)


def _check_banks(
    records: Mapping[int, FeatureRecord], expected: Mapping[str, Any], is_another: bool
) -> Iterator[Finding]:
    """The findings of each segment, by the records of the sentence about banks; and the verdict."""
    measured = {
        (edition, segment): _measure(records[segment], numbers, expected["positions"])
        for edition, numbers in expected["editions"].items()
        for segment in _SEGMENTS
    }
    agreeing = [key for key, values in measured.items() if values and values.agrees]
    for segment in _SEGMENTS:
        rows = {edition: values for (edition, s), values in measured.items() if s == segment}
        agrees = any(key[1] == segment for key in agreeing)
        status: Status = "ok" if agrees else "note" if is_another or agreeing else "broken"
        for name, found in _describe(records[segment], expected, rows):
            yield Finding(f"{name}, segment {segment}", status, found)
    yield _verdict(agreeing, expected, is_another)


def _check_pieces(
    text: Mapping[str, Any], record: FeatureRecord, pad_id: int, is_another: bool
) -> Finding:
    ids = np.asarray(record.token_ids).tolist()
    mask = [1] * len(ids)
    if missing := max(text.get("padded_to", 0) - len(ids), 0):
        ids, mask = ids + [pad_id] * missing, mask + [0] * missing
    got = {"tokens": list(record.tokens or ()), "ids": ids}
    wrong = [name for name, values in got.items() if text.get(name, values) != values]
    status: Status = "ok" if not wrong else "note" if is_another else "broken"
    found = f"{' '.join(got['tokens'])}; ids {ids}"
    found += f", mask {mask}" * bool(missing)
    for name in wrong:
        found += f"; the tutorial has the {name} {text[name]}"
    if wrong and not is_another:
        found += "; the vocabulary, or its casing, is not that of the tutorial"
    return Finding(f"tutorials, pieces of {text['name']}", status, found)


def _measure(
    record: FeatureRecord, numbers: Mapping[str, Any], positions: Mapping[str, int]
) -> _Measured | None:
    """The differences from an edition; None if the vectors are too short or too few."""
    vectors = record.features["sum"]
    blocks = record.features["block"]
    try:
        difference = max(
            _difference(vectors[positions[name]], values)
            for name, values in numbers["first_values"].items()
        )
        block = max(
            (
                _difference(blocks[int(place)], values)
                for place, values in numbers.get("first_block", {}).items()
            ),
            default=None,
        )
        cosine = max(
            abs(_cosine(vectors, positions, names) - value)
            / (0.5 * 10.0 ** -len(repr(value).partition(".")[2]))
            for names, value in numbers["cosine"].items()
        )
    except (IndexError, ValueError):
        return None
    return _Measured(difference, block, cosine)


def _difference(vector: np.ndarray, values: Sequence[float]) -> float:
    return float(np.abs(vector[: len(values)] - np.array(values)).max())


def _cosine(vectors: np.ndarray, positions: Mapping[str, int], names: str) -> float:
    a, b = (vectors[positions[name]].astype(np.float64) for name in names.split(", "))
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def _describe(
    record: FeatureRecord, expected: Mapping[str, Any], rows: Mapping[str, _Measured | None]
) -> Iterator[tuple[str, str]]:
    """What is compared, and the values here beside those of each edition."""
    vectors, positions = record.features["sum"], expected["positions"]
    if len(vectors) <= max(positions.values()):
        yield "banks", f"the text has {len(vectors)} tokens, too few for their places"
        return
    editions = expected["editions"].items()
    for name, place in positions.items():
        theirs = (f"{e}: {_numbers(n['first_values'][name])}" for e, n in editions)
        yield name, "; ".join([_numbers(vectors[place]), *theirs])
    for names in dict.fromkeys(each for _, numbers in editions for each in numbers["cosine"]):
        theirs = (f"{e}: {n['cosine'][names]}" for e, n in editions if names in n["cosine"])
        mine = f"{_cosine(vectors, positions, names):.4f}"
        yield f"cosine of {names}", "; ".join([mine, *theirs])
    for edition, row in rows.items():
        if row is not None:
            block = "" if row.block is None else f"; in the first block {row.block:.1e}"
            yield f"largest difference from {edition}", f"{row.difference:.1e}{block}"


def _numbers(values: Sequence[float] | np.ndarray) -> str:
    return " ".join(f"{value:.4f}" for value in values[:5])


def _verdict(
    agreeing: Sequence[tuple[str, int]], expected: Mapping[str, Any], is_another: bool
) -> Finding:
    name, editions = expected["checkpoint"]["name"], expected["editions"]
    if is_another:
        found = f"the tutorials' numbers are of {name}, and this is another checkpoint"
        return Finding("tutorials", "note", found)
    if not agreeing:
        found = (
            f"no edition agrees. If the first block differs too, the embeddings, the segment or "
            f"the form of the GELU (erf there) is another; else a later block. A fine-tuned "
            f"{name} differs too"
        )
        return Finding("tutorials", "broken", found)
    parts = [f"{e} with segment {s} ({editions[e]['about']})" for e, s in agreeing]
    details = {"agrees": [{"edition": e, "segment": s} for e, s in agreeing]}
    return Finding("tutorials", "ok", f"agrees with {'; '.join(parts)}", details=details)
