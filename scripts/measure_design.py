"""Counts what the design should keep small: who knows kinds and levels, decisions, lines.

    python scripts/measure_design.py [FOLDER]

FOLDER is a checkout, by default this one. Counted in bert_features/, by the syntax tree:

- kinds: comparisons of `.kind` with the name of a kind, and uses of tables of kinds or dtypes
- levels: comparisons with the name of a level
- int8: files that name the dtype or its ranges
- decisions: branches, loops, conditions and boolean operators of the busiest functions
"""

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

KINDS = {"layers", "attention", "masked_lm", "score"}
TABLES = {"PAIRS", "SMALL_DTYPES", "HEAD_KINDS"}
LEVELS = {"token", "word", "sequence", "token_pair", "word_pair"}
DECISIONS = (
    ast.If,
    ast.IfExp,
    ast.For,
    ast.While,
    ast.ExceptHandler,
    ast.comprehension,
    ast.BoolOp,
    ast.match_case,
)


def texts(node: ast.AST) -> set[str]:
    """The strings in an expression."""
    found = (each.value for each in ast.walk(node) if isinstance(each, ast.Constant))
    return {value for value in found if isinstance(value, str)}


def knows_kind(node: ast.AST) -> bool:
    """Whether a node compares a kind, or uses a table of kinds or dtypes."""
    if isinstance(node, ast.Name):
        return node.id in TABLES and isinstance(node.ctx, ast.Load)
    if not isinstance(node, ast.Compare):
        return False
    attributes = {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)}
    return "kind" in attributes and not KINDS.isdisjoint(texts(node))


def knows_level(node: ast.AST) -> bool:
    """Whether a node compares something with the name of a level."""
    if not isinstance(node, ast.Compare) or LEVELS.isdisjoint(texts(node)):
        return False
    names = {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)}
    names |= {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    return not names.isdisjoint({"level", "unit", "rows", "_levels", "levels"})


def functions(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """The decisions of each function, without those of functions inside it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            inner = {
                id(each)
                for other in ast.walk(node)
                if isinstance(other, ast.FunctionDef) and other is not node
                for each in ast.walk(other)
            }
            own = (each for each in ast.walk(node) if id(each) not in inner)
            yield f"{node.name}:{node.lineno}", sum(isinstance(each, DECISIONS) for each in own)


def main() -> None:
    """Prints the measures."""
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[1]
    counts: dict[str, Counter[str]] = {"kinds": Counter(), "levels": Counter(), "int8": Counter()}
    busiest: Counter[str] = Counter()
    lines = Counter[str]()
    for path in sorted((root / "bert_features").rglob("*.py")):
        name, text = path.relative_to(root).as_posix(), path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        lines["package"] += text.count("\n")
        nodes = list(ast.walk(tree))
        counts["kinds"][name] += sum(map(knows_kind, nodes))
        counts["levels"][name] += sum(map(knows_level, nodes))
        code = {each.id for each in nodes if isinstance(each, ast.Name)}
        code |= {each.attr for each in nodes if isinstance(each, ast.Attribute)}
        code |= {v for each in nodes if isinstance(each, ast.Compare) for v in texts(each)}
        counts["int8"][name] += bool(code & {"int8", "ranges", "_ranges", "Ranges"})
        busiest.update({f"{name}:{each}": found for each, found in functions(tree)})
    for folder in ("tests", "scripts", "benchmarks"):
        lines[folder] = sum(
            path.read_text(encoding="utf-8").count("\n") for path in (root / folder).rglob("*.py")
        )
    for name, found in counts.items():
        files = [file for file, count in found.items() if count]
        print(f"{name}: {found.total()} in {len(files)} files")
    attention = max(c for n, c in busiest.items() if "encoder/blocks.py:call:" in n)
    print(f"busiest call of encoder/blocks.py: {attention} decisions")
    print(f"functions with more than 15 decisions: {sum(c > 15 for c in busiest.values())}")
    print(f"lines: {', '.join(f'{name} {count:,}' for name, count in lines.items())}")


if __name__ == "__main__":
    main()
