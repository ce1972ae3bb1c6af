"""Skills that do the same: proposes to keep the one with the better evidence. Pure; the store applies.

Two skills are the same when their code is, but for the names of the function and its local names, docstrings, comments
and layout. They are near when they call the same functions equally deep in loops and branches, hold the same literals
and their code differs in few tokens: two skills that differ in one value do not do the same.
"""

from __future__ import annotations

import ast
import copy
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from difflib import SequenceMatcher
from functools import cached_property
from typing import Any

from memory.operations import op_id
from memory.records import DeltaOp, Op, Record, Status
from memory.utility import Utility
from skills.host_calls import host, roots_of
from skills.library import Library
from skills.names import Function, Import, bound, imported
from skills.record import Skill
from skills.skill_retirement import removed

THRESHOLD = 0.9
"""Share of equal tokens from which two skills are near."""
AUTHOR = "merge"
_TOKEN = re.compile(r"^ +|\w+|[^\w\s]", re.MULTILINE)


def duplicates(records: Sequence[Record[Any]], threshold: float = THRESHOLD) -> tuple[DeltaOp, ...]:
    """Return ops after which no two skills in use are the same, or as near as `threshold` in [0, 1].

    Same skills become one with the evidence of all (MERGE), near ones leave the best (REMOVE). Kept is what is pinned
    or required, then what is active, then what has the higher lower bound of utility, then the older one. A skill that
    is pinned, or that another one requires, is never the one that goes.
    """
    library = Library(records)
    waiting = sorted(library.records, key=lambda record: _worth(record, library))
    required = {name for record in library.records for name in record.payload.requires}
    shapes = {record.id: _Shape(record.payload) for record in waiting}
    ops: list[DeltaOp] = []
    while waiting:
        best, *others = waiting
        free = [each for each in others if not each.pinned and each.payload.name not in required]
        alike = {each.id: _alike(shapes[best.id], shapes[each.id]) for each in free}
        near = [each for each in free if alike[each.id] >= threshold]
        if same := [each for each in near if alike[each.id] == 1.0]:
            ops.append(_merge(best, same))
        reason = f"does nearly the same as {best.label}: {best.payload.name}"
        ops += [removed(each, AUTHOR, reason) for each in near if each not in same]
        waiting = [each for each in others if each not in near]
    return tuple(ops)


def similarity(first: Skill, second: Skill) -> float:
    """Return how much of two skills' code is equal, in [0, 1]; 1 = the same, 0 = other calls or other literals."""
    return _alike(_Shape(first), _Shape(second))


class _Shape:
    """What of a skill's code is compared, computed once."""

    def __init__(self, skill: Skill) -> None:
        self._skill, self.traits = skill, _traits(skill)

    @cached_property
    def tokens(self) -> list[str]:
        """Its tokens, which few comparisons need: most skills differ in their traits."""
        return _TOKEN.findall(normalised(self._skill))


def _alike(first: _Shape, second: _Shape) -> float:
    if first.traits != second.traits:
        return 0.0
    return SequenceMatcher(None, first.tokens, second.tokens, autojunk=False).ratio()


def normalised(skill: Skill) -> str:
    """Return the skill's code with its own and its local names numbered, without docstrings, comments and layout."""
    tree = copy.deepcopy(skill.function)
    imports = (node for node in ast.walk(tree) if isinstance(node, Import))
    fixed = {name for node in imports for name, _ in imported(node)}
    tree = _Numbered(set(bound(tree)) - fixed).visit(tree)
    return "\n".join([*sorted(map(ast.unparse, skill.imports)), ast.unparse(tree)])


class _Numbered(ast.NodeTransformer):
    """Gives each of `names` a number in order of appearance, and drops docstrings."""

    def __init__(self, names: set[str]) -> None:
        self._names = names
        self._numbers: dict[str, str] = {}

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, Function) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
        for field in ("id", "arg", "name", "rest"):
            name = getattr(node, field, None)
            if isinstance(name, str) and name in self._names and not isinstance(node, ast.keyword | ast.alias):
                setattr(node, field, self._numbers.setdefault(name, f"v{len(self._numbers)}"))
        return self.generic_visit(node)


def _traits(skill: Skill) -> tuple[object, ...]:
    docs = {id(node.value) for node in ast.walk(skill.function) if isinstance(node, ast.Expr)}
    literals = (node for node in ast.walk(skill.function) if isinstance(node, ast.Constant) and id(node) not in docs)
    return (
        Counter(_calls(skill.function, {*roots_of(skill), *skill.requires})),
        set(skill.requires),
        Counter(repr(node.value) for node in literals),
    )


def _calls(node: ast.AST, roots: Collection[str], depth: int = 0) -> Iterator[tuple[str, int]]:
    """Yield (function of the world or skill, how many statements it stands in) for each call."""
    if isinstance(node, ast.Call) and (name := host(node.func, roots)):
        yield name, depth
    for child in ast.iter_child_nodes(node):
        yield from _calls(child, roots, depth + isinstance(node, ast.stmt))


def _worth(record: Record[Skill], library: Library) -> tuple[bool, bool, bool, float, int, str]:
    usage = record.usage
    lower = Utility(helpful=usage.helpful, harmful=usage.harmful).lower
    required = bool(library.required_by(record.payload.name))
    return not record.pinned, not required, record.status is not Status.ACTIVE, -lower, record.number, record.id


def _merge(best: Record[Skill], same: Sequence[Record[Skill]]) -> DeltaOp:
    parents = [best, *same]
    return DeltaOp(
        op=Op.MERGE,
        op_id=op_id("merge", *sorted(f"{record.id}@{record.version}" for record in parents)),
        kind=best.kind,
        parent_ids=tuple(record.id for record in parents),
        parent_versions=tuple(record.version for record in parents),
        payload=best.payload.model_dump(mode="json"),
        status=best.status,
        pinned=best.pinned,
        provenance=best.provenance.model_copy(update={"author": AUTHOR}),
        reason=f"the same code as {', '.join(f'{each.label}: {each.payload.name}' for each in same)}",
    )
