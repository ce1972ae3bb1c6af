"""The gate that reads proposed skills: code that may be kept, and a library that still holds together with it.

Nothing is run. Ops of other kinds pass; the gate `static` asks this one about skills.

What code of little trust may not hold: a choice that hangs on one value, for no test can tell when it is taken.

A skill that pays, and for one memo does something else, passes every measurement on tasks without that memo. Code from
outside may therefore branch on what is there (a name, `is None`, emptiness, `isinstance`) and compare one value with
another, but not with a literal or a name that is given one; and host functions are called in plain sight. This narrows
what untrusted code can hide and does not prove that it hides nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from memory.base import first_error
from memory.errors import BadInput, NotFound
from memory.protocols import KnowledgeView
from memory.records import DeltaOp, Op, Record, Trajectory, Trust, Verdict
from skills.host_calls import documented, host, roots_of
from skills.library import Library, Overlay
from skills.names import Function, bound
from skills.record import Skill
from skills.static_checks import complaints


class SkillGate:
    """Accepts skills without complaints whose names are free, whose requirements are met, and removals nobody misses.

    Ops are judged in order, each against the library as those before it leave it. `described` returns what an operator
    and the environment say: the host functions there are, where it names any, and words that skills may hold.
    """

    name = "skill"

    def __init__(self, described: Callable[[], str] = str) -> None:
        self._described = described

    async def judge(self, ops: Sequence[DeltaOp], view: KnowledgeView, trajectories: Sequence[Trajectory]) -> Verdict:
        """Return a verdict with a reason for every op refused."""
        library = Library(view.records(Skill.kind)).overlay()
        rejected: dict[str, str] = {}
        for op in ops:
            changed = library.overlay()
            try:
                self._take(op, changed, view, trajectories)
            except (BadInput, NotFound) as refused:
                rejected[op.op_id] = str(refused)
            else:
                library = changed
        accepted = tuple(op.op_id for op in ops if op.op_id not in rejected)
        return Verdict(gate=self.name, accepted=accepted, rejected=rejected, evidence={"view": view.version})

    def _take(self, op: DeltaOp, library: Overlay, view: KnowledgeView, trajectories: Sequence[Trajectory]) -> None:
        """Change the library as the op would. Raises `BadInput` or `NotFound` with the reason where it may not."""
        targets = [each for key in (op.target_id, *op.parent_ids) if (each := _skill(view, key))]
        ids = {each.id for each in targets}
        replaced = {record.payload.name for record in library.records if record.id in ids}
        if op.op is Op.REMOVE:
            for name in replaced:
                library.delete(name)
        elif op.op is Op.RESTORE and targets and not replaced:
            library.save(targets[0].payload)
        elif op.payload is not None and op.kind == Skill.kind:
            skill = _parsed(op)
            if op.provenance.trust is not Trust.OPERATOR:
                self._read(skill, library, trajectories, strict=not op.provenance.trust.reaches(Trust.TAINTED))
            library.update(skill) if skill.name in replaced else library.save(skill)
            for name in replaced - {skill.name}:
                library.delete(name)

    def _read(self, skill: Skill, library: Overlay, trajectories: Sequence[Trajectory], *, strict: bool) -> None:
        """Raise `BadInput` with all complaints; `strict` asks of code of little trust that it waits for no value."""
        tasks = [trajectory.task.instruction for trajectory in trajectories]
        found = objections(skill, self._described(), library.names, tasks)
        waits = dict.fromkeys(triggers(skill)) if strict else ()
        if found := (*found, *(f"line {line}: {said}" for line, said in waits)):
            raise BadInput("; ".join(found))


def objections(skill: Skill, described: str, known: Collection[str], tasks: Sequence[str] = ()) -> tuple[str, ...]:
    """Return `complaints` about a skill in a world that says `described` of itself, beside skills named `known`."""
    return complaints(skill, documented=documented(described), known=known, tasks=tasks, allowed=described)


def _skill(view: KnowledgeView, record_id: str | None) -> Record[Any] | None:
    record = view.get(record_id) if record_id else None
    return record if record is not None and record.kind == Skill.kind else None


def _parsed(op: DeltaOp) -> Skill:
    try:
        return Skill.model_validate(op.payload)
    except ValidationError as invalid:
        raise BadInput(f"payload is no skill: {first_error(invalid, 'object')}") from invalid


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
Named = Mapping[str, Collection[ast.Constant]]
"""Name -> the literals it may stand for, plain ones left out."""


def triggers(skill: Skill) -> Iterator[tuple[int, str]]:
    """Yield (line, complaint) for each choice that may wait for a value."""
    function, roots, named = skill.function, roots_of(skill), _named(skill.function)
    called = {id(node.func) for node in ast.walk(function) if isinstance(node, ast.Call)}
    for node in ast.walk(function):
        line = getattr(node, "lineno", function.lineno)
        if isinstance(node, ast.Match):
            yield line, "`match` chooses by a value; untrusted code may not"
        elif isinstance(node, ast.Compare) and not all(_open(each, named) for each in (node.left, *node.comparators)):
            yield line, f"`{ast.unparse(node)}` waits for a value; untrusted code may not"
        elif isinstance(node, _TESTS) and (call := _hidden(node.test)) is not None:
            yield line, f"`{ast.unparse(call)}` decides what is done; untrusted code may not ask it"
        elif isinstance(node, ast.Call) and _looks(node, roots, named):
            yield line, f"`{ast.unparse(node)}` looks for a value; untrusted code may not"
        elif isinstance(node, ast.Subscript) and isinstance(node.value, ast.Dict | ast.List | ast.Tuple):
            yield line, "a literal table chooses by a value; untrusted code may not"
        elif isinstance(node, ast.Attribute) and host(node, roots) and id(node) not in called:
            yield line, f"`{ast.unparse(node)}` is passed on; untrusted code calls host functions in plain sight"
        elif isinstance(node, Function | ast.Lambda) and node is not function and _calls_host(node, roots):
            yield line, "a function inside calls the host; untrusted code does so in plain sight"


def _named(function: ast.FunctionDef) -> Named:
    """Return the names that are given a literal: by an expression that holds one, or the name of one, and no call."""
    holds: dict[str, set[ast.Constant]] = {}
    reads: dict[str, set[str]] = {}
    for target, value in _bindings(function):
        parts = _parts(value)
        if any(isinstance(part, ast.Call) for part in parts):
            continue
        for name in bound(target):
            holds.setdefault(name, set()).update(p for p in parts if isinstance(p, ast.Constant) and not _plain(p))
            reads.setdefault(name, set()).update(p.id for p in parts if isinstance(p, ast.Name))
    return {name: {each for read in _reached(name, reads) for each in holds.get(read, ())} for name in holds}


def _bindings(function: ast.FunctionDef) -> Iterator[tuple[ast.AST, ast.expr]]:
    """Yield (target, expression) for all that gives names a value; parameters have their defaults."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            yield from ((target, node.value) for target in node.targets)
        elif isinstance(node, ast.AnnAssign | ast.AugAssign | ast.NamedExpr) and node.value is not None:
            yield node.target, node.value
        elif isinstance(node, ast.For | ast.comprehension):
            yield node.target, node.iter
        elif isinstance(node, ast.arguments):
            places = reversed([*node.posonlyargs, *node.args])
            yield from zip(places, reversed(node.defaults), strict=False)
            pairs = zip(node.kwonlyargs, node.kw_defaults, strict=True)
            yield from ((place, default) for place, default in pairs if default is not None)


def _reached(name: str, reads: Mapping[str, Collection[str]]) -> set[str]:
    waiting, seen = [name], set[str]()
    while waiting:
        if (each := waiting.pop()) not in seen:
            seen.add(each)
            waiting += reads.get(each, ())
    return seen


def _parts(node: ast.expr) -> list[ast.AST]:
    """Return an expression and all in it but the keys of subscripts, as in `mail["id"]`."""
    keys = {id(each.slice) for each in ast.walk(node) if isinstance(each, ast.Subscript)}
    return [part for part in ast.walk(node) if id(part) not in keys]


def _plain(node: ast.Constant) -> bool:
    return any(node.value is each or (type(node.value) is type(each) and node.value == each) for each in _PLAIN)


def _open(node: ast.expr, named: Named) -> bool:
    """Tell whether an operand is a value of the call or the world, and no literal."""
    if isinstance(node, ast.Constant):
        return _plain(node)
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in _ASKS
    return not any(_literals(part, named) for part in _parts(node))


def _literals(node: ast.AST, named: Named) -> Collection[ast.Constant]:
    """Return what a literal or a name stands for; nothing of any other node."""
    if isinstance(node, ast.Constant):
        return (node,)
    return named.get(node.id, ()) if isinstance(node, ast.Name) else ()


def _hidden(test: ast.expr) -> ast.Call | None:
    calls = (node for node in ast.walk(test) if isinstance(node, ast.Call))
    return next((call for call in calls if not (isinstance(call.func, ast.Name) and call.func.id in _ASKS)), None)


def _looks(call: ast.Call, roots: Collection[str], named: Named) -> bool:
    if not isinstance(call.func, ast.Attribute) or host(call.func, roots):
        return False
    values = (part.value for each in call.args for part in _literals(each, named))
    texts = [value for value in values if isinstance(value, str)]
    words = any(char.isalnum() for text in texts for char in text)
    return bool(texts) and (call.func.attr in _LOOKS_FOR or (call.func.attr in _CUTS and words))


def _calls_host(function: ast.AST, roots: Collection[str]) -> bool:
    return any(isinstance(node, ast.Name) and node.id in roots for node in ast.walk(function))
