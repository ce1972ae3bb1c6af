"""A model's answer to a request for functions, and the skills made of it. Pure: nothing is run.

The answer's `rewritten`, the whole episode done anew with the new functions, becomes the test of each function it calls
(ASI, arXiv 2504.06821: a function is kept when the rewritten trajectory succeeds and uses it).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from memory.records import Task
from policies.schemas import most_chars, most_items
from skills.extract import callees_first
from skills.merge import similarity
from skills.names import free, parsed
from skills.record import Skill, SkillTest

MOST = 3
"""Functions taken from one answer."""
_FENCE = re.compile(r"```(?:python|py)?[ \t]*\n(.*?)(?:\n[ \t]*```|\Z)", re.DOTALL)


class Draft(BaseModel):
    """One function as a model wrote it."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    source: Annotated[str, most_chars(2000)]
    summary: Annotated[str, most_chars(200)] = ""
    example: Annotated[str, most_chars(200)] = ""
    replaces: bool = False
    """It is to replace the skill of its name."""


class Drafts(BaseModel):
    """What a model answers: more functions than asked for are cut off."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    functions: Annotated[tuple[Draft, ...], most_items(MOST)]
    rewritten: Annotated[str, most_chars(2000)] = ""

    @field_validator("functions", mode="before")
    @classmethod
    def _first(cls, value: Any) -> Any:
        return list[Any](value)[:MOST] if isinstance(value, list | tuple) else value


class Made(NamedTuple):
    """One function as a skill."""

    skill: Skill
    replaces: bool


def made(answer: Drafts, task: Task, known: Sequence[Skill]) -> tuple[tuple[Made, ...], tuple[str, ...]]:
    """Return the skills of an answer, callees first, and in one sentence each what of it cannot be used.

    What a known skill does already, name or no name, is none. `known` are the skills that the answer may call.
    """
    found, wrong = _parsed(answer.functions, task)
    pool = {skill.name: skill for skill in known} | {name: skill for name, (skill, _) in found.items()}
    skills = [_calling(skill, pool) for skill, _ in found.values()]
    pool |= {skill.name: skill for skill in skills}
    tree = parsed(_code(answer.rewritten))
    if skills and (tree is None or not tree.body):
        wrong.append("the rewritten episode is no Python: the functions have no test")
    ordered = callees_first(skills)
    wrong += [f"{skill.name}: it calls itself by way of others" for skill in skills if skill not in ordered]
    new = [skill for skill in ordered if not any(similarity(skill, each) == 1.0 for each in known)]
    tests = {skill.name: _tests(skill, tree, pool, set(found), task.id) for skill in new}
    if tree is not None and tree.body:
        wrong += [f"{name}: the rewritten episode does not call it" for name, test in tests.items() if not test]
    made = (skill.model_copy(update={"tests": tests[skill.name]}) for skill in new)
    return tuple(Made(skill, found[skill.name][1]) for skill in made), tuple(wrong)


def _parsed(drafts: Iterable[Draft], task: Task) -> tuple[dict[str, tuple[Skill, bool]], list[str]]:
    found: dict[str, tuple[Skill, bool]] = {}
    wrong: list[str] = []
    for draft in drafts:
        source = _code(draft.source)
        try:
            skill = Skill(
                source=source,
                summary=draft.summary,
                origin=task.instruction,
                scenario=task.scenario,
                examples=tuple(filter(None, [draft.example.strip()])),
            )
        except ValidationError as invalid:
            wrong.append(f"{source.strip()[:60]!r}: {invalid.errors(include_url=False)[0]['msg']}")
        else:
            found[skill.name] = (skill, draft.replaces)
    return found, wrong


def _code(text: str) -> str:
    """Return code without the fence that a model puts around it, ending in a line break."""
    fenced = _FENCE.search(text)
    return f"{(fenced[1] if fenced else text).rstrip()}\n"


def _calling(skill: Skill, pool: Mapping[str, Skill]) -> Skill:
    return skill.model_copy(update={"requires": tuple(name for name in free(skill.function) if name in pool)})


def _tests(
    skill: Skill, tree: ast.Module | None, pool: Mapping[str, Skill], new: set[str], task_id: str
) -> tuple[SkillTest, ...]:
    """Return the rewritten episode as a test, with all it calls that a test of this skill would not have defined."""
    if tree is None:
        return ()
    body = [node for node in tree.body if not (isinstance(node, ast.FunctionDef) and node.name in new)]
    names = {node.id for each in body for node in ast.walk(each) if isinstance(node, ast.Name)}
    called, own = _closed(names & set(pool), pool), _closed({skill.name}, pool)
    if skill.name not in called:
        return ()
    helpers = callees_first([pool[name] for name in sorted(called - own)])
    code = [each.source for each in helpers] + [ast.unparse(ast.Module(body, []))]
    return (SkillTest(code="\n".join(code), task_id=task_id),)


def _closed(names: set[str], pool: Mapping[str, Skill]) -> set[str]:
    """Return the names and all that their skills require."""
    waiting, seen = list(names), set[str]()
    while waiting:
        name = waiting.pop()
        if name not in seen and name in pool:
            seen.add(name)
            waiting += pool[name].requires
    return seen
