"""`python dev.py gates size`: lines and tuned numbers of the core, which `tests/test_architecture.py` lets only shrink.

The core is the package without tables, plots, the report and the command line. A tuned number is a module-level name
in capitals that is bound to a number or to a tuple of numbers; a name computed from other names does not count.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PACKAGE = Path(__file__).resolve().parents[1] / "annealed"
OUTSIDE_THE_CORE = {"plots", "sparkline", "app", "__main__"}


class Size(NamedTuple):
    n_lines: int
    tuned: list[str]  # names of the tuned numbers, each with its module


def sizes() -> dict[str, Size]:
    """Of every folder or file right under the package that belongs to the core."""
    n_lines: dict[str, int] = defaultdict(int)
    tuned: dict[str, list[str]] = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        if not OUTSIDE_THE_CORE.intersection(parts):
            text = path.read_text()
            n_lines[parts[0]] += len(text.splitlines())
            tuned[parts[0]] += [f"{'.'.join(parts)}.{name}" for name in tuned_numbers(text)]
    return {name: Size(n_lines[name], tuned[name]) for name in n_lines}


def core() -> Size:
    """Of the whole core."""
    parts = sizes().values()
    return Size(sum(size.n_lines for size in parts), [name for size in parts for name in size.tuned])


def tuned_numbers(text: str) -> Iterator[str]:
    """Names of the tuned numbers of a module."""
    for statement in ast.parse(text).body:
        if isinstance(statement, ast.AnnAssign):
            pairs = [(statement.target, statement.value)]
        elif isinstance(statement, ast.Assign):
            pairs = [pair for target in statement.targets for pair in _pairs(target, statement.value)]
        else:
            continue
        for target, value in pairs:
            if isinstance(target, ast.Name) and target.id.isupper() and _is_number(value):
                yield target.id


def _pairs(target, value):
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        return list(zip(target.elts, value.elts, strict=True))
    return [(target, value)]


def _is_number(node) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, int | float) and not isinstance(node.value, bool)
    if isinstance(node, ast.BinOp):
        return _is_number(node.left) and _is_number(node.right)
    if isinstance(node, ast.UnaryOp):
        return _is_number(node.operand)
    return isinstance(node, ast.Tuple) and bool(node.elts) and all(map(_is_number, node.elts))


def report() -> None:
    print(f"{'':20}{'lines':>8}{'tuned numbers':>16}")
    for name, size in sorted(sizes().items(), key=lambda item: -item[1].n_lines):
        print(f"{name:20}{size.n_lines:8,}{len(size.tuned):16}")
    total = core()
    print(f"{'core':20}{total.n_lines:8,}{len(total.tuned):16}")
