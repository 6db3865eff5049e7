"""extract(): the job, into a file or into a folder of shards; and the repair of such a folder.

Importing this imports no framework: `extract` does, after the checks that need none.
"""

import contextlib
import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path

from bert_features.config.extract_config import ExtractConfig
from bert_features.config.ray_settings import RaySettings
from bert_features.config.shards import WHOLE, Shard
from bert_features.corpus.folder import holding, is_tidy, tidy
from bert_features.corpus.inputs import Inputs, check_unchanged, status_of
from bert_features.corpus.plan import restore_settings
from bert_features.corpus.resuming import hint_of_folder
from bert_features.corpus.run import ExtractSummary, FolderRun, Progress
from bert_features.corpus.shards import compute_shard, open_file
from bert_features.corpus.target import (
    FileTarget,
    FolderTarget,
    Target,
    check_run,
    files_read,
    find_target,
    log_share,
)
from bert_features.errors import ConfigError, InputError
from bert_features.extraction import losses
from bert_features.extraction.counts import Counts
from bert_features.extraction.feature_store import store_place
from bert_features.extraction.ledger import Ledger
from bert_features.files import Location, is_url, real_target
from bert_features.formats import IdType
from bert_features.formats.manifest import Manifest
from bert_features.formats.shard_files import find_damaged
from bert_features.machine.quiet_tensorflow import import_tensorflow
from bert_features.monitor.run import RunMonitor
from bert_features.readers import registry
from bert_features.readers.contents import no_examples
from bert_features.readers.examples import source_of_input
from bert_features.readers.opening import name_of

logger = logging.getLogger("bert_features")


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
    accept_new_numbers: bool = False,
    progress: Progress | None = None,
    monitor: RunMonitor | None = None,
) -> ExtractSummary:
    """Extracts the features of a file of examples into a file, or of several into a folder.

    A file appears under its name only when it is whole; a failure leaves nothing. A folder gets a
    features file for every `config.shard_examples` examples of an input, each of which appears when
    it is whole, and `_manifest.json`. A failure leaves the finished ones, and the same call
    resumes the run. `read_features` reads the folder as one file. The bytes of a shard depend on
    its examples, the settings and the kind of CPU or device alone.

    Args:
      config: the settings.
      input_path: the file to read, in `config.input_format`; or `-` for standard input, which only
        a file can be made of. Into a folder also several: a list of files, a glob such as
        `data/*.txt`, a folder of files. Examples are numbered over all files; ids of their own
        must be unique over all.
      output_path: the file to write; with `config.shard` its name gets the share's number, and a
        folder, on a disk that all hosts see or in a store, gets the shards of that share. `-` for
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
      accept_new_numbers: resume a folder's run though this machine has other versions, or other
        numbers come out; the manifest records it.
      progress: called after every step of the device with the totals so far and the number of
        examples in the input, None if that is unknown.
      monitor: takes the state of the run, for other threads to look at.

    Raises:
      BertFeaturesError: says in one sentence what was wrong.
    """
    if processes < 1:
        raise ConfigError(f"processes is {processes}; allowed: an integer of at least 1")
    if accept_new_numbers and overwrite:
        raise ConfigError(
            "accept_new_numbers and overwrite are both set, and a run that begins again has no "
            "other numbers; leave one of them out"
        )
    target = find_target(config, output_path, ledger_path, overwrite=overwrite)
    cluster = _ray_settings(ray, ray_actors, ray_resources, processes)
    if isinstance(target, FolderTarget) and target.share is None:
        target = replace(target, share=_ask_share(config, processes, cluster))
    _check_dedupe(config, target, cluster)
    monitor = monitor or RunMonitor()
    if isinstance(target, FolderTarget):
        return FolderRun(
            config,
            target.find_inputs(input_path),
            target,
            processes=processes,
            ray=cluster,
            progress=progress,
            monitor=monitor,
            accept_new_numbers=accept_new_numbers,
        ).finish()
    if accept_new_numbers:
        raise ConfigError(
            f"accept_new_numbers is for a folder, whose run is resumed; {target} is a single file: "
            "leave it out"
        )
    if processes > 1:
        raise ConfigError(
            f"processes is {processes}, but {target} is a single file; several processes write a "
            "folder: end output_path with a /"
        )
    if cluster is not None:
        raise ConfigError(
            f"ray is {cluster.address}, but {target} is a single file; actors write a folder: end "
            "output_path with a /"
        )
    (path,) = target.find_inputs(input_path)
    return _extract_file(config, path, target, progress, monitor)


def _ask_share(config: ExtractConfig, processes: int, cluster: RaySettings | None) -> Shard:
    """The share of this host by the runtime, which this process alone may then use."""
    if processes > 1 or cluster is not None:
        raise ConfigError(
            "shard is 'auto', and the environment does not say the number of this host; pass shard "
            "as I/N"
        )
    import_tensorflow(config.runtime, config.device)
    from bert_features.runtime.start import make_runtime

    return log_share(*make_runtime(config.runtime, config.device).process)


def _check_dedupe(config: ExtractConfig, target: Target, cluster: RaySettings | None) -> None:
    """Refuses `dedupe` without a place on the disk of each machine; raises ConfigError."""
    elsewhere = isinstance(target, FolderTarget) and (
        cluster is not None or target.share != WHOLE or is_url(target.folder)
    )
    if config.dedupe and config.cache is None and elsewhere:
        raise ConfigError(
            "dedupe on several machines, or with the output at an address, needs cache, a folder "
            "on the disk of each machine; set it, or leave dedupe out"
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
                raise ConfigError(f"{setting} needs ray; pass both, or leave it out")
        return None
    if processes > 1:
        raise ConfigError("processes and ray are both set; leave one of them out")
    return RaySettings.parse(ray, actors, resources)


def _extract_file(
    config: ExtractConfig,
    path: str,
    target: FileTarget,
    progress: Progress | None,
    monitor: RunMonitor,
) -> ExtractSummary:
    """Computes the features of an input, or of a share of it: one shard without a manifest."""
    checkpoint = check_run(config, [path], target)
    import_tensorflow(config.runtime, config.device, many_batches=True)
    from bert_features.extraction.pipeline import Pipeline
    from bert_features.runtime.start import make_runtime

    runtime = None
    if target.shard is None:
        runtime = make_runtime(config.runtime, config.device)
        share = log_share(*runtime.process)
        target = replace(target, shard=share)
        target.check([*files_read(config, path), *checkpoint.files()])
        # As the file says it.
        config = config.model_copy(update={"shard": str(share) if share.count > 1 else None})
    source = source_of_input(config, path)
    before = status_of(path)
    count = registry.count(source)
    total = None if count is None or target.shard is None else target.shard.size(count)
    extractor = Pipeline(config, runtime=runtime, checkpoint=checkpoint)
    monitor.begin(extractor.devices.kind, extractor.precision)
    # Before the share is taken, so that all shares have the scales of the same texts.
    extractor, examples = extractor.with_all_scales(registry.read(source))
    started = time.monotonic()

    def note(counts: Counts) -> None:
        if progress:
            progress(counts, total)

    with monitor.clock.running(), contextlib.ExitStack() as stack:
        ledger = None
        if target.ledger is not None:
            ledger = stack.enter_context(Ledger(target.ledger, overwrite=target.overwrite))
        first = next(examples, None)
        if first is None:  # of an input that could not be looked into before
            raise no_examples(name_of(path))
        id_type: IdType = "str" if isinstance(first.unique_id, str) else "int"
        mine = (target.shard or Shard()).take(chain([first], examples))
        file = open_file(
            extractor,
            target.output,
            target.format,
            id_type,
            monitor.clock,
            overwrite=target.overwrite,
        )
        writer = stack.enter_context(file)
        beside = target.output and real_target(target.output)
        place = stack.enter_context(store_place(config, beside))
        counts = compute_shard(
            extractor, lambda: mine, writer, place, note, monitor.clock, ledger=ledger
        )
        losses.warn(counts, config, checkpoint)
        if ledger:
            ledger.finish()
        check_unchanged(path, before)
    return ExtractSummary(
        counts,
        time.monotonic() - started,
        writer.bytes_written,
        target.output,
        cures=losses.find_cures(config, checkpoint),
        stages=monitor.times(),
    )


def repair(
    folder: Location,
    *,
    processes: int = 1,
    accept_new_numbers: bool = False,
    progress: Progress | None = None,
) -> tuple[Location, ...]:
    """Computes the shards of a features folder that are missing or damaged.

    The manifest has the settings and the inputs. If its run is not finished, what is left is
    computed too. For the arguments see `extract`; shards that are whole count as computed.

    Returns:
      The features files that were computed.

    Raises:
      BertFeaturesError: the manifest is damaged; the settings, weights, versions or inputs are not
        the same as of the run; or a shard cannot be computed.
    """
    manifest = Manifest.read(folder)
    if manifest.order:
        origin = manifest.inputs[0].path
        raise ConfigError(f"{folder} is a shuffled store; shuffle {origin} with overwrite=True")
    recorded = dict(manifest.finished_shards())
    damaged = find_damaged(manifest, recorded)
    whole = recorded.keys() - damaged
    missing = [shard for shard in range(len(manifest.shards)) if shard not in whole]
    if missing or manifest.finished is None:
        logger.info("%d of %d shards are to be computed", len(missing), len(manifest.shards))
        inputs = [entry.path for entry in manifest.inputs]
        try:
            run = FolderRun(
                restore_settings(manifest),
                inputs,
                FolderTarget(folder, manifest.format, overwrite=False),
                processes=processes,
                progress=progress,
                damaged=damaged,
                accept_new_numbers=accept_new_numbers,
            )
        except InputError as error:
            raise InputError(f"{error}{hint_of_folder(inputs)}") from error
        run.finish()
    elif not is_tidy(folder):  # a run was killed after the last shard
        with holding(folder):
            tidy(folder)
    return tuple(map(manifest.path, missing))
