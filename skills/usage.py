"""Honest use of skills in an episode: what ran was the stored function, and the step that called it did not fail.

SAGE (arXiv 2512.17102) counts a use when stored names are called, so that a function of the same name earns the credit
of a skill it replaced. Here a use counts when everything the skill's code means is as stored: its own bytes, those of
the skills it requires, its imports, and `apps` and builtins as they came.

Read off the code of the actions, so approximated: a call counts as made though it may stand in a branch not taken, and
a skill called under another name (`f = pay; f(1)`, `map(pay, xs)`) is missed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from memory.records import Frozen, Record, Step, Trajectory
from skills.host_calls import host, hosts, roots_in, roots_of
from skills.names import Import, called, calls_in, free, imported, parsed, rebound
from skills.record import Skill, body_hash

HOST_CALLS = 2
"""Host calls from which a use can be strict: less is a name for one call."""
_SLIP = re.compile(r"(?:NameError|UnboundLocalError): .*'(\w+)'")


class Use(Frozen):
    """One skill called in one step, however often."""

    name: str
    record_id: str
    version: int
    step: int
    error: str | None = None
    """Why the step failed; None = it returned."""
    host_calls: int = 0
    strict: bool = False
    """It returned, made `HOST_CALLS` host calls or more, and a graded change depends on it."""

    @property
    def ok(self) -> bool:
        """Whether this counts as a use; a failed one speaks against the skill."""
        return self.error is None


def uses(trajectory: Trajectory, shown: Sequence[Record[Skill]]) -> tuple[Use, ...]:
    """Return the uses of the shown skills, failed ones too, in order of steps; one for each skill and step.

    Skills that a called skill requires are not counted for it. The host calls of a use are the distinct places in the
    skill's code, and in that of the shown skills it requires, that call a host function.

    A graded change is taken to depend on a use when the episode succeeded with a check passed (or none made), and the
    skill calls a host function that no other code of the episode calls, or what it returned goes into a host call or
    another skill by way of a variable. What the agent read in the output and wrote out again is not recognised.
    """
    skills = {record.payload.name: record for record in shown}
    scope = _Scope({name: record.payload for name, record in skills.items()}, trajectory.prelude)
    found: list[Use] = []
    for step, tree in _code(trajectory):
        ran = scope.run(step.action, tree, failed=step.error is not None)
        for name in (each for each in skills if each in ran):
            if step.error and scope.slipped(name, step.error):
                continue
            found.append(
                Use(
                    name=name,
                    record_id=skills[name].id,
                    version=skills[name].version,
                    step=step.index,
                    error=step.error,
                    host_calls=scope.call_sites(name),
                )
            )
    needed = _needed(trajectory, scope) if found else frozenset[str]()
    return tuple(
        use.model_copy(update={"strict": use.ok and use.host_calls >= HOST_CALLS and use.name in needed})
        for use in found
    )


class _Scope:
    """What the names of an episode mean, statement by statement."""

    def __init__(self, skills: Mapping[str, Skill], prelude: str) -> None:
        self.skills = skills
        self._means: dict[str, str] = {}
        self._calls: dict[str, frozenset[str]] = {}
        self.run(prelude, parsed(prelude) or ast.Module([], []), failed=False)
        self._start = dict(self._means)

    def run(self, code: str, tree: ast.Module, *, failed: bool) -> set[str]:
        """Take in a step and return the skills that it called while they were as stored."""
        ran: set[str] = set()
        for statement in tree.body:
            changed = set(rebound(statement))
            for name in self._reached(called(statement)):
                if name in self.skills and self._intact(name, changed):
                    ran.add(name)
            for name in changed:
                self._means[name] = "something else"
                self._calls.pop(name, None)
            if not failed:
                self._bind(code, statement)
        return ran

    def call_sites(self, name: str) -> int:
        """Return how many places in a skill and the shown ones it requires call a host function."""
        closure = self._reached([name], follow={each: set(skill.requires) for each, skill in self.skills.items()})
        reached = (self.skills[each] for each in closure if each in self.skills)
        return sum(len(list(hosts(skill.function, roots_of(skill)))) for skill in reached)

    def slipped(self, name: str, error: str) -> bool:
        """Tell whether a step failed by a name that the skill and all it requires do not hold: the agent's own slip."""
        said = _SLIP.match(error)
        closure = self._reached([name], follow={each: skill.requires for each, skill in self.skills.items()})
        sources = (self.skills[each].source for each in closure if each in self.skills)
        return said is not None and not any(re.search(rf"\b{said[1]}\b", source) for source in sources)

    def _bind(self, code: str, statement: ast.stmt) -> None:
        if isinstance(statement, Import):
            self._means |= imported(statement)
        elif isinstance(statement, ast.FunctionDef) and not statement.decorator_list:
            self._means[statement.name] = body_hash(ast.get_source_segment(code, statement) or "")
            self._calls[statement.name] = calls_in(statement)

    def _intact(self, name: str, changing: set[str]) -> bool:
        """Tell whether a skill, and all that its code relies on, means what it did when it was stored."""
        waiting, seen = [name], set[str]()
        while waiting:
            each = waiting.pop()
            seen.add(each)
            skill = self.skills.get(each)
            expected = body_hash(skill.definition) if skill else self._start.get(each, "")
            if each in changing or self._means.get(each, "") != expected:
                return False
            if skill:
                brought = {bound: means for node in skill.imports for bound, means in imported(node)}
                if any(self._means.get(bound) != means for bound, means in brought.items()):
                    return False
                waiting += [read for read in free(skill.function) if read not in seen and read not in brought]
        return True

    def _reached(self, names: Iterable[str], follow: Mapping[str, Iterable[str]] | None = None) -> set[str]:
        """Return the names and what is called through them: by default through functions that the agent wrote."""
        follow = follow if follow is not None else {k: v for k, v in self._calls.items() if k not in self.skills}
        waiting, seen = list(names), set[str]()
        while waiting:
            name = waiting.pop()
            if name not in seen:
                seen.add(name)
                waiting += follow.get(name, ())
        return seen


def _code(trajectory: Trajectory) -> Iterator[tuple[Step, ast.Module]]:
    for step in trajectory.steps:
        if not step.tool_calls and (tree := parsed(step.action)) is not None:
            yield step, tree


def _needed(trajectory: Trajectory, scope: _Scope) -> frozenset[str]:
    """Return the skills that a graded change depends on."""
    checks = trajectory.outcome.checks if trajectory.outcome else ()
    if not trajectory.success or (checks and not any(check.passed for check in checks)):
        return frozenset()
    skills = scope.skills
    statements = [
        statement
        for step, tree in _code(trajectory)
        if step.error is None
        for statement in tree.body
        if not (isinstance(statement, ast.FunctionDef) and statement.name in skills)
    ]
    roots = roots_in(statements, skills)
    by_hand = {name for statement in statements for name in hosts(statement, roots)}
    alone = {name for name, skill in skills.items() if set(hosts(skill.function, roots_of(skill))) - by_hand}
    return frozenset(alone | _flowing(statements, skills, roots))


def _flowing(statements: Sequence[ast.stmt], skills: Mapping[str, Any], roots: Collection[str]) -> set[str]:
    """Return the skills whose result is an argument of a host call or of another skill."""
    holds: dict[str, set[str]] = {}
    found: set[str] = set()
    for statement in statements:
        for call in (node for node in ast.walk(statement) if isinstance(node, ast.Call)):
            if host(call.func, roots) or (isinstance(call.func, ast.Name) and call.func.id in skills):
                for arg in (*call.args, *(keyword.value for keyword in call.keywords)):
                    found |= _carried(arg, holds, skills)
        carried = _carried(statement, holds, skills)
        for name in set(rebound(statement)):
            holds[name] = carried
    return found


def _carried(node: ast.AST, holds: Mapping[str, set[str]], skills: Mapping[str, Any]) -> set[str]:
    """Return the skills whose result an expression may hold."""
    names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)}
    return {name for name in called(node) if name in skills} | {
        skill for name in names for skill in holds.get(name, ())
    }
