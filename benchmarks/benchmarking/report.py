"""Writes the results as Markdown."""

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarking.latency import STEP_ALONE
from benchmarking.programs import BASELINE, PROJECT

_Table = Mapping[str, Any]

_JOB_HEADER = (
    "program",
    "tokens/s",
    f"/ {BASELINE}",
    f"/ {PROJECT}",
    "pad waste",
    "peak MB",
    "max. difference",
    "cosine, min.",
    "mean",
    "chosen",
)


def markdown(results: Mapping[str, Any]) -> str:
    """The whole document."""
    parts = [_machine(results["machine"])]
    parts += [_jobs(table) for table in [*results.get("jobs", []), *results.get("words", [])]]
    if "encoder" in results:
        parts.append(_roofline(results["roofline"]))
        parts += [_encoders(table, results["roofline"]) for table in results["encoder"]]
    if "targets" in results:
        parts.append(_targets(results["targets"]))
    if "latency" in results:
        parts.append(_latency(results["latency"]))
    if "start" in results:
        parts.append(_start(results["start"]))
        parts.append(_commands(results["commands"]))
    if "memory" in results:
        parts.append(_targets(results["memory"], title="Memory"))
    return "\n\n".join(parts) + "\n"


def table_of(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _machine(machine: _Table) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    family = ", ".join(
        f"{name} {value}"
        for name, value in zip(
            ("family", "model", "stepping"), machine["family_model_stepping"], strict=True
        )
    )
    environments = "".join(
        f"\n\nIn an environment of their own: "
        f"{', '.join(f'{name} {version}' for name, version in pins.items())}."
        for pins in machine.get("environments", {}).values()
    )
    return (
        "# Benchmark\n\n"
        f"{machine['cpu']} ({family}), {machine['cores']} cores, {machine['memory_gib']} GiB; "
        f"{', '.join(machine['flags']) or 'no AVX'}; {machine['system']}, "
        f"Python {machine['python']}.\n\n{versions}.{environments}\n\n"
        "Medians of interleaved runs (smallest – largest). Compare ratios: speeds depend on the "
        "machine and the hour."
    )


def _jobs(table: _Table) -> str:
    medians = _medians(table["rows"])
    rows = [_job_cells(row, table["texts"], medians) for row in table["rows"]]
    notes = [_refused(table), _idle(table), *_traces(table["rows"])]
    title, mean = ("Words", "each word's mean") if table["words"] else ("Whole job", "mean")
    return "\n\n".join(
        [
            f"## {title}, {table['corpus']}\n\n"
            f"{table['texts']:,} texts, {table['tokens']:,} tokens without padding, cut at "
            f"{table['max_length']}; all-MiniLM-L6-v2, {mean} of the last layer, tokenizing "
            f"included; {table['rounds']} rounds.",
            table_of(_JOB_HEADER, rows),
            *(note for note in notes if note),
        ]
    )


def _job_cells(row: _Table, texts: int, medians: Mapping[str, float]) -> list[str]:
    sampled = f" ({row['texts']} texts)" if row["texts"] != texts else ""
    return [
        row["program"] + sampled,
        _spread(row["tokens_per_second"]),
        _ratio(medians, row["program"], BASELINE),
        _ratio(medians, row["program"], PROJECT),
        f"{row['pad_waste']:.1%}",
        f"{row['peak_bytes'] / 1e6:,.0f}",
        f"{row['max_difference']:.1e}",
        f"{row['min_cosine']:.5f}",
        f"{row['mean_cosine']:.5f}",
        _chosen(row["settings"]),
    ]


def _encoders(table: _Table, roofline: Mapping[str, float]) -> str:
    medians = _medians(table["programs"])
    header = [
        "program",
        "tokens/s",
        f"/ {PROJECT}",
        "GFLOP/s",
        "/ BLAS fp32",
        "max. difference",
        "cosine, min.",
        "chosen",
    ]
    rows = [
        [
            row["program"],
            _spread(row["tokens_per_second"]),
            _ratio(medians, row["program"], PROJECT),
            f"{row['gflops']:.0f}",
            f"{row['gflops'] / roofline['median']:.2f}",
            f"{row['max_difference']:.1e}",
            f"{row['min_cosine']:.5f}",
            _chosen(row["settings"]),
        ]
        for row in table["programs"]
    ]
    notes = [_refused(table), _idle(table)]
    return "\n\n".join(
        [
            f"## Encoder alone, {table['architecture']}, {table['rows']} x {table['length']}\n\n"
            "Equal shapes without padding, random weights, last layer out as float32; "
            f"{table['rounds']} rounds.",
            table_of(header, rows),
            *(note for note in notes if note),
        ]
    )


def _roofline(roofline: Mapping[str, float]) -> str:
    return (
        "## Roofline\n\nA float32 matrix product of NumPy's BLAS, 4096 x 768 x 3072: "
        f"{_spread(roofline)} GFLOP/s. The tables below give the encoders' rates / this rate."
    )


def _targets(rows: Sequence[_Table], title: str = "Targets") -> str:
    header = ["target", "measured", "wanted", "met"]
    return f"## {title}\n\n" + table_of(
        header,
        [
            [row["what"], row["measured"], row["wanted"], "yes" if row["met"] else "**no**"]
            for row in rows
        ],
    )


def _latency(table: _Table) -> str:
    alone = next((row["p50"] for row in table["rows"] if row["way"] == STEP_ALONE), None)
    rows = [
        [
            row["program"],
            row["way"],
            f"{row['p50'] * 1e3:.2f}",
            f"{row['p99'] * 1e3:.2f}",
            f"{row['p50'] / alone:.2f}" if alone else "–",
            f"{row['max_difference']:.1e}",
        ]
        for row in table["rows"]
    ]
    header = ("program", "what", "p50, ms", "p99, ms", "p50 / device step", "max. difference")
    return (
        f"## Latency\n\n{table['calls']:,} calls with one text, {table['text']!r}; "
        "all-MiniLM-L6-v2, mean of the last layer, float32. The programs take turns of "
        f"{table['calls_per_turn']} calls.\n\n" + table_of(header, rows)
    )


def _start(table: _Table) -> str:
    header = ("part", "seconds, empty cache", "CPU seconds", "seconds, filled cache", "CPU seconds")
    rows = [
        [
            part,
            *(
                f"{values[kind][part]:.2f}"
                for values in (table["empty"], table["filled"])
                for kind in ("seconds", "cpu_seconds")
            ),
        ]
        for part in table["filled"]["seconds"]
    ]
    return (
        "## A new process up to its first feature\n\n"
        f"Medians of {table['rounds']} processes. The cache keeps the models of the tokenizer.\n\n"
        + table_of(header, rows)
    )


def _commands(table: _Table) -> str:
    rows = [
        [name, *(f"{values[each]:.2f}" for each in ("median", "min", "max"))]
        for name, values in table["seconds"].items()
    ]
    return f"## Whole commands\n\n{table['rounds']} rounds.\n\n" + table_of(
        ("command", "median, s", "lowest", "highest"), rows
    )


def _medians(rows: Sequence[_Table]) -> dict[str, float]:
    return {row["program"]: row["tokens_per_second"]["median"] for row in rows}


def _spread(values: Mapping[str, float]) -> str:
    return f"{values['median']:,.0f} ({values['min']:,.0f} – {values['max']:,.0f})"


def _ratio(medians: Mapping[str, float], name: str, other: str) -> str:
    return f"{medians[name] / medians[other]:.2f}" if other in medians else "–"


def _chosen(settings: Mapping[str, Any]) -> str:
    chosen = [str(value) for name, value in settings.items() if name != "precision"]
    return ", ".join(chosen) or "defaults"


def _refused(table: _Table) -> str:
    return "\n".join(f"- Refused: {name}: {why}" for name, why in table["refused"].items())


def _idle(table: _Table) -> str:
    idle = table["idle_cores"]
    if not idle:
        return ""
    name = max(idle, key=idle.__getitem__)
    return f"Waiting processes used at most {idle[name]:.1%} of a core ({name})."


def _traces(rows: Sequence[_Table]) -> list[str]:
    return [
        f"{row['program']}: {row['traces_in_warm_up']} traces in warm-up, "
        f"{row['traces_in_all'] - row['traces_in_warm_up']} afterwards."
        for row in rows
        if row["traces_in_all"] is not None
    ]
