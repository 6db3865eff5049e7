"""extract(): the job, into a file or into a folder of shards.

Importing this imports no framework: `extract` does, after the checks that need none.
"""

import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path

from bert_features.config.extract_config import ExtractConfig
from bert_features.config.ray_settings import RaySettings
from bert_features.corpus.inputs import Inputs, find_inputs
from bert_features.corpus.run import FolderRun, Progress
from bert_features.errors import ConfigError, OutputError
from bert_features.extraction import job as one_file
from bert_features.extraction.checks import check_is_local
from bert_features.extraction.job import ExtractSummary
from bert_features.files import STDOUT, is_url, local_path, locate, open_store, storage_errors
from bert_features.formats.manifest import MANIFEST
from bert_features.monitor.run import RunMonitor

logger = logging.getLogger("bert_features")

# A path with a colon as the second of its letters is one of Windows.
_LIKE_AN_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+(.*)", re.DOTALL)


def extract(
    config: ExtractConfig,
    input_path: Inputs,
    output_path: str | Path,
    *,
    ledger_path: str | Path | None = None,
    overwrite: bool = False,
    processes: int = 1,
    ray: str | None = None,
    ray_actors: str | int | None = None,
    ray_resources: str | Mapping[str, float] | None = None,
    progress: Progress | None = None,
    monitor: RunMonitor | None = None,
) -> ExtractSummary:
    """Extracts the features of a file of examples into a file, or of several into a folder.

    A file appears under its name only when it is whole; a failure leaves nothing. A folder gets a
    features file for every `config.shard_examples` examples of an input, each of which appears when
    it is whole, and `manifest.json`. A failure leaves those that are finished, and the same call
    goes on from there. `read_features` reads the folder as one file. The bytes of a shard depend on
    its examples, the settings and the kind of CPU or device alone.

    Args:
      config: the settings.
      input_path: the file to read, in `config.input_format`; or `-` for standard input, which only
        a file can be made of. Into a folder also several: a list of files, a glob such as
        `data/*.txt`, a folder of files. Examples are numbered over all of them; ids of their own
        must be unique over all.
      output_path: the file to write; with `config.shard` its name gets the share's number. `-` for
        standard output, which takes JSON lines without a sidecar, as they are computed. A name
        that ends in `/`, or that of an existing folder, means a folder of shards, in
        `config.format` (by default Parquet). A folder may be at an address: `s3://bucket/run/`.
      ledger_path: a file for what happened to each example, one JSON line each, with the fields of
        `ExampleCounts`. Not with a folder.
      overwrite: whether an existing file may be replaced; whether a folder's run begins again.
      processes: how many processes compute the shards of a folder, each with its share of the TPU
        chips, GPUs or CPU cores of this machine.
      ray: compute the shards of a folder on Ray: `local` for a Ray of this machine's own, which
        ends with the run; or the address of a cluster, `HOST:PORT`, `auto` or `ray://HOST:PORT`.
      ray_actors: bounds for the number of actors that compute, `MIN:MAX`, or one number for both;
        by default at least one, and more while the cluster has room.
      ray_resources: what each actor needs, by Ray's names, as `TPU=4` or `{"TPU": 4}`; by default
        all TPU chips of a host, one GPU, or up to 8 CPU cores.
      progress: called after every step of the device with the totals so far and the number of
        examples in the input, None if that is unknown.
      monitor: takes the state of the run, for other threads to look at (`--metrics` uses it).

    Raises:
      BertFeaturesError: says in one sentence what was wrong.
    """
    _check_scheme(output_path)
    to_folder = is_folder(output_path)
    if not to_folder:
        check_is_local(output_path)
    if processes < 1:
        raise ConfigError.naming(
            "{processes} is {count}; allowed: an integer of at least 1", count=processes
        )
    cluster = _ray_settings(ray, ray_actors, ray_resources, processes)
    if config.dedupe and config.cache is None and (cluster is not None or is_url(output_path)):
        raise ConfigError.naming(
            "{dedupe} on Ray or with the output at an address needs {cache}, a folder on the disk "
            "of each machine; set it, or leave {dedupe} out"
        )
    if to_folder:
        if ledger_path is not None:
            raise ConfigError.naming(
                "{ledger_path} needs a single output file, but {output} is a folder; leave it out",
                output=output_path,
            )
        inputs = find_inputs(input_path)
        run = FolderRun(config, inputs, locate(output_path), overwrite=overwrite, ray=cluster)
        return run.finish(processes, progress, monitor=monitor)
    output = "standard output" if str(output_path) == STDOUT else str(output_path)
    if processes > 1:
        raise ConfigError.naming(
            "{processes} is {count}, but {output} is a single file; several processes write a "
            "folder: end {output_path} with a /",
            count=processes,
            output=output,
        )
    if cluster is not None:
        raise ConfigError.naming(
            "{ray} is {address}, but {output} is a single file; actors write a folder: end "
            "{output_path} with a /",
            address=cluster.address,
            output=output,
        )
    if "shard_examples" in config.model_fields_set:
        logger.warning("shard_examples is for folders of shards; a single file has none")
    return one_file.extract(
        config,
        _single_input(input_path, output),
        output_path,
        ledger_path=ledger_path,
        overwrite=overwrite,
        progress=progress,
        monitor=monitor,
    )


def _ray_settings(
    ray: str | None,
    actors: str | int | None,
    resources: str | Mapping[str, float] | None,
    processes: int,
) -> RaySettings | None:
    if ray is None:
        for setting, value in (("ray_actors", actors), ("ray_resources", resources)):
            if value is not None:
                raise ConfigError.naming(
                    "{" + setting + "} needs {ray}; pass both, or leave it out"
                )
        return None
    if processes > 1:
        raise ConfigError.naming("{processes} and {ray} are both set; leave one of them out")
    return RaySettings.parse(ray, actors, resources)


def _check_scheme(output: str | Path) -> None:
    """Refuses what was meant as an address and would become a local folder, as `s3:/bucket/run`."""
    match = _LIKE_AN_ADDRESS.match(str(output))
    if match and str(output) != STDOUT and not is_url(output) and match[1] not in ("file", "local"):
        raise OutputError(
            f"{output} looks like an address, but is none; write {match[1].lower()}://{match[2]}, "
            f"or ./{output} for a path"
        )


def _single_input(inputs: Inputs, output: str) -> str:
    found = find_inputs(inputs, folders=False)
    if not is_url(found[0]) and os.path.isdir(local_path(found[0])):  # noqa: PTH112
        raise ConfigError.naming(
            "{input} is a folder of files, and {output} is a single file; end {output_path} with a "
            "/ to write a folder",
            input=found[0],
            output=output,
        )
    if len(found) > 1:
        raise ConfigError.naming(
            "{count:,} inputs cannot go to the single output {output}; end {output_path} with a / "
            "to write a folder",
            count=len(found),
            output=output,
        )
    return found[0]


def is_folder(output: str | Path) -> bool:
    """Whether an output is a folder of shards: its name ends in `/`, or it is a folder already.

    An address is one if a run has begun there.

    Raises:
      BertFeaturesError: the server of an address cannot be asked.
    """
    if str(output) == STDOUT:
        return False
    if str(output).endswith(("/", os.sep)):
        return True
    if is_url(output):
        with storage_errors(f"write {output}", advice="nothing was written"):
            return open_store(output).exists(MANIFEST)
    return os.path.isdir(local_path(output))  # noqa: PTH112
