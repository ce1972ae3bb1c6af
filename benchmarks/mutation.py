"""Small faults to put into source: each mutant changes one place. Pure; `benchmarks.mutants` runs the tests over them.

Left alone: documentation, annotations, imports, what is only said in an error, and strings.
"""

from __future__ import annotations

import ast
import copy
import difflib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

_FLIPS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
}
N = TypeVar("N", bound=ast.AST)
_ENDS = (ast.Raise, ast.Return, ast.Continue, ast.Break)


@dataclass(frozen=True)
class Mutant:
    """One changed place of one file."""

    file: str
    kind: str
    line: int
    before: str
    """The place as it is, on one line: with `after` it names the mutant even when lines move."""
    after: str
    source: str
    """The whole changed file."""

    def diff(self, original: str) -> str:
        """Return the change as a unified diff."""
        lines = difflib.unified_diff(
            original.splitlines(), self.source.splitlines(), self.file, f"{self.file} ({self.kind})", lineterm="", n=1
        )
        return "\n".join(lines)


def mutants(file: str, source: str) -> Iterator[Mutant]:
    """Yield every mutant of a file, in the order of its places; `sound` tells whether one can be run."""
    for node in _places(ast.parse(source)):
        for kind, after in _changes(node):
            yield Mutant(file, kind, node.lineno, ast.unparse(node), after, _replaced(source, node, after))


def sound(mutant: Mutant, original: str) -> bool:
    """Tell whether a mutant can be parsed and means something else than the original."""
    try:
        return ast.dump(ast.parse(mutant.source)) != ast.dump(ast.parse(original))
    except SyntaxError:
        return False


def _places(tree: ast.Module) -> Iterator[ast.stmt | ast.expr]:
    """Yield the statements and expressions that may be changed, from top to bottom."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, ast.stmt | ast.expr):
            yield node
        waiting[:0] = [child for child in _children(node) if not _left_alone(child)]


def _children(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the children of a node that say what is done, not what it is called or typed."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_params", "bases"):
            continue
        if isinstance(node, ast.Raise):  # what an error says is no behaviour that a mutant should be caught for
            continue
        if name == "test" and isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            return
        items = value if isinstance(value, list) else [value]
        yield from (item for item in items if isinstance(item, ast.AST))


def _left_alone(node: ast.AST) -> bool:
    text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return text or isinstance(node, ast.Import | ast.ImportFrom | ast.JoinedStr)


def _changes(node: ast.stmt | ast.expr) -> Iterator[tuple[str, str]]:
    """Yield (kind, new text) of a place."""
    if isinstance(node, ast.Compare):
        for at, operator in enumerate(node.ops):
            made = copy.deepcopy(node)
            made.ops[at] = _FLIPS[type(operator)]()
            yield "comparison", ast.unparse(made)
    elif isinstance(node, ast.BoolOp):
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield "and/or", f"({_text(node, lambda made: setattr(made, 'op', other))})"
    elif isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC and not _is_text(node):
        to = _ARITHMETIC[type(node.op)]
        yield "arithmetic", f"({_text(node, lambda made: setattr(made, 'op', to()))})"
    elif isinstance(node, ast.Constant):
        yield from _constants(node.value)
    elif isinstance(node, ast.IfExp | ast.If):
        yield from _conditions(node)
    elif isinstance(node, ast.Raise | ast.AugAssign) or (isinstance(node, ast.Expr) and _is_call(node.value)):
        yield "dropped statement", "pass"


def _constants(value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, bool):
        yield "constant", repr(not value)
    elif isinstance(value, int):
        yield "constant", repr(value + 1)
    elif isinstance(value, float):
        yield "constant", repr(value * 2 + 0.1)


def _conditions(node: ast.IfExp | ast.If) -> Iterator[tuple[str, str]]:
    """Yield the branch with its condition negated; a guard without its body."""
    if isinstance(node, ast.IfExp):
        yield "negated condition", f"({_text(node, _negate)})"
    elif isinstance(node.body[-1], _ENDS) and not node.orelse:
        yield "dropped guard", "pass"


def _negate(made: ast.IfExp) -> None:
    made.test = ast.UnaryOp(ast.Not(), made.test)


def _is_call(node: ast.expr) -> bool:
    return isinstance(node.value if isinstance(node, ast.Await) else node, ast.Call)


def _is_text(node: ast.BinOp) -> bool:
    parts = (node.left, node.right)
    return any(isinstance(part, ast.JoinedStr) or isinstance(getattr(part, "value", None), str) for part in parts)


def _text(node: N, change: Callable[[N], object]) -> str:
    made = copy.deepcopy(node)
    change(made)
    return ast.unparse(made)


def _replaced(source: str, node: ast.stmt | ast.expr, after: str) -> str:
    """Return the source with another text in a node's place; positions of `ast` count bytes."""
    lines = source.splitlines(keepends=True)
    end_line, end = node.end_lineno or node.lineno, node.end_col_offset or 0
    head = lines[node.lineno - 1].encode()[: node.col_offset].decode()
    tail = lines[end_line - 1].encode()[end:].decode()
    return "".join(lines[: node.lineno - 1]) + head + after + tail + "".join(lines[end_line:])
