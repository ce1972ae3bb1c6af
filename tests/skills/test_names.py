"""Which names a piece of code binds, reads and calls, scope by scope."""

from __future__ import annotations

import ast

import pytest

from skills.names import (
    DEEPEST,
    Function,
    Import,
    bound,
    called,
    calls_in,
    dotted,
    free,
    imported,
    is_shallow,
    parsed,
    rebound,
    root_of,
)


def statement(code: str) -> ast.stmt:
    (found,) = ast.parse(code).body
    return found


def function(code: str) -> Function:
    found = statement(code)
    assert isinstance(found, Function)
    return found


@pytest.mark.parametrize(("code", "names"), [("x = 1", 1), ("", 0), ("x = (", None), ("\0", None), ("(" * 9999, None)])
def test_what_is_no_python_has_no_tree(code: str, names: int | None) -> None:
    tree = parsed(code)
    assert (None if tree is None else len(tree.body)) == names


@pytest.mark.parametrize(("levels", "shallow"), [(3, True), (DEEPEST, True), (DEEPEST + 1, False), (400, False)])
def test_what_is_nested_too_deep_is_not_read(levels: int, shallow: bool) -> None:
    code = "-" * (levels - 3) + "1"  # beside the module, its statement and the number
    assert is_shallow(ast.parse(code)) is shallow
    assert (parsed(code) is not None) is shallow


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("import re", [("re", "re")]),
        ("import os.path", [("os", "os")]),
        ("import os.path as p", [("p", "os.path")]),
        ("import re, json as j", [("re", "re"), ("j", "json")]),
        ("from math import pi", [("pi", "math.pi")]),
        ("from math import pi as p, e", [("p", "math.pi"), ("e", "math.e")]),
    ],
)
def test_an_import_says_what_its_names_stand_for(code: str, names: list[tuple[str, str]]) -> None:
    found = statement(code)
    assert isinstance(found, Import)
    assert list(imported(found)) == names


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("x = y", {"x"}),
        ("del x", {"x"}),
        ("x.y = z[0] = 1", set[str]()),
        ("for x, y in z: pass", {"x", "y"}),
        ("lambda a, *b, c=1, **d: a", {"a", "b", "c", "d"}),
        ("def f(a, /, b: int) -> c: d = a", {"f", "a", "b", "d"}),
        ("class A(B): x = 1", {"A", "x"}),
        ("import a.b, c as d", {"a", "d"}),
        ("try:\n    pass\nexcept A as e:\n    pass\nexcept B:\n    pass", {"e"}),
        ("match x:\n    case [a, *b]: pass\n    case {'k': c, **d}: pass", {"a", "b", "c", "d"}),
        ("match x:\n    case {'k': 1}: pass\n    case [*_]: pass", set[str]()),
        ("[a for a in b]", {"a"}),
        ("print(x := y)", {"x"}),
    ],
)
def test_every_way_to_bind_a_name_is_seen(code: str, names: set[str]) -> None:
    assert set(bound(statement(code))) == names


def test_a_name_from_outside_has_the_line_of_the_first_time() -> None:
    code = "def f(a):\n    b = c = g(a)\n    return h(f(b), g, i,\n        lambda x: x + k)"
    assert free(function(code)) == {"g": 2, "h": 3, "i": 3, "k": 4}
    assert list(free(function("def f():\n    return b + a, a + b, c"))) == ["b", "a", "c"]


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("x = 1", {"x"}),
        ("x += 1", {"x"}),
        ("x.y.z = 1", {"x"}),
        ("x[0].y = 1", {"x"}),
        ("del x.y", {"x"}),
        ("g().x = 1", set[str]()),
        ("x.y", set[str]()),
        ("print(x)", set[str]()),
        ("y = [x for x in z]", {"y"}),
        ("y = {x: x for x in z if (w := x)}", {"y", "w"}),
        ("def f(a, b=(c := 1)):\n    d = 1", {"f", "c"}),
        ("def f():\n    global x\n    x = 1", {"f", "x"}),
        ("class A:\n    def f(self):\n        global x", {"A", "f", "x"}),
        ("lambda: (x := 1)", set[str]()),
        ("import a.b", {"a"}),
    ],
)
def test_what_a_statement_rebinds_in_its_own_scope(code: str, names: set[str]) -> None:
    assert set(rebound(statement(code))) == names


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("f(g(x))", {"f", "g"}),
        ("x.f()", set[str]()),
        ("y = lambda: f()", set[str]()),
        ("def h(a=f(), *, b=g(), c): k()", {"f", "g"}),
        ("[a(b) for a in c()]", {"c"}),
        ("[f(b) for b in c]", {"f"}),
    ],
)
def test_what_is_called_when_a_statement_runs(code: str, names: set[str]) -> None:
    assert called(statement(code)) == names


def test_a_function_calls_what_its_body_calls_from_outside() -> None:
    code = "def f(a, b=z()):\n    c = g(a)\n    a()\n    c()\n    def d():\n        return k()\n    return d() + h()"
    assert calls_in(function(code)) == {"g", "h"}
    assert calls_in(function("def f():\n    return 1")) == frozenset()


@pytest.mark.parametrize(
    ("code", "whole", "root"),
    [
        ("a", "a", "a"),
        ("a.b.c", "a.b.c", "a"),
        ("a[0].b", "", "a"),
        ("a.b[0]", "", "a"),
        ("f().b", "", ""),
        ("'a'.b", "", ""),
        ("1", "", ""),
    ],
)
def test_a_chain_is_read_from_its_root(code: str, whole: str, root: str) -> None:
    node = ast.parse(code, mode="eval").body
    assert (dotted(node), root_of(node)) == (whole, root)
