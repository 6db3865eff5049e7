"""bert-features extract: writes the features of examples to a file, or to a folder of shards."""

import json
import logging
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bert_features.cli.command import AcceptOption, command, device_option, file_option
from bert_features.cli.logs import is_json, log_fields
from bert_features.cli.progress import reporting
from bert_features.cli.settings import describe_cures, takes_settings
from bert_features.cli.stages import RunFacts, advise, describe_stages
from bert_features.cli.tables import table
from bert_features.config.extract_config import ExtractConfig
from bert_features.config.layers import ALL, DEFAULT_LAYERS
from bert_features.config.output_specs import output_names
from bert_features.files import STDOUT, is_url
from bert_features.files.reporting import describe_size
from bert_features.monitor import interruption
from bert_features.monitor.run import RunMonitor

if TYPE_CHECKING:
    from bert_features.corpus.run import ExtractSummary

logger = logging.getLogger("bert_features")


@command(
    "extract texts.txt -o features.parquet",
    "extract texts.csv -o vectors.npz --layers=-1 --level sequence --long-text window",
    "extract documents.txt -o chunks.parquet --layers=-1 --level span --spans 128/16",
    "extract 'data/*.txt' --output features/",
    "extract 'data/*.txt' --output features/ --ray local",
)
@takes_settings()
def extract(
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT...",
            help="File of examples, or its address (gs://, s3://); - reads standard input. With a "
            "folder as output also several files, folders of files, and globs.",
        ),
    ],
    # Not a Path, which takes ./- for -.
    output: Annotated[
        str,
        file_option(
            "--output",
            "-o",
            help="File to write; - writes JSON lines to standard output, without the metadata. "
            "With / at its end: folder to write, a file for each shard, or its address (gs://, "
            "s3://). The same command resumes a folder that is not finished.",
        ),
    ],
    settings: ExtractConfig,
    ledger: Annotated[
        Path | None,
        file_option(
            help="File that lists, as one JSON line for each example, its token counts and losses."
        ),
    ] = None,
    overwrite: Annotated[
        bool,
        file_option(
            "--overwrite", help="Replace an existing output file and ledger; begin a folder again."
        ),
    ] = False,
    processes: Annotated[
        int,
        device_option(
            metavar="N",
            help="Processes that compute the shards of a folder, each with its share of the TPU "
            "chips, GPUs or CPU cores.",
        ),
    ] = 1,
    ray: Annotated[
        str | None,
        device_option(
            metavar="ADDRESS",
            help="Compute the shards of a folder on Ray: the address of a cluster (HOST:PORT, auto "
            "or ray://HOST:PORT), or local for a Ray of this machine's own.",
            hidden=True,
        ),
    ] = None,
    ray_actors: Annotated[
        str | None,
        device_option(
            metavar="MIN[:MAX]",
            help="Actors of --ray; by default 1 or more, while the cluster has room.",
            hidden=True,
        ),
    ] = None,
    ray_resources: Annotated[
        str | None,
        device_option(
            metavar="NAME=AMOUNT",
            help="What each actor of --ray needs, as TPU=4, GPU=1 or CPU=2; by default the TPU "
            "chips of a host, one GPU, or up to 8 cores.",
            hidden=True,
        ),
    ] = None,
    accept_new_numbers: AcceptOption = False,
) -> None:
    """Writes the hidden layers of tokens, words, spans or texts.

    Choose which by --layers, how several become one vector by --combine, and what has a vector by
    --level.
    """
    from bert_features.corpus.job import extract as run
    from bert_features.corpus.target import is_folder

    monitor = RunMonitor()
    with reporting() as report:
        try:
            summary = run(
                settings,
                inputs,
                output,
                ledger_path=ledger,
                overwrite=overwrite,
                processes=processes,
                ray=ray,
                ray_actors=ray_actors,
                ray_resources=ray_resources,
                accept_new_numbers=accept_new_numbers,
                progress=report,
                monitor=monitor,
            )
        except (Exception, KeyboardInterrupt) as error:  # a library may raise another for a signal
            if interruption.received is None:
                raise
            left = "what was written is incomplete" if output == STDOUT else "nothing was written"
            if is_url(output) or is_folder(output):  # an address is always that of a folder
                again = " without --overwrite" if overwrite else ""
                left = f"finished shards are kept; the same command{again} resumes the run"
            raise KeyboardInterrupt(left) from error
    tokens = summary.counts.tokens - summary.before.tokens
    facts = RunFacts(
        *(settings, inputs, output, monitor, tokens),
        on_ray=ray is not None,
        pad_waste=summary.counts.pad_waste,
    )
    _report(summary, facts)


def _report(summary: "ExtractSummary", facts: RunFacts) -> None:
    if not is_json():
        stages = describe_stages(summary.stages, facts)
        lines = [describe_summary(summary, facts.settings, is_small=not stages), *stages]
        print("\n".join(lines), file=sys.stderr if summary.output is None else sys.stdout)
        return
    fields = summary_fields(summary, advise(summary.stages, facts))
    if summary.output is None:  # standard output holds the features
        logger.info("finished", extra=log_fields(**fields))
    else:
        print(json.dumps(fields))


def describe_summary(summary: "ExtractSummary", settings: ExtractConfig, *, is_small: bool) -> str:
    """The lines that `extract` prints at the end of a run, without those of its stages.

    The speed and the padding of a small run mean nothing, and are left out.
    """
    from bert_features.corpus.status import name_left

    counts, before = summary.counts, summary.before.examples
    share = "all" if before == counts.examples else f"{before:,}"
    cures = describe_cures(summary.cures) if counts.tokens_lost else ""
    rows = {
        "examples": f"{counts.examples:,}" + f", {share} before this run" * bool(before),
        "tokens": f"{counts.tokens:,}",
        "truncated": f"{counts.truncated_examples:,} examples, {counts.tokens_lost:,} tokens lost"
        + cures,
        **_describe_rare(summary, settings),
        **_describe_layers(settings),
        "pad waste": f"{counts.pad_waste:.1%} of computed tokens",
        "speed": f"{summary.tokens_per_second:,.0f} tokens/s over {summary.seconds:.1f} s"
        + ", this run alone" * bool(before),
        "output": f"{summary.output or 'standard output'} ({describe_size(summary.bytes_written)})",
    }
    if is_small:  # or nothing was computed
        del rows["pad waste"], rows["speed"]
    if summary.shards is not None:
        rows["shards"] = f"{summary.shards:,}"
    if sum(summary.left):
        rows["left"] = f"the shares {name_left(summary.left)}"
    return table([*rows.items()], widths=[9])


def _describe_layers(settings: ExtractConfig) -> dict[str, str]:
    """Which layers the outputs `layer_output_0`, … are, if there are such outputs."""
    for output in settings.outputs:
        layers = output.layers or DEFAULT_LAYERS
        if output_names([output])[0] == "layer_output_0":
            more = "" if layers != (ALL,) and len(layers) == 1 else ", layer_output_1, …"
            return {"layers": f"{', '.join(map(str, layers))} (layer_output_0{more})"}
    return {}


def _describe_rare(summary: "ExtractSummary", settings: ExtractConfig) -> dict[str, str]:
    """Lines of the summary that only some runs need."""
    from bert_features.extraction.losses import describe_unknown

    counts = summary.counts
    share = counts.examples_reused / max(counts.examples, 1)
    reused = f"{counts.examples_reused:,} of {counts.examples:,} examples ({share:.0%})"
    if counts.examples_from_cache:
        reused += f", {counts.examples_from_cache:,} from the cache"
    if summary.before.examples not in (0, counts.examples) and settings.cache is None:
        reused += "; without --cache a run computes the texts of earlier runs again"
    rows = (
        (counts.examples_reused, "reused", reused),
        (counts.empty_examples, "empty", f"{counts.empty_examples:,} examples without text"),
        (counts.tokens_unknown, "unknown", describe_unknown(counts)),
        (
            counts.non_finite_examples,
            "non-finite",
            f"{counts.non_finite_examples:,} examples have NaN or infinite values",
        ),
        (
            counts.values_clipped,
            "clipped",
            f"{counts.values_clipped:,} of {counts.values_int8:,} int8 values",
        ),
        (counts.terms_cut, "cut", f"{counts.terms_cut:,} terms were beyond top_k"),
        (
            counts.rows > counts.examples,
            "rows",
            f"{counts.rows:,} computed for {counts.examples:,} examples",
        ),
        (counts.words, "words", f"{counts.words:,}"),
        (
            counts.words_vanished + counts.words_lost,
            "zero",
            f"{counts.words_vanished:,} words vanished in cleaning, {counts.words_lost:,} were cut "
            "off; their vectors are zero, surprisals NaN",
        ),
        (counts.spans, "spans", f"{counts.spans:,}"),
        (
            counts.spans_blank + counts.spans_cut + counts.spans_lost,
            "cut spans",
            f"{counts.spans_cut:,} cut short; {counts.spans_lost:,} cut off or too many, and "
            f"{counts.spans_blank:,} without pieces, whose vectors are zero",
        ),
    )
    return {name: text for is_there, name, text in rows if is_there}


def summary_fields(summary: "ExtractSummary", advice: str) -> dict[str, Any]:
    """The summary as values that JSON has; the advice is empty for a small run."""
    stages = summary.stages
    return {
        **asdict(summary.counts),
        "pad_waste": round(summary.counts.pad_waste, 4),
        "examples_before": summary.before.examples,
        "seconds": round(summary.seconds, 3),
        "tokens_per_second": round(summary.tokens_per_second, 1),
        "output": None if summary.output is None else str(summary.output),
        "bytes": summary.bytes_written,
        "shards": summary.shards,
        "left": summary.left,
        "stages": {
            "busy_seconds": {name: round(value, 3) for name, value in stages.busy.items()},
            "waited_seconds": {name: round(value, 3) for name, value in stages.waited.items()},
            "limiting": stages.limiting,
            "advice": advice or None,
        },
    }
