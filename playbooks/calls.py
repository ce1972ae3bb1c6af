"""The calls that a step made, read from its code with `ast`: never evaluated, never guessed by regular expressions.

Understands `apps.x.f(a, b=1)`, `f(a=1)`, lists of such calls and native tool calls. Variables assigned from an
expression are looked through, so that `d = dmy("..."); add(date=d)` reads as `add(date=dmy("..."))`.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from memory.records import Step

ROOT = "apps"
_DEPTH = 4
_BUILTINS = frozenset(dir(builtins))
_FENCE = "```"


@dataclass(frozen=True)
class Call:
    """One call in source order. `name` leaves out the root `apps.`; positional arguments are named by their index."""

    name: str
    args: Mapping[str, ast.expr] = field(default_factory=lambda: {})

    @property
    def short(self) -> str:
        """The last part of the name."""
        return self.name.rpartition(".")[2]

    def source(self, arg: str) -> str:
        """Return an argument as source text."""
        return ast.unparse(self.args[arg])


def calls_of(steps: Sequence[Step]) -> list[list[Call]]:
    """Return the calls of each step, in order of evaluation. A step whose action is no code has its tool calls or none.

    Names assigned in any step so far are variables, so their methods (`rows.append`) are not calls of the environment.
    """
    known: dict[str, ast.expr | None] = {}
    found: list[list[Call]] = []
    for step in steps:
        if step.tool_calls:
            found.append([Call(call.name, _constants(call.arguments)) for call in step.tool_calls])
            continue
        tree = _parse(step.action)
        found.append([] if tree is None else list(_calls(tree, known)))
    return found


def call_name(node: ast.expr) -> str | None:
    """Return the dotted name of a call's function without the root `apps.`, None when it is no plain dotted name."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    parts.append(node.id)
    parts.reverse()
    return ".".join(parts[1:] if parts[0] == ROOT and len(parts) > 1 else parts)


def _parse(action: str) -> ast.Module | None:
    lines = [line for line in action.strip().split("\n") if not line.lstrip().startswith(_FENCE)]
    try:
        return ast.parse("\n".join(lines))
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # what ast.parse raises on text that is no code
        return None


def _calls(tree: ast.Module, known: dict[str, ast.expr | None]) -> Iterator[Call]:
    for statement in tree.body:
        nodes = [node for node in ast.walk(statement) if isinstance(node, ast.Call)]
        for name in _bound(statement):
            known.setdefault(name, None)
        for node in sorted(nodes, key=lambda n: (n.end_lineno or 0, n.end_col_offset or 0)):
            name = call_name(node.func)
            root = _root(node.func)
            if name and root not in known and root not in _BUILTINS:
                yield Call(name, {key: _look_through(value, known) for key, value in _arguments(node)})
        _assign(statement, known)


def _assign(statement: ast.stmt, known: dict[str, ast.expr | None]) -> None:
    """Remember what a statement binds: the expression of a plain assignment, otherwise that the name is a variable."""
    known.update(dict.fromkeys(_bound(statement)))
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1 and isinstance(statement.targets[0], ast.Name):
        known[statement.targets[0].id] = statement.value


def _bound(statement: ast.stmt) -> Iterator[str]:
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.alias):
            yield (node.asname or node.name).partition(".")[0]
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name


def _arguments(node: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    for at, value in enumerate(node.args):
        yield str(at), value
    for keyword in node.keywords:
        if keyword.arg is not None:
            yield keyword.arg, keyword.value


def _look_through(value: ast.expr, known: Mapping[str, ast.expr | None]) -> ast.expr:
    """Return the expression a variable stands for. A lookup's result (`c = find(...)`) stays the variable."""
    for _ in range(_DEPTH):
        assigned = known.get(value.id) if isinstance(value, ast.Name) else None
        if assigned is None:
            break
        value = assigned
    return value


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _constants(arguments: Mapping[str, object]) -> dict[str, ast.expr]:
    parsed: dict[str, ast.expr] = {}
    for key, value in arguments.items():
        parsed[key] = ast.parse(repr(value), mode="eval").body
    return parsed
