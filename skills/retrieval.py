"""Retrieve skills for a task: by the task that they were made from first, by what they say last.

SAGE (arXiv 2512.17102, test-time retrieval) finds skills by scenario as well as by the words of the query that created
them, worse by the skill itself; so the order of the ways is the order of preference, and a way that found enough leaves
nothing to the next.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal, NamedTuple

from memory.errors import BadInput, NotFound
from memory.lexical import query_words
from memory.protocols import Embedder
from memory.records import Frozen, Record, Task
from memory.utility import Utility
from skills.library import Library
from skills.record import Skill

Way = Literal["scenario", "query", "embedding", "description", "used"]
"""How a task finds skills."""
Cost = Callable[[Sequence[Record[Skill]]], int]
"""Tokens of showing these skills."""
_WORD = re.compile(r"\w+")


class Choosing(Frozen):
    """How skills are chosen."""

    k: int = 16
    """Most skills chosen; those that they require come with them. SAGE shows about six, with their bodies."""
    budget: int | None = None
    """Most tokens of the chosen skills and all they require; None = no limit."""
    ways: tuple[Way, ...] = ("scenario", "query", "description", "used")
    """Ways to find a skill, the preferred one first. `embedding` needs an embedder."""
    query: float = 0.25
    """Least overlap of words and pairs of words, in [0, 1], between the task and a skill's origin."""
    embedding: float = 0.5
    """Least cosine between the task and a skill's origin (its description where none is known)."""
    description: float = 0.1
    """Least overlap of words, in [0, 1], between the task and a skill's description; common words do not count."""
    used: float = 0.2
    """Least lower bound of the utility of a skill that tasks with other words have used, in [0, 1]."""
    leave_out: bool = False
    """Leave out skills that were made from the task itself, and those that require one: for frozen evaluations."""


class Chosen(NamedTuple):
    """One chosen skill, the way it was found and its score there."""

    record: Record[Skill]
    way: Way
    score: float


@dataclass(frozen=True)
class Choice:
    """What a task is shown: the same skills always in the same order, whatever found them."""

    chosen: tuple[Chosen, ...] = ()
    """Best first."""
    records: tuple[Record[Skill], ...] = ()
    """The chosen ones and all they require, callees first, else oldest first: no score moves a prompt."""
    unusable: Mapping[str, str] = field(default_factory=dict[str, str])
    """Name of a skill that cannot be used -> why: a requirement is not in use, or requires it in turn."""


def choose(
    library: Library,
    task: Task,
    how: Choosing | None = None,
    *,
    cost: Cost | None = None,
    embedder: Embedder | None = None,
) -> Choice:
    """Return the skills for a task: way by way, by score, equal scores by number; what does not fit is skipped.

    Raises `BadInput` for a budget without `cost`, and for the way `embedding` without an embedder.
    """
    how = how or Choosing()
    if how.budget is not None and cost is None:
        raise BadInput(f"got a budget of {how.budget} tokens and no `cost` to count them with; pass one")
    closures, unusable = _closures(library)
    made = {record.id for record in library.records if how.leave_out and task.id in record.provenance.task_ids}
    able = [library.get(name) for name, needed in closures.items() if made.isdisjoint(each.id for each in needed)]
    chosen: dict[str, Chosen] = {}
    records: tuple[Record[Skill], ...] = ()
    for way in how.ways:
        scores = _scores(way, able, task, embedder)
        least = 1.0 if way == "scenario" else float(getattr(how, way))
        ranked = sorted(zip(scores, able, strict=True), key=lambda pair: (-pair[0], pair[1].number, pair[1].id))
        for score, record in ranked:
            if score < least or len(chosen) == how.k:
                break
            longer = library.closure(sorted([*chosen, record.payload.name], key=library.names.index))
            fits = how.budget is None or cost is None or cost(longer) <= how.budget
            if record.payload.name not in chosen and fits:
                chosen[record.payload.name] = Chosen(record, way, score)
                records = longer
    return Choice(tuple(chosen.values()), records, unusable)


def overlap(first: str, second: str) -> float:
    """Return how much two texts share, in [0, 1]: Dice's coefficient of their words and pairs of words."""
    return _dice(_grams(first), _grams(second))


def _closures(library: Library) -> tuple[dict[str, tuple[Record[Skill], ...]], dict[str, str]]:
    closures: dict[str, tuple[Record[Skill], ...]] = {}
    unusable: dict[str, str] = {}
    for name in library.names:
        try:
            closures[name] = library.closure([name])
        except (BadInput, NotFound) as broken:
            unusable[name] = str(broken)
    return closures, unusable


def _scores(way: Way, records: Sequence[Record[Skill]], task: Task, embedder: Embedder | None) -> list[float]:
    skills = [record.payload for record in records]
    if way == "scenario":
        return [float(bool(task.scenario) and skill.scenario == task.scenario) for skill in skills]
    if way == "query":
        return [overlap(task.instruction, skill.origin) for skill in skills]
    if way == "description":
        words = frozenset(query_words(task.instruction))
        return [_dice(words, frozenset(query_words(skill.described()))) for skill in skills]
    if way == "used":
        return [Utility(helpful=record.usage.helpful, harmful=record.usage.harmful).lower for record in records]
    if embedder is None:
        raise BadInput("skills are to be found by embedding, and there is no embedder; pass one or drop that way")
    return _cosines(embedder, task.instruction, [skill.key() for skill in skills])


def _cosines(embedder: Embedder, text: str, keys: Sequence[str]) -> list[float]:
    """Return the cosine of `text` with each key; a blank text is near to nothing."""
    present = [at for at, key in enumerate(keys) if key.strip()]
    scores = [-1.0] * len(keys)
    if present and text.strip():
        vectors = embedder.embed([text, *(keys[at] for at in present)])
        for at, cosine in zip(present, vectors[1:] @ vectors[0], strict=True):
            scores[at] = round(float(cosine), 6)
    return scores


def _grams(text: str) -> frozenset[Any]:
    words = [word.casefold() for word in _WORD.findall(text)]
    return frozenset([*words, *pairwise(words)])


def _dice(first: frozenset[Any], second: frozenset[Any]) -> float:
    return round(2 * len(first & second) / (len(first) + len(second)), 6) if first and second else 0.0
