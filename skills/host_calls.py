"""Functions of the world that code calls: read with `ast`, never run.

A world offers functions under `apps.<app>.<function>`, as the office does, or under names of its own that its
description shows as calls: `search("...")`, `db.query(...)`. In a skill they are what it reads from outside and what is
no builtin, module or other skill.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Collection, Iterable, Iterator

from skills.names import bound, dotted, free, imported
from skills.record import Skill

APPS = "apps"
"""The root of host functions that are sorted by app: `apps.<app>.<function>`."""
PYTHON = frozenset(dir(builtins))
_CALL = re.compile(r"(?<![\w.])([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)\(")


def documented(described: str) -> frozenset[str]:
    """Return the functions that a world's description shows as calls, without builtins: `apps.mail.send`, `search`."""
    return frozenset(name for name in _CALL.findall(described) if name.partition(".")[0] not in PYTHON)


def roots_of(skill: Skill) -> frozenset[str]:
    """Return the names by which a skill reaches the world."""
    brought = {name for node in skill.imports for name, _ in imported(node)}
    return frozenset(free(skill.function)) - PYTHON - brought - set(skill.requires)


def host(node: ast.expr, roots: Collection[str]) -> str:
    """Return the host function that an expression names, or an empty text: `payments.send` for `apps.payments.send`."""
    name = dotted(node)
    root, _, rest = name.partition(".")
    if root not in roots:
        return ""
    if root == APPS:
        return rest if rest.count(".") == 1 else ""
    return name


def hosts(node: ast.AST, roots: Collection[str]) -> Iterator[str]:
    """Yield the host functions that code calls, once for each place."""
    for each in ast.walk(node):
        if isinstance(each, ast.Call) and (name := host(each.func, roots)):
            yield name


def roots_in(statements: Iterable[ast.stmt], skills: Collection[str]) -> frozenset[str]:
    """Return the names by which an agent's own code reaches the world: those it reads and never gives a meaning."""
    nodes = [node for statement in statements for node in ast.walk(statement)]
    read = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    given = {name for node in nodes for name in bound(node)} if nodes else set[str]()
    return frozenset(read) - given - PYTHON - set(skills)
