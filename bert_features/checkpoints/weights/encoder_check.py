"""Whether weights are those of the encoder that their config describes."""

from collections.abc import Iterable, Mapping

from bert_features.checkpoints.weights import weight_names
from bert_features.checkpoints.weights.encoder_names import StoredNames, sort_names
from bert_features.checkpoints.weights.weight_names import Weight
from bert_features.checkpoints.weights.weight_readers import WeightFiles, damage_is_an_error, some
from bert_features.config.bert_config import BertConfig
from bert_features.errors import CheckpointError


def check_size(files: WeightFiles, config: BertConfig) -> None:
    """Refuses a config that is too large for the files, before anything is made of its numbers.

    A parameter takes at least a byte. So the weights are opened only if the config is refused.
    Raises CheckpointError, also if a file cannot be read.
    """
    with damage_is_an_error(files.path):
        size = sum(file.stat().st_size for file in files.files())
    if weight_names.parameter_count(config, pooler=False) > size:
        check_encoder(files, config)


def names_in(files: WeightFiles, config: BertConfig) -> StoredNames:
    """The names of the weights; errors are those of the reader and of `sort_names`."""
    return sort_names(files.reader.shapes(), files.kind, files.path, config)


def check_encoder(files: WeightFiles, config: BertConfig, *, pooler: bool = False) -> StoredNames:
    """The names of the weights, if they are those of the encoder, by name and shape.

    Raises CheckpointError, which lists all names that are missing, unexpected or of another shape.
    """
    names = names_in(files, config)
    stored = names.weights
    layers = config.distinct_blocks
    blocks = len(weight_names.blocks_of(stored))
    difference = f"the config has {layers:,} layers, the weights have {blocks:,}"
    described = f"{files.path} does not hold the BERT encoder that its config describes"
    if layers > len(files.reader.shapes()):  # before a list of that many names is made
        raise CheckpointError(f"{described}: {difference}")
    rows = weight_names.weights(config, pooler=True)
    optional = {row.canonical for row in weight_names.POOLER}
    if pooler and not optional <= stored.keys():
        raise CheckpointError(
            f"{files.path} has no pooler weights, so pooled output is unavailable; "
            "choose another pooling"
        )
    missing = [
        row.canonical
        for row in rows
        if row.canonical not in stored and (pooler or row.canonical not in optional)
    ]
    known = {row.canonical for row in rows} | weight_names.unused_tables(config)
    unexpected = [stored[each] for each in stored.keys() - known]
    problems = {
        "missing": missing,
        "unexpected": [*names.unknown, *unexpected],
        "misshapen": _misshapen(rows, files, config, stored),
        "outside the encoder": names.heads if missing else [],  # what is missing may be there
    }
    if any(problems.values()):
        listed = [
            f"{len(listing)} {problem}: {some(sorted(listing))}"
            for problem, listing in problems.items()
            if listing
        ]
        listed = [difference, *listed] if layers != blocks else listed
        raise CheckpointError(f"{described}: {'; '.join(listed)}")
    return names


def _misshapen(
    rows: Iterable[Weight], files: WeightFiles, config: BertConfig, stored: Mapping[str, str]
) -> list[str]:
    wrong, shapes = [], files.reader.shapes()
    for row in rows:
        if row.canonical in stored:
            allowed = weight_names.stored_shapes(row, config, files.kind)
            received = shapes[stored[row.canonical]]
            if received not in allowed:
                key = (
                    weight_names.TABLE_ROWS.get(row.shape[0])
                    if received[1:] == allowed[0][1:]
                    else None
                )
                hint = f" ({key} is {allowed[0][0]} in the config)" if key else ""
                wrong.append(f"{stored[row.canonical]} is {received}, expected {allowed[0]}{hint}")
    return wrong
