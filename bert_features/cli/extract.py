"""bert-features extract: writes the features of examples to a file, or to a folder of shards."""

import json
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bert_features.cli.command import command
from bert_features.cli.logs import is_json, log_fields
from bert_features.cli.metrics import RunMetrics, publishing
from bert_features.cli.progress import reporting
from bert_features.cli.settings import takes_settings
from bert_features.cli.stages import RunFacts, advise, describe_stages
from bert_features.cli.summary import describe_summary, summary_fields
from bert_features.config.extract_config import ExtractConfig
from bert_features.config.settings import DEVICES, FILES
from bert_features.files import STDOUT, Role, is_url

if TYPE_CHECKING:
    from bert_features.corpus.summary import ExtractSummary

logger = logging.getLogger("bert_features")


@command
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
        typer.Option(
            "--output",
            "-o",
            help="File to write; - writes JSON lines to standard output, without the metadata. "
            "With / at its end: folder to write, a file for each shard, or its address (gs://, "
            "s3://). The same command resumes a folder that is not finished.",
            rich_help_panel=FILES,
        ),
    ],
    settings: ExtractConfig,
    ledger: Annotated[
        Path | None,
        typer.Option(
            help="File that lists, as one JSON line for each example, its token counts and losses.",
            rich_help_panel=FILES,
        ),
    ] = None,
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite",
            help="Replace an existing output file and ledger; begin a folder again.",
            rich_help_panel=FILES,
        ),
    ] = False,
    processes: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="Processes that compute the shards of a folder, each with its share of the TPU "
            "chips, GPUs or CPU cores.",
            rich_help_panel=DEVICES,
        ),
    ] = 1,
    ray: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Compute the shards of a folder on Ray: the address of a cluster (HOST:PORT, auto "
            "or ray://HOST:PORT), or local for a Ray of this machine's own.",
            rich_help_panel=DEVICES,
            hidden=True,
        ),
    ] = None,
    ray_actors: Annotated[
        str | None,
        typer.Option(
            metavar="MIN[:MAX]",
            help="Actors of --ray; by default 1 or more, while the cluster has room.",
            rich_help_panel=DEVICES,
            hidden=True,
        ),
    ] = None,
    ray_resources: Annotated[
        str | None,
        typer.Option(
            metavar="NAME=AMOUNT",
            help="What each actor of --ray needs, as TPU=4, GPU=1 or CPU=2; by default the TPU "
            "chips of a host, one GPU, or up to 8 cores.",
            rich_help_panel=DEVICES,
            hidden=True,
        ),
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|PORT",
            help="Publish the state of the run in Prometheus' text format: in a file, every 10 s, "
            "or at http://127.0.0.1:PORT/metrics while the run lasts (HOST:PORT for another "
            "address).",
            hidden=True,
        ),
    ] = None,
) -> None:
    """Writes the hidden layers of tokens, words or texts."""
    from bert_features.corpus.job import extract as run
    from bert_features.corpus.target import is_folder

    state = RunMetrics()
    written: list[Role] = [] if output == STDOUT or is_url(output) else [("the output", output)]
    written += [("the ledger", ledger)] if ledger else []
    with publishing(state, metrics, written), reporting(state) as report:
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
                progress=report,
                monitor=state.monitor,
            )
        except KeyboardInterrupt:
            left = "what was written is incomplete" if output == STDOUT else "nothing was written"
            if is_url(output) or is_folder(output):  # an address is always that of a folder
                again = " without --overwrite" if overwrite else ""
                left = f"finished shards are kept; the same command{again} resumes the run"
            raise KeyboardInterrupt(left) from None
        state.finish(summary.counts)
    tokens = summary.counts.tokens - summary.before.tokens
    facts = RunFacts(settings, inputs, output, state.monitor, tokens, on_ray=ray is not None)
    _report(summary, facts)


def _report(summary: "ExtractSummary", facts: RunFacts) -> None:
    if not is_json():
        lines = [describe_summary(summary), *describe_stages(summary.stages, facts)]
        print("\n".join(lines), file=sys.stderr if summary.output is None else sys.stdout)
        return
    fields = summary_fields(summary, advise(summary.stages, facts))
    if summary.output is None:  # standard output holds the features
        logger.info("finished", extra=log_fields(**fields))
    else:
        print(json.dumps(fields))
