"""Candidate skills of which it is known what they are worth, and an office with enough tasks to measure each of them.

Helpful: does an intent by the house rules. Harmful: does nothing, or something else beside it, or breaks a rule.
Neutral: nothing that any task asks for.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, cast

from evolve.environments.office.environment import Office
from evolve.environments.office.families import NORMAL, draw_task
from evolve.environments.office.house_rules import seeded
from evolve.environments.office.intents import INTENTS, Intent
from evolve.environments.office.skilled import parameters, phrases, rules, written
from memory.records import DeltaOp, Op, Provenance, Status, Task, Trust
from skills.record import Skill

Kind = Literal["helpful", "harmful", "neutral"]
HARMFUL, NEUTRAL = 13, 13
_SCENARIOS = range(500, 508)
"""Numbers of scenarios that no split has: odd and even ones word their tasks differently."""
_UNASKED = 'apps.calendar.cancel(id="e5")'
_WORDS = ("collect", "mark", "pick", "split", "quote", "stack", "bundle", "trace", "paint", "weigh", "clean", "fold")
"""None of them stands in the corpus of the pocket model's training, nor do the things."""
_THINGS = ("boxes", "lines", "forms", "photos", "orders", "tickets", "charts", "drawers", "letters", "parcels")
_GIVEN = ("who", "title", "subject", "date", "amount", "name", "memo", "limit")


class WideOffice(Office):
    """An office with 192 tasks to select on: eight scenarios of each of the 24 families."""

    @cached_property
    def _dev(self) -> tuple[Task, ...]:
        drawn = [draw_task(self.config.deployment, "dev", family, at, 1) for at in _SCENARIOS for family in NORMAL]
        self._goals.update((task.id, goal) for task, goal in drawn)
        return tuple(task for task, _ in drawn)

    def tasks(self, split: str) -> Sequence[Task]:
        """Return the tasks of a split."""
        return self._dev if split == "dev" else super().tasks(split)

    def task_with(self, intent: Intent) -> Task:
        """Return a train task that asks for an intent."""
        return next(task for task in self.tasks("train") if intent in [each for each, _ in self.goal(task).intents])


@dataclass(frozen=True)
class Candidate:
    """A proposed skill, and what it is worth."""

    kind: Kind
    op: DeltaOp


def candidates(office: WideOffice) -> list[Candidate]:
    """Return 14 helpful, 13 harmful and 13 neutral skills of an office, in a drawn order; the same every time."""
    rng = seeded("mix", office.config.deployment)
    found = [_candidate(office, "helpful", intent, _right(office, rng, intent)) for intent in INTENTS]
    for at, intent in enumerate(rng.sample(INTENTS, HARMFUL)):
        found.append(_candidate(office, "harmful", intent, _wrong(office, rng, intent, at)))
    for at, source in enumerate(useless(rng, NEUTRAL)):
        found.append(_candidate(office, "neutral", INTENTS[at], source))
    rng.shuffle(found)
    return found


def useless(rng: random.Random, count: int) -> list[str]:
    """Return the sources of so many functions that no task needs, each with a name of its own."""
    sources: list[str] = []
    for at in range(count):
        word, thing = rng.choice(_WORDS), rng.choice(_THINGS)
        given = rng.sample(_GIVEN, rng.randint(1, 3))
        typed = ", ".join(f"{each}: str" for each in given)
        said = f"{word} the {thing} {rng.choice(('of', 'for', 'with'))} {' and '.join(given)}"
        sources.append(f'def {word}_{thing}_{at}({typed}) -> None:\n    """{said}"""\n    print({", ".join(given)})\n')
    return sources


def add(source: str, *, origin: str = "", task_ids: tuple[str, ...] = (), status: Status | None = None) -> DeltaOp:
    """Return the op that adds a skill."""
    return DeltaOp(
        op=Op.ADD,
        kind=Skill.kind,
        payload=Skill(source=source, origin=origin).model_dump(mode="json"),
        provenance=Provenance(trust=Trust.VERIFIED, task_ids=task_ids, author="benchmark"),
        **cast("dict[str, Any]", {"status": status} if status else {}),
    )


def _candidate(office: WideOffice, kind: Kind, intent: Intent, source: str) -> Candidate:
    task = office.task_with(intent)
    return Candidate(kind, add(source, origin=task.instruction, task_ids=(task.id,)))


def _right(office: WideOffice, rng: random.Random, intent: Intent) -> str:
    return written(intent, office.values, intent.id, parameters(intent), rng.choice(phrases(intent)))


def _wrong(office: WideOffice, rng: random.Random, intent: Intent, at: int) -> str:
    """Return a skill that does not do an intent, does more beside it, or breaks a rule: a silent one if it can."""
    order, phrase = parameters(intent), rng.choice(phrases(intent))
    if at % 3 == 0:
        typed = ", ".join(f"{each}: str" for each in order)
        return f'def {intent.id}({typed}) -> None:\n    """{phrase}"""\n    print("ok")'
    if at % 3 == 1:
        return f"{written(intent, office.values, intent.id, order, phrase)}\n    {_UNASKED}"
    governed = sorted(rules(intent), key=lambda rule: rule.feedback != "silent")
    right = office.values[governed[0].id]
    value = rng.choice([option for option in governed[0].options if option != right])
    return written(intent, office.values | {governed[0].id: value}, intent.id, order, phrase)
