"""Whether a run that has begun can be resumed: the same settings, weights, versions and inputs."""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from bert_features.config.extract_config import ExtractConfig
from bert_features.config.recipe import Recipe, find_differences
from bert_features.config.shards import Shard
from bert_features.corpus.executor import Ready
from bert_features.corpus.inputs import changed_input, check_still, look_up_all, name_some, place_of
from bert_features.corpus.plan import cut_input, restore_settings
from bert_features.errors import ConfigError, OutputError
from bert_features.files import is_url, local_path
from bert_features.formats import read_features
from bert_features.formats.headers import parse_scale
from bert_features.formats.manifest import Manifest, ShardEntry

logger = logging.getLogger("bert_features")


def check_same_run(begun: Manifest, now: Recipe) -> None:
    """Refuses to resume a run that other settings, weights or versions began.

    ConfigError names each difference.
    """
    restore_settings(begun)  # it refuses those of another release
    differences = begun.recipe.changes(now)
    if differences:
        versions = all(each.startswith("versions.") for each in differences)
        hint = " (cache turns on dedupe)" * any(d.startswith("dedupe ") for d in differences)
        accept = "accept_new_numbers=True to mix both, " * versions
        raise ConfigError(
            f"{begun.folder} was begun by a run with {'; '.join(differences)}; pass the same to "
            f"resume it{hint}, {accept}or extract into another folder or with overwrite=True"
        )


def check_same_hosts(begun: Manifest, share: Shard) -> None:
    """Refuses a host that shares the run out to another number; raises ConfigError.

    A run of the whole folder does what is left, whoever began it.
    """
    if share.count in (1, begun.hosts):
        return
    how = f"with shard I/{begun.hosts}" if begun.hosts > 1 else "without shard"
    cure = f"I/{begun.hosts}, or leave shard out" if begun.hosts > 1 else "no shard"
    raise ConfigError(
        f"shard is {share}, but {begun.folder} was begun {how}; pass {cure} to compute what is left"
    )


def check_ready(begun: Manifest, ready: Ready) -> None:
    """Refuses to resume a run that would make other vectors here, or on another device.

    So it is where files beside the weights changed, such as those with prompts. Another kind of
    processor is a warning.
    """
    before, now = begun.recipe, ready.recipe
    differences = find_differences(before.arithmetic, now.arithmetic)
    for name in before.outputs.keys() & now.outputs.keys():
        differences += find_differences(before.vectors(name), now.vectors(name))
    if differences:
        raise ConfigError(
            f"{begun.folder} was begun by a run with {'; '.join(sorted({*differences}))}; pass the "
            "same to resume it, or extract into another folder or with overwrite=True"
        )
    if begun.processor != ready.processor:
        logger.warning(
            "%s was begun on another processor (%s; this is %s): the last digits of features may "
            "differ from shard to shard",
            begun.folder,
            begun.processor,
            ready.processor,
        )


def with_new_numbers(begun: Manifest, versions: dict[str, str | None]) -> Manifest:
    """The manifest of a run that resumes with these versions, and with canaries of its own.

    What it had goes to `earlier`.
    """
    old = _numbers(begun.recipe)
    recipe = replace(begun.recipe, versions=versions, canaries={})
    return replace(begun, recipe=recipe, earlier=[*begun.earlier, old])


def record_new_numbers(manifest: Manifest, recipe: Recipe, finished: int) -> Manifest:
    """Writes such a manifest with the canaries of a recipe, and gives it.

    `finished` is the number of shards that are kept as they were.
    """
    *before, old = manifest.earlier
    recipe = replace(manifest.recipe, canaries=recipe.canaries)
    is_new = finished > 0 and _numbers(recipe) != old
    kept = [{**old, "finished_shards": finished}] if is_new else []
    updated = replace(manifest, recipe=recipe, earlier=[*before, *kept])
    updated.write()
    return updated


def _numbers(recipe: Recipe) -> dict[str, Any]:
    return {name: recipe.to_json()[name] for name in ("versions", "canaries")}


def check_same_scales(begun: Manifest, finished: Iterable[int]) -> None:
    """Refuses a manifest with another scale than a finished shard; raises OutputError."""
    shard = next(iter(finished), None)
    outputs = begun.recipe.outputs
    recorded = {name: each["scale"] for name, each in outputs.items() if each.get("scale")}
    written = read_features(begun.path(shard)).features if recorded and shard is not None else ()
    for name, scale in ((f.name, f.scale) for f in written if f.name in recorded):
        if parse_scale(recorded[name], name) != scale:
            raise OutputError(
                f"{begun.folder}: a shard has another scale of {name!r} than the manifest, "
                "which was changed; restore it, or extract into another folder or with "
                "overwrite=True"
            )


def check_same_plan(begun: Manifest, planned: Manifest) -> None:
    """Refuses to write beside a run that began in the same folder at the same time.

    Runs of the same plan only repeat each other's work. A folder on a disk is held by one run.
    Raises OutputError if settings, weights, versions or inputs differ.
    """
    check_same_run(begun, planned.recipe)
    check_same_format(begun, planned.format)
    if (begun.inputs, begun.shards) != (planned.inputs, planned.shards):
        check_same_inputs(begun, [entry.path for entry in planned.inputs])
        raise changed_input(planned.inputs[0].path)


def check_same_format(begun: Manifest, format: str) -> None:
    """Refuses to resume a run in another format; raises ConfigError."""
    if begun.format != format:
        raise ConfigError(
            f"{begun.folder} was begun in format {begun.format}, but format is {format}; pass "
            f"format='{begun.format}'"
        )


def check_same_inputs(begun: Manifest, inputs: Sequence[str]) -> None:
    """Refuses to resume a run that had other inputs, or another order; ConfigError names some."""
    before = [entry.path for entry in begun.inputs]
    if list(map(place_of, before)) == list(map(place_of, inputs)):
        return
    raise ConfigError(
        f"{begun.folder} holds the features of {_other_inputs(before, inputs)}; pass the same "
        f"inputs to resume it{hint_of_folder(before)}, or extract into another folder or with "
        "overwrite=True"
    )


def hint_of_folder(inputs: Sequence[str]) -> str:
    """What to know about inputs that a run named by relative paths; empty for others."""
    relative = any(not is_url(name) and str(local_path(name)) not in name for name in inputs)
    return " (names are relative to the folder in which the run began)" if relative else ""


def _other_inputs(before: Sequence[str], now: Sequence[str]) -> str:
    """What is different about the inputs, as the end of `holds the features of`."""
    if len(before) == len(now) == 1:
        return f"{before[0]}, not of {now[0]}"
    missing = _without(before, now)
    extra = _without(now, before)
    parts = [f"now missing: {name_some(missing)}"] if missing else []
    parts += [f"now added: {name_some(extra)}"] if extra else []
    count = f"{len(before):,} input{'' if len(before) == 1 else 's'}"
    return f"{count}; {'; '.join(parts) or 'now in another order'}"


def _without(names: Sequence[str], others: Sequence[str]) -> list[str]:
    known = set(map(place_of, others))
    return [name for name in names if place_of(name) not in known]


def check_unchanged_inputs(begun: Manifest, config: ExtractConfig) -> None:
    """Refuses to resume a run if an input has changed or cannot be read; raises InputError.

    Inputs of the same size and time, or version, are not read. Perhaps the others were only
    copied: then they cut into the same shards.
    """
    shards: dict[int, list[ShardEntry]] = {}
    for shard in begun.shards:
        shards.setdefault(shard.input, []).append(shard)
    first = 0
    stamps = look_up_all([entry.path for entry in begun.inputs])
    for number, (entry, stamp) in enumerate(zip(begun.inputs, stamps, strict=True)):
        if not stamp.is_certain or stamp != (entry.bytes, entry.modified_ns, entry.version):
            logger.info("reading %s again: it may have changed", entry.path)
            now, parts, _ = cut_input(config, entry.path, stamp, number=number, first=first)
            check_still([entry.path], [stamp])
            same = now.bytes == entry.bytes and now.records == entry.records
            if not same or (entry.records and parts != shards[number]):
                raise changed_input(entry.path)
        first += entry.records
