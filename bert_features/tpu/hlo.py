"""What a compiled TPU program does, read from its text: memory traffic, collectives, host calls.

The text is XLA's HLO after optimisation, with one instruction per line:
`%fusion.1 = bf16[128,768]{1,0:T(8,128)(2,1)S(1)} fusion(%param.1, %copy-done.2), kind=kOutput, …`;
Braces hold the layout (from the minor dimension to the major one), the tiles that the last
dimensions are padded to, and the memory: S(1) is the on-chip VMEM; without S(…) it is the HBM.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

_ITEM_SIZES = {
    "pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "s16": 2, "u16": 2,
    "f32": 4, "s32": 4, "u32": 4, "f64": 8, "s64": 8, "u64": 8,
}  # fmt: skip
_HBM = 0  # the memory space of a layout without S(…)

_INSTRUCTION = re.compile(
    r"\s*(?:ROOT )?%?(?P<name>[\w.\-]+) = (?P<type>\(.*?\)|\S+) (?P<opcode>[\w\-]+)\((?P<rest>.*)"
)
_ARRAY = re.compile(
    r"(?P<dtype>[a-z]\w*)\[(?P<dims>[\d,]*)\]"
    r"(?:\{(?P<layout>[\d,]*)(?::(?:T\((?P<tile>[\d,]*)\))?[^}]*?(?:S\((?P<space>\d+)\))?)?\})?"
)
_OPERAND = re.compile(r"%([\w.\-]+)")

# Instructions that move no data: they name parts of other results.
_FREE = {
    "parameter", "tuple", "get-tuple-element", "bitcast", "constant", "after-all", "partition-id",
    "replica-id",
}  # fmt: skip
# Their bodies run an unknown number of times.
_CONTROL_FLOW = {"while", "conditional", "call"}
_COLLECTIVES = {
    "all-reduce", "all-gather", "all-to-all", "ragged-all-to-all", "reduce-scatter",
    "collective-permute", "collective-broadcast",
}  # fmt: skip
_TO_THE_HOST = {"send", "recv", "infeed", "outfeed"}


@dataclass(frozen=True)
class Instruction:
    """One line of a program."""

    name: str
    type: str
    opcode: str
    operands: tuple[str, ...]
    line: str


def instructions(text: str) -> Iterator[Instruction]:
    """Parses every instruction in lines of HLO."""
    for line in text.splitlines():
        match = _INSTRUCTION.match(line)
        if match:
            operands = _OPERAND.findall(match["rest"].split("), ")[0])
            yield Instruction(
                match["name"], match["type"], match["opcode"], tuple(operands), line.strip()
            )


def entry(text: str) -> str:
    """The lines of the program's main computation."""
    start = text.index("\nENTRY ")
    return text[start + 1 : text.index("\n}", start)]


def collectives(text: str) -> list[str]:
    """The opcodes by which devices exchange data, sorted, without repeats."""
    opcodes = {one.opcode.removesuffix("-start") for one in instructions(text)}
    return sorted(opcodes & _COLLECTIVES)


def host_callbacks(text: str) -> list[str]:
    """The opcodes by which a running program calls its host, sorted, without repeats."""
    opcodes = set()
    for one in instructions(text):
        if one.opcode in _TO_THE_HOST or (
            one.opcode == "custom-call" and "callback" in one.line.partition("metadata=")[0]
        ):
            opcodes.add(one.opcode)
    return sorted(opcodes)


def fusions(text: str) -> int:
    """Number of kernels: fusions and custom calls of the main computation."""
    return sum(one.opcode in ("fusion", "custom-call") for one in instructions(entry(text)))


def hbm_bytes(text: str) -> int | None:
    """The bytes that a program reads from HBM and writes to it, padding of tiles included.

    Counts for each instruction the operands and the result that lie in HBM, each once and whole;
    for an asynchronous copy or slice, the bytes copied. `cost_analysis()["bytes accessed"]` also
    counts operands and results in VMEM, and it leaves padding out.

    Returns:
      The bytes; None for a program with loops or branches: its text does not show how often they
      run.
    """
    by_name: dict[str, Instruction] = {}
    total = 0
    for one in instructions(entry(text)):
        if one.opcode in _CONTROL_FLOW:
            return None
        operands = [by_name[name] for name in one.operands if name in by_name]
        by_name[one.name] = one
        if one.opcode in _FREE or one.opcode.endswith("-start"):
            continue
        if one.opcode.endswith("-done"):
            total += _copied(one, operands[0], by_name)
        else:
            arrays = (array for x in (one, *operands) for array in _ARRAY.finditer(x.type))
            total += sum(_padded_bytes(array) for array in arrays if _space(array) == _HBM)
    return total


def _copied(done: Instruction, start: Instruction, by_name: dict[str, Instruction]) -> int:
    """HBM bytes of an asynchronous copy: the result, counted for each end that lies in HBM."""
    ends = [done.type, by_name[start.operands[0]].type] if start.operands else [done.type]
    size = sum(_padded_bytes(array) for array in _ARRAY.finditer(done.type))
    return size * sum(any(_space(array) == _HBM for array in _ARRAY.finditer(x)) for x in ends)


def _space(array: re.Match[str]) -> int:
    return int(array["space"] or _HBM)


def _padded_bytes(array: re.Match[str]) -> int:
    """The bytes of an array in memory, with its last dimensions padded to its tile."""
    dims = [int(size) for size in array["dims"].split(",") if size]
    if array["layout"]:
        dims = [dims[int(axis)] for axis in reversed(array["layout"].split(","))]
    tile = [int(size) for size in (array["tile"] or "").split(",") if size]
    dims = [1] * (len(tile) - len(dims)) + dims
    for axis, size in enumerate(tile, start=len(dims) - len(tile)):
        dims[axis] = -(-dims[axis] // size) * size
    return math.prod(dims) * _ITEM_SIZES.get(array["dtype"], 0)
