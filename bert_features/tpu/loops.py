"""What the compiler's figures leave out of loops: it counts one pass of each.

So each body is compiled by itself, and its figures are taken once for each further pass.
"""

from collections.abc import Iterable, Iterator
from typing import Any

FIGURES = ("flops", "bytes accessed")


def uncounted(program: Any, sharding: Any) -> dict[str, float]:
    """The `FIGURES` of all passes that `cost_analysis()` of a program does not count.

    Args:
      program: the `ClosedJaxpr` of a step.
      sharding: of arrays that lie whole on each of the devices to compile for.
    """
    import jax
    from jax.extend.core import jaxpr_as_fun

    total = dict.fromkeys(FIGURES, 0.0)
    for body, passes in _loops(program.jaxpr, 1):
        shapes = [jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=sharding) for a in body.in_avals]
        jitted = jax.jit(jaxpr_as_fun(body), out_shardings=sharding)
        cost: Any = jitted.lower(*shapes).compile().cost_analysis()
        total = {name: total[name] + passes * cost[name] for name in FIGURES}
    return total


def _loops(program: Any, times: int) -> Iterator[tuple[Any, int]]:
    """The body of each loop, and the number of its passes that are not counted.

    A program in a loop runs `times` times. Of a loop in it, one pass each time is counted: in the
    program, or in the body of the loop around it.
    """
    for equation in program.eqns:
        passes = 1
        if equation.primitive.name == "scan":
            passes = equation.params["length"]
            yield equation.params["jaxpr"], times * (passes - 1)
        for inner in _inside(equation.params.values()):
            yield from _loops(inner, times * passes)


def _inside(values: Iterable[Any]) -> Iterator[Any]:
    """The programs among the parameters of an operation."""
    for value in values:
        if isinstance(value, tuple | list):
            yield from _inside(value)
        elif hasattr(value, "eqns"):
            yield value
