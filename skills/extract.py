"""The functions that an agent wrote itself and used, as skills (SAGE, arXiv 2512.17102: read off the executed code).

A function becomes a skill when it was defined and called in steps that ran without error, in an episode that succeeded.
What is kept are the source's own bytes. Whether it is fit to be kept is for the gates to say.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence

from memory.records import Trajectory
from skills.names import Import, called, calls_in, free, imported, parsed, rebound
from skills.record import MAX_SOURCE, Skill, function_of


def defined(code: str, imports: str = "") -> tuple[str, ...]:
    """Return the source of each top-level function that `code` defines, in order, each after the imports it uses.

    Imports are taken from `code` and from `imports`, code that ran before. Every line is the code's own, to the byte.
    Decorated and async functions are left out, and code that does not parse defines nothing.
    """
    tree = parsed(code)
    known = _imports(imports) | _imports(code)
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)] if tree else []
    return tuple(_source(code, node, known) for node in functions if not node.decorator_list)


def extracted(trajectory: Trajectory, known: Sequence[Skill] = ()) -> tuple[Skill, ...]:
    """Return the skills in a successful episode, callees first; none from another one.

    The last definition of a name counts. A function that is `known` to the byte is no new one; known skills that a
    function calls are among its `requires`. Functions that call each other in a circle, and their callers, are left
    out.
    """
    if not trajectory.success:
        return ()
    working = _Working()
    for step in trajectory.steps:
        if not step.tool_calls and (tree := parsed(step.action)) is not None:
            working.run(step.action, tree, failed=step.error is not None)
    stored = {skill.name: skill.definition for skill in known}
    found = {name: source for name, source in working.sources.items() if name in working.called}
    waiting: list[Skill] = []
    for source in found.values():
        requires = tuple(each for each in free(function_of(source)) if each in found or each in stored)
        task = trajectory.task
        waiting.append(Skill(source=source, origin=task.instruction, scenario=task.scenario, requires=requires))
    new = [skill for skill in waiting if stored.get(skill.name) != skill.definition]
    return callees_first(new)


def callees_first(skills: Sequence[Skill]) -> tuple[Skill, ...]:
    """Return the skills so that each stands after those among them that it requires; a circle, and its callers, not."""
    ordered: list[Skill] = []
    waiting = list(skills)
    while waiting:
        missing = {skill.name for skill in waiting}
        ready = [skill for skill in waiting if not missing & set(skill.requires)]
        if not ready:
            break
        ordered += ready
        waiting = [skill for skill in waiting if skill not in ready]
    return tuple(ordered)


class _Working:
    """What the functions of an episode are, step by step."""

    def __init__(self) -> None:
        self.sources: dict[str, str] = {}
        self.called: set[str] = set()
        self._calls: dict[str, frozenset[str]] = {}
        self._imports: dict[str, str] = {}

    def run(self, code: str, tree: ast.Module, *, failed: bool) -> None:
        """Take in a step. What a failed step binds is unknown from then on."""
        for statement in tree.body:
            if not failed:
                self._call(called(statement))
            for name in set(rebound(statement)):
                for table in (self.sources, self._calls, self._imports):
                    table.pop(name, None)
                self.called.discard(name)
            if not failed:
                self._bind(code, statement)

    def _call(self, names: Iterable[str]) -> None:
        waiting = list(names)
        while waiting:
            name = waiting.pop()
            if name in self._calls and name not in self.called:
                self.called.add(name)
                waiting += self._calls[name]

    def _bind(self, code: str, statement: ast.stmt) -> None:
        if isinstance(statement, Import):
            self._imports |= dict.fromkeys((name for name, _ in imported(statement)), _segment(code, statement))
        elif isinstance(statement, ast.FunctionDef) and not statement.decorator_list:
            source = _source(code, statement, self._imports)
            if len(source) <= MAX_SOURCE:
                self.sources[statement.name] = source
                self._calls[statement.name] = calls_in(statement)


def _imports(code: str) -> dict[str, str]:
    """Return name -> the source of the top-level import that binds it."""
    tree = parsed(code)
    nodes = [node for node in tree.body if isinstance(node, Import)] if tree else []
    return {name: _segment(code, node) for node in nodes for name, _ in imported(node)}


def _source(code: str, function: ast.FunctionDef, imports: dict[str, str]) -> str:
    used = dict.fromkeys(imports[name] for name in free(function) if name in imports)
    return "\n".join([*used, *([""] if used else []), _segment(code, function)]) + "\n"


def _segment(code: str, node: ast.stmt) -> str:
    return ast.get_source_segment(code, node) or ""
