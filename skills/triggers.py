"""What code of little trust may not hold: a choice that hangs on one value, for no test can tell when it is taken.

A skill that pays, and for one memo does something else, passes every measurement on tasks without that memo. Code from
outside may therefore branch on what is there (a name, `is None`, emptiness, `isinstance`) and compare one value with
another, but not with a literal; and host functions are called in plain sight. This narrows what untrusted code can
hide and does not prove that it hides nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from skills.hosts import host, roots_of
from skills.names import Function
from skills.record import Skill

_PLAIN = (None, True, False, 0, 1, "")
# fmt: off
_LOOKS_FOR = frozenset({
    "count", "endswith", "find", "findall", "finditer", "fullmatch", "get", "index", "match", "rfind", "rindex",
    "search", "startswith", "sub",
})
# fmt: on
"""Methods that turn one text into a choice."""
_CUTS = frozenset({"partition", "removeprefix", "removesuffix", "replace", "rpartition", "rsplit", "split"})
"""Methods that do so where they are given a word: cutting at `", "` is plain, cutting at `"zorvex"` asks for it."""
_TESTS = (ast.If, ast.IfExp, ast.While, ast.Assert)
_ASKS = frozenset({"all", "any", "bool", "isinstance", "len"})


def triggers(skill: Skill) -> Iterator[tuple[int, str]]:
    """Yield (line, complaint) for each choice that may wait for a value."""
    function, roots = skill.function, roots_of(skill)
    called = {id(node.func) for node in ast.walk(function) if isinstance(node, ast.Call)}
    for node in ast.walk(function):
        line = getattr(node, "lineno", function.lineno)
        if isinstance(node, ast.Match):
            yield line, "`match` chooses by a value; untrusted code may not"
        elif isinstance(node, ast.Compare) and not all(map(_open, (node.left, *node.comparators))):
            yield line, f"`{ast.unparse(node)}` waits for a value; untrusted code may not"
        elif isinstance(node, _TESTS) and (call := _hidden(node.test)) is not None:
            yield line, f"`{ast.unparse(call)}` decides what is done; untrusted code may not ask it"
        elif isinstance(node, ast.Call) and _looks(node, roots):
            yield line, f"`{ast.unparse(node)}` looks for a value; untrusted code may not"
        elif isinstance(node, ast.Subscript) and isinstance(node.value, ast.Dict | ast.List | ast.Tuple):
            yield line, "a literal table chooses by a value; untrusted code may not"
        elif isinstance(node, ast.Attribute) and host(node, roots) and id(node) not in called:
            yield line, f"`{ast.unparse(node)}` is passed on; untrusted code calls host functions in plain sight"
        elif isinstance(node, Function | ast.Lambda) and node is not function and _calls_host(node, roots):
            yield line, "a function inside calls the host; untrusted code does so in plain sight"


def _open(node: ast.expr) -> bool:
    """Tell whether an operand is a value of the call or the world, and no literal."""
    if isinstance(node, ast.Constant):
        return any(node.value is each or (type(node.value) is type(each) and node.value == each) for each in _PLAIN)
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in _ASKS
    return not any(isinstance(part, ast.Constant) for part in ast.walk(node) if not _index(node, part))


def _index(node: ast.expr, part: ast.AST) -> bool:
    """Tell whether a constant is the key of a subscript, as in `mail["id"]`."""
    return any(isinstance(each, ast.Subscript) and each.slice is part for each in ast.walk(node))


def _hidden(test: ast.expr) -> ast.Call | None:
    calls = (node for node in ast.walk(test) if isinstance(node, ast.Call))
    return next((call for call in calls if not (isinstance(call.func, ast.Name) and call.func.id in _ASKS)), None)


def _looks(call: ast.Call, roots: Collection[str]) -> bool:
    if not isinstance(call.func, ast.Attribute) or host(call.func, roots):
        return False
    texts = [each.value for each in call.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    words = any(char.isalnum() for text in texts for char in text)
    return bool(texts) and (call.func.attr in _LOOKS_FOR or (call.func.attr in _CUTS and words))


def _calls_host(function: ast.AST, roots: Collection[str]) -> bool:
    return any(isinstance(node, ast.Name) and node.id in roots for node in ast.walk(function))
