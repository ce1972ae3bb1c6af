"""Code coverage of a skill: its code with a mark at each place, so that a trial says what it exercised.

A place is a statement, an arm of a choice, an operand, an element of a comprehension, a handler, the body of a function
inside, a call that may act, and the other side of an `if` without `else`. A skill that helps in every trial and does
something else on one word has a place that no trial reached. Not a place: what ends in `raise` (the agent sees it), an
arm that is a plain nothing (`x or ""`), and the parts of a condition that only reads, since both sides of the choice
are places themselves. A loop that ran for nothing, and a value that was computed, are not seen here.

Nothing is run here: the marked source goes into the sandbox as the skill itself does, and prints each mark once.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from skills.host_calls import host, roots_of
from skills.record import Skill
from skills.static_checks import BUILTINS

_PURE = BUILTINS - {"iter", "next", "print"}
_PURE_METHODS = frozenset(
    {"count", "endswith", "find", "format", "get", "index", "isalnum", "isalpha", "isdigit", "items", "join", "keys"}
) | {"lower", "lstrip", "replace", "rstrip", "split", "splitlines", "startswith", "strip", "title", "upper", "values"}
_SHORT = 60
_HELPERS = """
_seen_{tag} = []
_print_{tag} = print
def _at_{tag}(n):
    if n not in _seen_{tag}:
        _seen_{tag}.append(n)
        _print_{tag}("{tag}:" + str(n) + ";")
def _got_{tag}(n, value):
    _at_{tag}(n)
    return value
def _no_{tag}(n, value):
    if not value:
        _at_{tag}(n)
    return value
def _yes_{tag}(n, value):
    if value:
        _at_{tag}(n)
    return value
"""


@dataclass(frozen=True)
class Place:
    """A part of a skill's code that a trial should reach."""

    line: int
    what: str
    reachable: bool = True
    """False for what cannot be marked: a host function that is passed on instead of called."""

    def __str__(self) -> str:
        return f"line {self.line}: {self.what}"


def marked(skill: Skill, tag: str) -> tuple[str, tuple[Place, ...]]:
    """Return the definition of a skill that prints `tag` with the number of each place it reaches, and the places."""
    (function,) = ast.parse(skill.definition).body
    assert isinstance(function, ast.FunctionDef)
    marker = _Marker(tag, roots_of(skill))
    function.body = marker.block(function.body)
    source = ast.unparse(ast.fix_missing_locations(function))
    return f"{_HELPERS.format(tag=tag)}{source}", tuple(marker.places)


def reached(printed: str, tag: str) -> frozenset[int]:
    """Return the numbers of the places whose marks stand in what a trial printed."""
    return frozenset(int(number) for number in re.findall(rf"{re.escape(tag)}:(\d+);", printed))


class _Marker(ast.NodeTransformer):
    """Puts marks into a tree in place."""

    def __init__(self, tag: str, roots: frozenset[str]) -> None:
        self.places: list[Place] = []
        self._tag, self._roots = tag, roots

    def block(self, body: Sequence[ast.stmt]) -> list[ast.stmt]:
        """Return statements, a mark before each; those of a block that ends in `raise` and acts on nothing as is."""
        if isinstance(body[-1], ast.Raise) and not any(map(self._acts, body)):
            return list(body)
        found: list[ast.stmt] = []
        for statement in body:
            if not _says_nothing(statement):
                found.append(self._mark(statement, f"`{_first_line(statement)}`"))
            found.append(self.visit(statement))
        return found

    def visit_If(self, node: ast.If) -> ast.If:
        said = f"the other side of `if {_text(node.test)}`"
        node.orelse = self.block(node.orelse) if node.orelse else [self._mark(node, said)]
        return self._branch(node)

    def visit_While(self, node: ast.While) -> ast.While:
        if not isinstance(node.test, ast.Constant):
            said = f"the end of `while {_text(node.test)}`"
            node.orelse = [self._mark(node, said), *(self.block(node.orelse) if node.orelse else [])]
        return self._branch(node)

    def _branch(self, node: Any) -> Any:
        node.body = self.block(node.body)
        node.test = self._condition(node.test)
        return node

    def visit_For(self, node: ast.For) -> ast.For:
        node.iter = self.visit(node.iter)
        node.body = self.block(node.body)
        node.orelse = self.block(node.orelse) if node.orelse else []
        return node

    def visit_With(self, node: ast.With) -> ast.With:
        node.items = [self.visit(item) for item in node.items]
        node.body = self.block(node.body)
        return node

    def visit_Try(self, node: ast.Try) -> ast.Try:
        node.body = self.block(node.body)
        for handler in node.handlers:
            handler.body = self.block(handler.body)
        node.orelse = self.block(node.orelse) if node.orelse else []
        node.finalbody = self.block(node.finalbody) if node.finalbody else []
        return node

    def visit_Match(self, node: ast.Match) -> ast.Match:
        node.subject = self.visit(node.subject)
        for case in node.cases:
            case.guard = self._condition(case.guard) if case.guard else None
            case.body = self.block(case.body)
        last = node.cases[-1]
        if last.guard or not (isinstance(last.pattern, ast.MatchAs) and last.pattern.pattern is None):
            said = f"no case of `match {_text(node.subject)}`"
            node.cases.append(ast.match_case(ast.MatchAs(), None, [self._mark(node, said)]))
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        node.body = self.block(node.body)
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.Lambda:
        node.body = self._arm(node.body)
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.IfExp:
        node.body, node.orelse = self._arm(node.body), self._arm(node.orelse)
        node.test = self._condition(node.test)
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.BoolOp:
        ends = "_no" if isinstance(node.op, ast.And) else "_yes"
        *rest, last = node.values
        operands: list[ast.expr] = []
        for at, value in enumerate(rest):
            said = f"`{_text(node)}` ending at `{_text(value)}`"
            operand = self._arm(value) if at else self.visit(value)
            operands.append(self._call(ends, value, said, operand))
        node.values = [*operands, self._arm(last)]
        return node

    def visit_ListComp(self, node: ast.ListComp) -> ast.ListComp:
        return self._collect(node)

    def visit_SetComp(self, node: ast.SetComp) -> ast.SetComp:
        return self._collect(node)

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> ast.GeneratorExp:
        return self._collect(node)

    def visit_DictComp(self, node: ast.DictComp) -> ast.DictComp:
        node.key, node.value = self.visit(node.key), self._arm(node.value)
        self._generators(node.generators)
        return node

    def _collect(self, node: Any) -> Any:
        node.elt = self._arm(node.elt)
        self._generators(node.generators)
        return node

    def _generators(self, generators: Sequence[ast.comprehension]) -> None:
        for each in generators:
            each.iter = self.visit(each.iter)
            each.ifs = [self._condition(test) for test in each.ifs]

    def visit_Call(self, node: ast.Call) -> ast.Call:
        node.args = [self.visit(each) for each in node.args]
        node.keywords = [self.visit(each) for each in node.keywords]
        if not host(node.func, self._roots):
            node.func = self.visit(node.func)
        return self._call("_got", node, f"`{_text(node)}`", node) if self._may_act(node) else node

    def visit_Attribute(self, node: ast.Attribute) -> ast.Attribute:
        if host(node, self._roots):
            said = f"`{ast.unparse(node)}` is passed on; a call of it in plain sight could be tried"
            self.places.append(Place(node.lineno, said, reachable=False))
            return node
        node.value = self.visit(node.value)
        return node

    def _acts(self, node: ast.AST) -> bool:
        """Tell whether code may do more than read: it calls something unknown, names a host or binds a name."""
        return any(
            isinstance(each, ast.NamedExpr | ast.Lambda)
            or (isinstance(each, ast.Call) and self._may_act(each))
            or (isinstance(each, ast.Name) and each.id in self._roots)
            for each in ast.walk(node)
        )

    def _may_act(self, call: ast.Call) -> bool:
        if isinstance(call.func, ast.Attribute):
            return bool(host(call.func, self._roots)) or call.func.attr not in _PURE_METHODS
        return not (isinstance(call.func, ast.Name) and call.func.id in _PURE)

    def _condition(self, test: ast.expr) -> ast.expr:
        """Return a condition; one that only reads decides between sides that have marks, and needs none."""
        return self.visit(test) if self._acts(test) else test

    def _arm(self, node: ast.expr) -> ast.expr:
        if _is_nothing(node):
            return node
        number = self._place(node, f"`{_text(node)}`")
        return ast.BoolOp(ast.Or(), [self._named("_at", number), self.visit(node)])

    def _mark(self, node: ast.stmt, what: str) -> ast.stmt:
        return ast.Expr(self._named("_at", self._place(node, what)))

    def _call(self, helper: str, node: ast.expr, what: str, value: ast.expr) -> ast.Call:
        return self._named(helper, self._place(node, what), value)

    def _named(self, helper: str, number: int, *values: ast.expr) -> ast.Call:
        return ast.Call(ast.Name(f"{helper}_{self._tag}", ast.Load()), [ast.Constant(number), *values], [])

    def _place(self, node: ast.expr | ast.stmt, what: str) -> int:
        self.places.append(Place(node.lineno, what))
        return len(self.places) - 1


def _says_nothing(statement: ast.stmt) -> bool:
    """Tell whether a statement is a docstring, `pass` or an import."""
    said = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return said or isinstance(statement, ast.Pass | ast.Import | ast.ImportFrom)


def _is_nothing(node: ast.expr) -> bool:
    """Tell whether an arm is a plain nothing: `None`, `""`, 0, `[]`."""
    if isinstance(node, ast.Constant):
        return not node.value
    return (isinstance(node, ast.List | ast.Tuple) and not node.elts) or (isinstance(node, ast.Dict) and not node.keys)


def _first_line(statement: ast.stmt) -> str:
    return ast.unparse(statement).split("\n", 1)[0][:_SHORT]


def _text(node: ast.expr) -> str:
    text = ast.unparse(node)
    return text if len(text) <= _SHORT else f"{text[:_SHORT]}..."
