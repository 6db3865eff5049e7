"""extract(): the job, into a file or into a folder of shards.

Importing this imports no framework: `extract` does, after the checks that need none.
"""

from collections.abc import Mapping
from pathlib import Path

from bert_features.config.extract_config import ExtractConfig
from bert_features.config.ray_settings import RaySettings
from bert_features.corpus.file_run import run_file
from bert_features.corpus.inputs import Inputs
from bert_features.corpus.run import FolderRun
from bert_features.corpus.summary import ExtractSummary, Progress
from bert_features.corpus.target import FolderTarget, find_target
from bert_features.errors import ConfigError
from bert_features.files import is_url
from bert_features.monitor.run import RunMonitor


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
    it is whole, and `manifest.json`. A failure leaves the finished ones, and the same call
    resumes the run. `read_features` reads the folder as one file. The bytes of a shard depend on
    its examples, the settings and the kind of CPU or device alone.

    Args:
      config: the settings.
      input_path: the file to read, in `config.input_format`; or `-` for standard input, which only
        a file can be made of. Into a folder also several: a list of files, a glob such as
        `data/*.txt`, a folder of files. Examples are numbered over all of them; ids of their own
        must be unique over all.
      output_path: the file to write; with `config.shard` its name gets the share's number. `-` for
        standard output, which takes JSON lines without a sidecar, as they are computed. A name
        that ends in `/`, or an existing folder, means a folder of shards, in
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
    if processes < 1:
        raise ConfigError.naming(
            "{processes} is {count}; allowed: an integer of at least 1", count=processes
        )
    target = find_target(config, output_path, ledger_path, overwrite=overwrite)
    cluster = _ray_settings(ray, ray_actors, ray_resources, processes)
    if config.dedupe and config.cache is None and (cluster is not None or is_url(output_path)):
        raise ConfigError.naming(
            "{dedupe} on Ray or with the output at an address needs {cache}, a folder on the disk "
            "of each machine; set it, or leave {dedupe} out"
        )
    monitor = monitor or RunMonitor()
    if isinstance(target, FolderTarget):
        run = FolderRun(config, target.find_inputs(input_path), target, ray=cluster)
        return run.finish(processes, progress, monitor=monitor)
    if processes > 1:
        raise ConfigError.naming(
            "{processes} is {count}, but {output} is a single file; several processes write a "
            "folder: end {output_path} with a /",
            count=processes,
            output=target,
        )
    if cluster is not None:
        raise ConfigError.naming(
            "{ray} is {address}, but {output} is a single file; actors write a folder: end "
            "{output_path} with a /",
            address=cluster.address,
            output=target,
        )
    (path,) = target.find_inputs(input_path)
    return run_file(config, path, target, progress, monitor)


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
