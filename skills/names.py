"""Names that a piece of code binds, reads and calls: read with `ast`, never run.

Scopes are told apart only as far as needed: what a function, lambda or comprehension binds stays inside it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

Function = ast.FunctionDef | ast.AsyncFunctionDef
Import = ast.Import | ast.ImportFrom
DEEPEST = 150
"""Most levels of a tree that is read: the sandbox runs no more than about 190."""
_COMPREHENSION = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


def parsed(code: str) -> ast.Module | None:
    """Return the code's tree, None where it is no Python or nested too deep to be read."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # what ast.parse raises on text that is no code
        return None
    return tree if is_shallow(tree) else None


def is_shallow(tree: ast.AST) -> bool:
    """Tell whether a tree is at most `DEEPEST` levels deep: what reads one recursively has 1,000 frames."""
    level = [tree]
    for _ in range(DEEPEST):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        if not level:
            return True
    return False


def imported(node: Import) -> Iterator[tuple[str, str]]:
    """Yield (name, what it stands for) of an import: `re` for `import re`, `math.pi` for `from math import pi`."""
    for alias in node.names:
        if isinstance(node, ast.ImportFrom):
            yield alias.asname or alias.name, f"{node.module}.{alias.name}"
        elif alias.asname:
            yield alias.asname, alias.name
        else:
            yield alias.name.partition(".")[0], alias.name.partition(".")[0]


def bound(node: ast.AST) -> Iterator[str]:
    """Yield every name that `node` binds anywhere inside, in inner scopes too, parameters included."""
    for each in ast.walk(node):
        if isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Load):
            yield each.id
        elif isinstance(each, ast.arg):
            yield each.arg
        else:
            yield from _named(each)


def free(function: Function | ast.Lambda) -> dict[str, int]:
    """Return the names that a function reads from outside, with the line of the first time; its own name is none."""
    own = set(bound(function))
    reads = (node for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load))
    found: dict[str, int] = {}
    for node in sorted(reads, key=lambda n: (n.lineno, n.col_offset)):
        if node.id not in own:
            found.setdefault(node.id, node.lineno)
    return found


def rebound(statement: ast.stmt) -> Iterator[str]:
    """Yield the names that the statement gives a new meaning in its own scope, by whatever means, attributes too."""
    inner = {id(node) for each in _here(statement) if isinstance(each, _COMPREHENSION) for node in _targets(each)}
    for node in _here(statement):
        if isinstance(node, ast.Name | ast.Attribute | ast.Subscript):
            if not isinstance(node.ctx, ast.Load) and id(node) not in inner and (root := root_of(node)):
                yield root
        else:
            yield from _named(node)
            if isinstance(node, Function | ast.ClassDef):
                yield from (name for each in ast.walk(node) if isinstance(each, ast.Global) for name in each.names)


def _named(node: ast.AST) -> Iterator[str]:
    """Yield the names that a node of itself binds: a definition, an import, a handler, a pattern."""
    if isinstance(node, Function | ast.ClassDef):
        yield node.name
    elif isinstance(node, Import):
        yield from (name for name, _ in imported(node))
    elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
        yield node.name
    elif isinstance(node, ast.MatchMapping) and node.rest:
        yield node.rest


def called(statement: ast.AST) -> frozenset[str]:
    """Return the plain names that the statement calls when it runs; bodies of functions and lambdas do not run."""
    inner = {
        node.id
        for each in _here(statement)
        if isinstance(each, _COMPREHENSION)
        for node in _targets(each)
        if isinstance(node, ast.Name)
    }
    calls = (node.func for node in _here(statement) if isinstance(node, ast.Call))
    return frozenset(func.id for func in calls if isinstance(func, ast.Name)) - inner


def calls_in(function: Function) -> frozenset[str]:
    """Return the names from outside that a function calls when it runs."""
    return frozenset[str]().union(*(called(statement) for statement in function.body)) - set(bound(function))


def dotted(node: ast.expr) -> str:
    """Return `a.b.c` for such an expression, an empty text for any other."""
    if isinstance(node, ast.Attribute):
        before = dotted(node.value)
        return f"{before}.{node.attr}" if before else ""
    return node.id if isinstance(node, ast.Name) else ""


def root_of(node: ast.expr) -> str:
    """Return the name at the root of an attribute or subscript chain, an empty text without one."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _here(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that run with `node`: not the bodies of functions and lambdas."""
    yield node
    if isinstance(node, Function | ast.Lambda):
        inside = [*node.args.defaults, *filter(None, node.args.kw_defaults)]
    else:
        inside = ast.iter_child_nodes(node)
    for child in inside:
        yield from _here(child)


def _targets(node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> Iterator[ast.AST]:
    for part in node.generators:
        yield from ast.walk(part.target)
