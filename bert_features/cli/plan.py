"""bert-features plan: shows what extract would do."""

import json
from typing import TYPE_CHECKING, Annotated

import typer

from bert_features.cli.command import command
from bert_features.cli.progress import describe_seconds
from bert_features.cli.settings import describe_cures, takes_settings
from bert_features.cli.tables import table
from bert_features.config.extract_config import ExtractConfig
from bert_features.errors import ConfigError
from bert_features.files.reporting import describe_size

if TYPE_CHECKING:
    from bert_features.corpus.preview import BucketPlan, Plan

_BAR_WIDTH = 40
_BARS = 16
_FORMAT = "parquet"  # whose size is given; the plan does not know the name of the output file
_MAX_LINES = 16
_EIGHTHS = " ▏▎▍▌▋▊▉"


@command("plan texts.txt --max-seq-length 256")
@takes_settings()
def plan(
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT...",
            help="Files of examples, folders, globs or addresses; - reads standard input.",
        ),
    ],
    settings: ExtractConfig,
    measure: Annotated[
        bool,
        typer.Option(
            "--measure",
            help="Also compute up to 1,024 of the first texts, and show how long extract would "
            "take on this machine.",
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Shows what extract would do, without running the model."""
    from bert_features.corpus.preview import plan as run

    if measure and "-" in inputs:
        names = " ".join(inputs)
        raise ConfigError(f"--measure reads the input twice, {names} can be read once; pass a file")
    result = run(settings, inputs)
    speed = None
    if measure:
        from bert_features.corpus.speed import measure_speed

        speed = measure_speed(settings, inputs)
    if as_json:
        times = {} if speed is None else {"tokens_per_second": speed}
        print(json.dumps(result.as_dict(settings.format or _FORMAT) | times, indent=1))
        return
    facts = _facts(result, settings, speed)
    print("\n".join([*facts, "", *_histogram(result), "", *_buckets(result, settings)]))


def _facts(result: "Plan", settings: ExtractConfig, speed: float | None) -> list[str]:
    from bert_features.extraction.losses import describe_unknown

    share = result.truncated_examples / max(result.examples, 1)
    cures = describe_cures(result.cures) if result.tokens_lost else ""
    rows = {
        "examples": f"{result.examples:,}",
        "tokens": f"{result.output_tokens:,}, [CLS] and [SEP] included",
        "truncated": f"{result.truncated_examples:,} examples ({share:.2%} of all), "
        f"{result.tokens_lost:,} tokens lost{cures}",
    }
    if result.tokens_unknown:
        rows["unknown"] = describe_unknown(result)
    if result.windowed_examples:
        total = f"{result.row_lengths.sum():,} computed"
        rows["rows"] = f"{total}, several for {result.windowed_examples:,} examples"
    if result.words:
        rows["words"] = f"{result.words:,}, {result.words_without_vector:,} with a vector of zeros"
    file_format = settings.format or _FORMAT
    size = describe_size(result.output_bytes(file_format))
    rows["output"] = f"about {size} of features as {file_format}"
    for output in result.outputs:
        square = f", by the square of the {output.unit}s" if output.is_paired else ""
        own = describe_size(result.output_bytes(file_format, output.name))
        rows[f"  {output.name}"] = (
            f"{output.level}, {output.width} values of {output.dtype}{square}; about {own}"
        )
    if speed is not None:
        taken = describe_seconds(result.tokens / speed)
        rows["time"] = f"about {taken} on this machine, at {speed:,.0f} tokens/s, without the start"
    return [table([*rows.items()])]


def _histogram(result: "Plan") -> list[str]:
    """Bars that show how many tokens the examples have before truncation."""
    import numpy as np  # not at the top: --help must not wait for it

    lengths = np.repeat(np.arange(len(result.example_lengths)), result.example_lengths)
    if not len(lengths):
        return ["no examples"]
    # A few very long examples would leave all others in one bar.
    top = int(np.quantile(lengths, 0.99, method="higher"))
    step = max(1, -(-top // _BARS))
    counts = np.bincount(np.minimum((lengths - 1) // step, -(-top // step)))
    names = [f"{i * step + 1}-{(i + 1) * step}" for i in range(len(counts))]
    if len(counts) * step > top + step - 1:
        names[-1] = f"over {(len(counts) - 1) * step}"
    lines = [
        (name, _bar(count / counts.max()), f"{count:,}")
        for name, count in zip(names, counts.tolist(), strict=True)
    ]
    first = int(np.flatnonzero(counts)[0])
    return [
        f"tokens in an example (median {np.median(lengths):.0f}, maximum {lengths.max():,})",
        table(lines[first:], right=[0]),
    ]


def _bar(share: float) -> str:
    whole, eighths = divmod(round(share * _BAR_WIDTH * 8), 8)
    return f"{'█' * whole}{_EIGHTHS[eighths] if eighths else ''}".ljust(_BAR_WIDTH)


def _buckets(result: "Plan", settings: ExtractConfig) -> list[str]:
    from bert_features.extraction.checks import may_pack

    used = [bucket for bucket in result.buckets if bucket.rows]
    lines = []
    for group in _grouped(used):
        tokens = sum(bucket.tokens for bucket in group)
        computed = sum(bucket.computed_tokens for bucket in group)
        last = group[-1]
        name = f"{last.batch_rows} x {last.length}"
        if len(group) > 1:
            name = f"… x {group[0].length}-{last.length}"
        rows, batches = sum(b.rows for b in group), sum(b.batches for b in group)
        lines.append((name, f"{rows:,}", f"{batches:,}", f"{1 - tokens / computed:.1%}"))
    rows, batches = result.row_lengths.sum(), sum(bucket.batches for bucket in used)
    lines.append(("all", f"{rows:,}", f"{batches:,}", f"{result.pad_waste:.1%}"))
    shares_rows = may_pack(settings)
    packed = f"{result.packed_pad_waste:.1%} with packing, " if shares_rows else ""
    parts = [
        table(lines, head=("shape", "rows", "batches", "pad waste"), right=range(4)),
        f"filler rows, part of the pad waste: {result.filler_share:.1%} of computed tokens",
        "",
        f"pad waste on a TPU or GPU: {packed}{result.unpacked_pad_waste:.1%} without packing",
    ]
    unpacked = settings.packing is False or settings.dedupe or not shares_rows
    if unpacked or settings.buckets is not None:
        suggested = ",".join(map(str, result.suggest_buckets()))
        parts.append(f"a good choice for a TPU or GPU: --buckets={suggested}")
    return parts


def _grouped(used: "list[BucketPlan]") -> "list[list[BucketPlan]]":
    """The buckets, each in a group of its own; if there are many, one group per power of two."""
    if len(used) <= _MAX_LINES:
        return [[bucket] for bucket in used]
    groups: dict[int, list[BucketPlan]] = {}
    for bucket in used:
        groups.setdefault((bucket.length - 1).bit_length(), []).append(bucket)
    return list(groups.values())
