"""Static checks of a skill: its code is read, nothing is run.

The rules are those of the systems that keep code (ASI, arXiv 2504.06821: no try/except, no instance constants;
SkillWeaver, arXiv 2504.07079: docstring, no `while`; SAGE, arXiv 2512.17102: typed signature), made as narrow as their
reasons: an error may be handled but not swallowed, a loop must be able to end. The sandbox is what keeps code in; these
rules keep out what would be of no use, or would hide what it does.

Instance constants: what a skill holds of the one task it was made from, and what must be a parameter instead.

An id, an address, a name, a number or a quotation that stands in the task's text and again in the code makes the code
a recording of that task (ASI, arXiv 2504.06821, forbids them). Common words, which any task may share, are left alone.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from types import ModuleType

from skills.host_calls import APPS
from skills.names import Function, Import, bound, dotted, free, imported, root_of
from skills.record import Skill

MODULES = frozenset({"datetime", "json", "math", "re", "typing"})
"""What a skill may import."""
# fmt: off
BUILTINS = frozenset({
    "abs", "all", "any", "bool", "chr", "dict", "divmod", "enumerate", "filter", "float", "frozenset", "int",
    "isinstance", "iter", "len", "list", "map", "max", "min", "next", "object", "ord", "pow", "print", "range", "repr",
    "reversed", "round", "set", "slice", "sorted", "str", "sum", "tuple", "zip",
    "ArithmeticError", "AssertionError", "AttributeError", "Exception", "IndexError", "KeyError", "LookupError",
    "NotImplementedError", "RuntimeError", "StopIteration", "TypeError", "ValueError", "ZeroDivisionError",
})
"""Builtins that a skill may use; what reaches into the interpreter (`eval`, `open`, `getattr` ...) is none."""
# fmt: on
_INNER = frozenset(
    name for each in MODULES for name, held in vars(import_module(each)).items() if isinstance(held, ModuleType)
)
"""What those modules hold of other modules: `sys`, `codecs`, `functools`."""
_REACHING = frozenset(
    {"__import__", "compile", "delattr", "eval", "exec", "getattr", "globals", "locals", "setattr", "vars"}
)
"""Builtins that no inner scope may name: what one binds is read as the function's own (`names.free`)."""
_KINDS: dict[type[ast.AST], str] = {
    ast.ClassDef: "a class",
    ast.Global: "`global`",
    ast.Nonlocal: "`nonlocal`",
    ast.AsyncFunctionDef: "an async function",
    ast.Await: "`await`",
    ast.Yield: "`yield`",
    ast.YieldFrom: "`yield`",
}
_ANNOTATION = (
    *(ast.Name, ast.Attribute, ast.Subscript, ast.Constant, ast.Tuple, ast.List),
    *(ast.BinOp, ast.BitOr, ast.Load),
)
_DUNDER = re.compile(r"__\w+__")
_CATCH_ALL = frozenset({"Exception", "BaseException"})
Found = Iterator[tuple[int, str]]


def complaints(
    skill: Skill,
    *,
    documented: Collection[str] = (),
    known: Collection[str] | None = None,
    tasks: Sequence[str] = (),
    allowed: str = "",
) -> tuple[str, ...]:
    """Return what is wrong with a skill, one sentence each with its line, in order of lines; empty = nothing.

    `documented` are the host functions that the world's description shows (`apps.payments.send`, `search`), where it
    shows any, and `known` the names of skills it may require, None = not checked. `tasks` are texts and entities of
    tasks beside its `origin` whose ids, addresses, names and numbers it may not hold; what stands in `allowed` (the
    environment's own description, an operator's words) it may.
    """
    function = skill.function
    roots = frozenset({APPS, *(name.partition(".")[0] for name in documented)})
    found = [
        *_signature(function),
        *_forbidden(skill),
        *_imports(skill, roots),
        *_inner_modules(skill, roots),
        *_loops(function),
        *_swallowed(function, roots | set(skill.requires)),
        *_names(skill, known, roots),
        *_host_calls(function, documented),
        *instance_constants(function, (skill.origin, *tasks), allowed),
    ]
    return tuple(f"line {line}: {said}" for line, said in dict.fromkeys(sorted(found, key=lambda each: each[0])))


def _signature(function: ast.FunctionDef) -> Found:
    args = function.args
    line = function.lineno
    for star in filter(None, (args.vararg, args.kwarg)):
        yield line, f"parameter {star.arg!r} takes anything; name each parameter"
    for arg in (*args.posonlyargs, *args.args, *args.kwonlyargs):
        if arg.annotation is None:
            yield arg.lineno, f"parameter {arg.arg!r} has no type; annotate it"
    if function.returns is None:
        yield line, "the function does not say what it returns; annotate it with `-> type`"
    if not ast.get_docstring(function):
        yield line, "the function has no docstring; say what it does and when to use it"
    for default in (*args.defaults, *filter(None, args.kw_defaults)):
        if not _is_constant(default):
            yield default.lineno, f"default `{ast.unparse(default)}` is computed when it is defined; use a constant"
    notes = [each.annotation for each in ast.walk(args) if isinstance(each, ast.arg)]
    for note in filter(None, (*notes, function.returns)):
        if not all(isinstance(node, _ANNOTATION) for node in ast.walk(note)):
            yield note.lineno, f"annotation `{ast.unparse(note)}` is no plain type"


def _is_constant(node: ast.expr) -> bool:
    value = node.operand if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) else node
    return isinstance(value, ast.Constant)


def _forbidden(skill: Skill) -> Found:
    for line, text in enumerate(skill.source.split("\n"), 1):
        if hidden := next((char for char in text if not char.isprintable() and char not in "\t\r"), None):
            yield line, f"the source holds an invisible character (U+{ord(hidden):04X}); write it without"
    for node in (each for each in ast.walk(skill.function) if isinstance(each, ast.stmt | ast.expr | ast.pattern)):
        line = node.lineno
        if kind := _KINDS.get(type(node)):
            yield line, f"a skill has no {kind.removeprefix('a ').removeprefix('an ')}; write a plain function"
        elif isinstance(node, Function) and node.decorator_list:
            yield line, f"function {node.name!r} is decorated; write it plainly"
        elif isinstance(node, ast.Attribute) and _DUNDER.fullmatch(node.attr):
            yield line, f"attribute {node.attr!r} reaches into the interpreter"
        elif isinstance(node, ast.MatchClass):
            for name in filter(_DUNDER.fullmatch, node.kwd_attrs):
                yield line, f"attribute {name!r} reaches into the interpreter"
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _DUNDER.search(node.value):
            yield line, f"a text names {_DUNDER.findall(node.value)[0]!r}, which reaches into the interpreter"


def _imports(skill: Skill, roots: frozenset[str]) -> Found:
    for node in (each for each in ast.walk(skill.function) if isinstance(each, Import)):
        yield from _foreign(node)
    for node in skill.imports:
        yield from _foreign(node)
        for name, means in imported(node):
            if name != means and not means.startswith("typing."):
                yield node.lineno, f"`{ast.unparse(node)}` may clash with other skills; import {means!r} by its module"
    taken = {*roots, *MODULES, *BUILTINS}
    if skill.name in taken or skill.name.startswith("_"):
        yield skill.function.lineno, f"the name {skill.name!r} is taken or private; choose another"
    for name in sorted((roots | _REACHING) & set(bound(skill.function)) - {skill.name}):
        yield skill.function.lineno, f"{name!r} is given another meaning; choose another name"


def _foreign(node: Import) -> Found:
    modules = [node.module or "."] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
    for module in modules:
        if module not in MODULES:
            yield node.lineno, f"import of {module!r} is not allowed; allowed are {', '.join(sorted(MODULES))}"


def _inner_modules(skill: Skill, roots: frozenset[str]) -> Found:
    """Find the ways from a module that may be imported to one that it imports itself: `typing.sys`."""
    nodes = [*ast.walk(skill.function), *skill.imports]
    reached = ((node, node.attr) for node in nodes if isinstance(node, ast.Attribute) and root_of(node) not in roots)
    brought = ((node, alias.name) for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names)
    for node, name in (*reached, *brought):
        if name in _INNER:
            yield node.lineno, f"{name!r} is a module that another one imports, and reaches into the interpreter"


def _loops(function: ast.FunctionDef) -> Found:
    for node in (each for each in ast.walk(function) if isinstance(each, ast.While)):
        endless = isinstance(node.test, ast.Constant) and node.test.value
        if endless and not any(_leaves(each, in_loop=False) for each in node.body):
            yield node.lineno, "a `while True` without `break` never ends; give it a condition"


def _leaves(node: ast.AST, *, in_loop: bool) -> bool:
    """Tell whether a statement can leave the loop around it."""
    if isinstance(node, ast.Return | ast.Raise):
        return True
    if isinstance(node, ast.Break):
        return not in_loop
    if isinstance(node, Function | ast.Lambda):
        return False
    inside = in_loop or isinstance(node, ast.For | ast.While)
    return any(_leaves(child, in_loop=inside) for child in ast.iter_child_nodes(node))


def _swallowed(function: ast.FunctionDef, hosts: frozenset[str]) -> Found:
    """Complain about handlers after which nobody knows that a call failed: honest use is counted by errors."""
    for node in (each for each in ast.walk(function) if isinstance(each, ast.Try | ast.TryStar)):
        for handler in node.handlers:
            if not _holds(handler.body, lambda each: isinstance(each, ast.Raise)) and (
                _catches_all(handler)
                or all(isinstance(each, ast.Pass | ast.Continue) or _is_text(each) for each in handler.body)
                or (_reaches(node.body, hosts) and not _reaches(handler.body, hosts))
            ):
                yield handler.lineno, "the `except` swallows errors; let them through, or name one and do something"
        if _holds(node.finalbody, lambda each: isinstance(each, ast.Return | ast.Break | ast.Continue)):
            yield node.finalbody[0].lineno, "leaving a `finally` swallows errors; leave after it"


def _catches_all(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    return any(isinstance(each, ast.Name) and each.id in _CATCH_ALL for each in ast.walk(handler.type))


def _holds(body: Sequence[ast.stmt], wanted: Callable[[ast.AST], bool]) -> bool:
    return any(wanted(node) for statement in body for node in ast.walk(statement))


def _reaches(body: Sequence[ast.stmt], hosts: frozenset[str]) -> bool:
    return _holds(body, lambda node: isinstance(node, ast.Call) and root_of(node.func) in hosts)


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _names(skill: Skill, known: Collection[str] | None, roots: frozenset[str]) -> Found:
    brought = {name for node in skill.imports for name, _ in imported(node)}
    usable = {*roots, *BUILTINS, *brought, *skill.requires}
    reads = free(skill.function)
    for name, line in reads.items():
        if name not in usable:
            near = get_close_matches(name, [*usable, *(known or ())])
            hint = f"; did you mean {near[0]!r}?" if near else "; pass it in, or require the skill of that name"
            yield line, f"{name!r} is neither a parameter, a local name, an allowed builtin nor a required skill{hint}"
    for name in skill.requires:
        if name not in reads:
            yield skill.function.lineno, f"it requires {name!r} and never calls it"
        elif known is not None and name not in known:
            yield reads[name], f"it requires {name!r}, which is no skill in use"


def _host_calls(function: ast.FunctionDef, documented: Collection[str]) -> Found:
    apps = {name.partition(".")[2] for name in documented if name.startswith(f"{APPS}.")}
    whole = {
        id(node.value.value): node
        for node in ast.walk(function)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute)
    }
    for node in (each for each in ast.walk(function) if isinstance(each, ast.Name) and each.id == APPS):
        call = whole.get(id(node))
        if call is None:
            yield node.lineno, f"`{APPS}` is used otherwise than as `{APPS}.<app>.<function>(...)`"
            continue
        name = dotted(call).partition(".")[2]
        if apps and name not in apps:
            near = get_close_matches(name, apps)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            yield node.lineno, f"there is no function {APPS}.{name}{hint}"


_ENTITY = re.compile(
    r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+"  # address
    r"|[\w./-]*\d[\w./-]*"  # id, date, number, file name
    r"|\w+\.[a-z]{2,4}\b"  # file name
)
_QUOTED = re.compile(r"\"([^\"\n]{2,})\"|(?<!\w)'([^'\n]{2,})'(?!\w)|[“„«]([^”“»\n]{2,})[”“»]")
_WORD = re.compile(r"[^\W\d_]{2,}")
_NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?!\w)")
_FREE = frozenset({0, 1, 2})
"""Numbers that say nothing of a task."""
_CENTS = 100
"""A price may stand in the code in cents."""
_FACTORS = frozenset({7, 10, 12, 24, 60, 100, 1000, 3600})
"""Factors that change a unit, as in `amount * 100`."""


@dataclass(frozen=True)
class _Said:
    """What one text says that is particular."""

    inside: frozenset[str]
    """May not stand in a literal as a word."""
    whole: frozenset[str]
    """May not be a literal: words at the start of a sentence, which may be names."""
    numbers: frozenset[float]


def instance_constants(function: ast.FunctionDef, texts: Sequence[str], allowed: str) -> Iterator[tuple[int, str]]:
    """Yield (line, complaint) for each literal copied from one of `texts`, unless it stands in `allowed`."""
    said = [_read(text) for text in texts if text]
    for node in _literals(function):
        copied = next(filter(None, (_copied(node.value, each) for each in said)), "")
        if copied and not _has(allowed, copied):
            yield node.lineno, f"{copied!r} comes from the task it was made from; make it a parameter"


def _read(text: str) -> _Said:
    names = [found for found in _WORD.finditer(text) if found[0][0].isupper()]
    started = {found[0] for found in names if re.search(r"(?:^|[.!?:;\n])\s*$", text[: found.start()])}
    inside = {found[0] for found in names} - started
    inside |= {word.strip("./-") for word in _ENTITY.findall(text)} | {"".join(each) for each in _QUOTED.findall(text)}
    numbers = {float(each.replace(",", "")) for each in _NUMBER.findall(text)} - _FREE
    cents = {round(each * _CENTS, 6) for each in numbers}
    return _Said(frozenset(each for each in inside if len(each) > 1), frozenset(started), frozenset(numbers | cents))


def _literals(function: ast.FunctionDef) -> Iterator[ast.Constant]:
    """Yield the function's literals; docstrings, and factors that change a unit (`amount * 100`), are none."""
    apart = {id(part) for node in ast.walk(function) for part in _not_literal(node)}
    for node in ast.walk(function):
        if isinstance(node, ast.Constant) and id(node) not in apart and not isinstance(node.value, bool):
            yield node


def _not_literal(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        yield node.value
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Div | ast.FloorDiv | ast.Mod):
        yield from (
            each for each in (node.left, node.right) if isinstance(each, ast.Constant) and each.value in _FACTORS
        )


def _copied(value: object, said: _Said) -> str:
    """Return what a literal copies, or an empty text."""
    if isinstance(value, int | float):
        return str(value) if abs(value) in said.numbers else ""
    if not isinstance(value, str):
        return ""
    found = [each for each in said.inside if _has(value, each)]
    return max(found, key=lambda each: (len(each), each), default=value if value.strip() in said.whole else "")


def _has(text: str, part: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(part)}(?!\w)", text) is not None
