"""Counts what the design should keep small: lines and names by room, who knows kinds and levels.

    python scripts/measure_design.py [FOLDER]

FOLDER is a checkout, by default this one, whose kinds, levels, settings and commands are counted
from its package. By the syntax tree of bert_features/ are counted

- lines, functions and classes, by room
- kinds: comparisons of `.kind` with the name of a kind, and uses of the table of small dtypes
- levels: comparisons with the name of a level
- functions with many branches, loops, conditions and boolean operators

and the words of README.md, CONTRIBUTING.md, CHANGELOG.md and docs/.
"""

import ast
import sys
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path

TABLES = {"SMALL_DTYPES"}
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
MANY = 15  # decisions of a function


def texts(node: ast.AST) -> set[str]:
    """The strings in an expression."""
    found = (each.value for each in ast.walk(node) if isinstance(each, ast.Constant))
    return {value for value in found if isinstance(value, str)}


def knows_kind(node: ast.AST, kinds: Collection[str]) -> bool:
    """Whether a node compares a kind, or uses a table of dtypes."""
    if isinstance(node, ast.Name):
        return node.id in TABLES and isinstance(node.ctx, ast.Load)
    if not isinstance(node, ast.Compare):
        return False
    attributes = {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)}
    return "kind" in attributes and not texts(node).isdisjoint(kinds)


def knows_level(node: ast.AST, levels: Collection[str]) -> bool:
    """Whether a node compares something with the name of a level."""
    if not isinstance(node, ast.Compare) or texts(node).isdisjoint(levels):
        return False
    names = {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)}
    names |= {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    return not names.isdisjoint({"level", "unit", "rows", "_levels", "levels"})


def decisions(function: ast.AST) -> int:
    """The decisions of a function, without those of functions inside it."""
    inner = {
        id(each)
        for other in ast.walk(function)
        if isinstance(other, ast.FunctionDef) and other is not function
        for each in ast.walk(other)
    }
    own = (each for each in ast.walk(function) if id(each) not in inner)
    return sum(isinstance(each, DECISIONS) for each in own)


def files_of(root: Path, folder: str, pattern: str) -> Iterator[tuple[str, str]]:
    """The files in a folder, each as its path and its text."""
    for path in sorted((root / folder).rglob(pattern)):
        yield path.relative_to(root / folder).as_posix(), path.read_text(encoding="utf-8")


def print_rooms(rooms: dict[str, Counter[str]]) -> None:
    """A line for each room, the largest first, and their sum."""
    columns = ("lines", "functions", "classes")
    whole = sum(rooms.values(), Counter[str]())
    by_size = sorted(rooms.items(), key=lambda room: -room[1]["lines"])
    for name, found in [*by_size, ("package", whole)]:
        print(f"{name:<14}" + "".join(f"{found[column]:>10,} {column}" for column in columns))


def main() -> None:
    """Prints the measures."""
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[1]).resolve()
    if not (root / "bert_features" / "config" / "kinds").is_dir():
        sys.exit(f"{root} is no checkout of bert_features: it has no bert_features/config/kinds")
    sys.path.insert(0, str(root))
    from bert_features.cli.help import COMMANDS
    from bert_features.config.extract_config import ExtractConfig
    from bert_features.config.kinds import KINDS
    from bert_features.config.levels import LEVELS

    rooms: dict[str, Counter[str]] = {}
    knowing = {"kinds": Counter[str](), "levels": Counter[str]()}
    busy = list[str]()
    for name, text in files_of(root, "bert_features", "*.py"):
        nodes = list(ast.walk(ast.parse(text)))
        functions = [node for node in nodes if isinstance(node, ast.FunctionDef)]
        room = rooms.setdefault(name.partition("/")[0] if "/" in name else "(root)", Counter())
        room["lines"] += text.count("\n")
        room["functions"] += len(functions)
        room["classes"] += sum(isinstance(node, ast.ClassDef) for node in nodes)
        knowing["kinds"][name] += sum(knows_kind(node, KINDS) for node in nodes)
        knowing["levels"][name] += sum(knows_level(node, LEVELS) for node in nodes)
        busy += [f"{name}:{each.name}" for each in functions if decisions(each) > MANY]
    print_rooms(rooms)
    for folder in ("tests", "scripts", "benchmarks"):
        lines = sum(text.count("\n") for _, text in files_of(root, folder, "*.py"))
        print(f"{folder}: {lines:,} lines")
    pages = [text for _, text in files_of(root, "docs", "*.md")]
    pages += [path.read_text(encoding="utf-8") for path in root.glob("*.md")]
    print(f"docs: {sum(len(page.split()) for page in pages):,} words")
    typed = getattr(ExtractConfig, "known", lambda: ExtractConfig.model_fields)()
    print(f"commands {len(COMMANDS)}, settings of a run {len(typed)}, ", end="")
    print(f"kinds {len(KINDS)}, levels {len(LEVELS)}")
    for name, found in knowing.items():
        files = [file for file, count in found.items() if count]
        print(f"{name}: compared {found.total()} times in {len(files)} files")
    print(f"functions with more than {MANY} decisions: {', '.join(busy) or 'none'}")


if __name__ == "__main__":
    main()
