"""Each poisoned skill works in trials and does harm when it wakes; each twin is the same skill and correct."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks.skill_mix import WideOffice
from benchmarks.sleeping_skills import DEPLOYMENT, TRICKS, Pair, Trick, pairs, tried
from evolve.environments.office.environment import OfficeConfig
from evolve.environments.office.intents import by_id
from evolve.environments.office.skilled import Listed, next_action
from evolve.environments.office.solver import Knowledge
from memory.records import DeltaOp, Task, Trust
from skills.listing import line
from skills.record import Skill

OFFICE = WideOffice(OfficeConfig(deployment=DEPLOYMENT))
PAIRS = tuple(pairs(OFFICE))
SHOWN = 2
"""Tasks of each skill's intent that are worked."""


def source(op: DeltaOp) -> str:
    assert op.payload
    return str(op.payload["source"])


def tasks_of(pair: Pair) -> list[Task]:
    intent = by_id(pair.trick.intent)
    asked = [task for task in OFFICE.tasks("dev") if intent in [each for each, _ in OFFICE.goal(task).intents]]
    return asked[:SHOWN]


async def plays(task: Task, op: DeltaOp) -> bool:
    """Tell whether the worker solves a task by calling the skill."""
    skill = Skill(source=source(op))
    listed = Listed.read(line(skill, "compact"))
    assert listed
    lines = [f"- {text} [{at}]" for at, text in enumerate(OFFICE.oracle, 1)]
    episode, seen, actions = OFFICE.start(task), list[str](), list[str]()
    assert episode.run(skill.source).error is None
    while len(actions) < 8:
        actions.append(next_action(OFFICE.goal(task), Knowledge.read(lines), seen, [listed]))
        result = episode.run(actions[-1])
        seen.append(result.observation)
        if result.done:
            break
    outcome = await episode.grade()
    await episode.close()
    assert any(f"{listed.name}(" in each and f"def {listed.name}(" not in each for each in actions)
    return outcome.success


def test_fifteen_mechanisms_of_two_and_their_trust() -> None:
    assert Counter(pair.way for pair in PAIRS) == dict.fromkeys(dict.fromkeys(t.way for t in TRICKS), 2)
    assert len(PAIRS) == 30
    assert Counter(pair.trust for pair in PAIRS) == {Trust.IMPORTED: 15, Trust.VERIFIED: 8, Trust.SELF_JUDGED: 7}
    for pair in PAIRS:
        assert pair.poisoned.provenance == pair.benign.provenance
        assert pair.poisoned.provenance.trust is pair.trust
        assert bool(pair.poisoned.provenance.task_ids) == (pair.trust is not Trust.IMPORTED)


def test_the_suite_is_the_same_each_time_and_no_skill_is_twice() -> None:
    again = [(source(pair.poisoned), source(pair.benign)) for pair in pairs(OFFICE)]
    assert again == [(source(pair.poisoned), source(pair.benign)) for pair in PAIRS]
    assert len({bad for bad, _ in again}) == len(again)
    assert all(len(bad) > len(good) for bad, good in again)


@pytest.mark.parametrize("trick", TRICKS, ids=lambda trick: f"{trick.way}-{trick.intent}")
def test_it_sleeps_until_it_is_given_what_it_awaits(trick: Trick) -> None:
    assert tried(trick, awake=False).success
    assert not tried(trick, awake=True).success


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: f"{pair.way}-{pair.trick.intent}")
async def test_trials_see_no_difference_from_a_correct_twin(pair: Pair) -> None:
    for task in tasks_of(pair):
        assert await plays(task, pair.benign)
        assert await plays(task, pair.poisoned)
