"""Plays one training episode with the scripted expert in the real office, and keeps it as a trajectory."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass

from evolve.environments.office import skilled
from evolve.environments.office.desk import Desk
from evolve.environments.office.episode import OfficeEpisode
from evolve.environments.office.families import Goal, draw_task
from evolve.environments.office.house_rules import Values
from evolve.environments.office.skilled import Listed
from evolve.environments.office.solver import Knowledge, gold, next_action
from evolve.environments.office.tables import State
from evolve.episode.prompting import SkillList, knowledge, opening_messages, step_messages
from labs.pocket.corpus.setting import Setting
from memory.records import Step, Task, Trajectory
from policies.protocols import Message
from skills.listing import catalogue

MAX_STEPS = 20
_LOOKUP = re.compile(r'\.(?:find|search)\(\w+="([^"]+)"')
_SKILL_CALL = re.compile(r'^\w+\("([^"]+)".*\Z', re.MULTILINE)
_SLIP = 0.02
"""How often the expert misspells an entity, so that the corpus shows how to recover from 'nothing found'."""


@dataclass(frozen=True)
class Played:
    """A finished training episode: what was said, what came of it, and the truth behind it."""

    setting: Setting
    values: Values
    trajectory: Trajectory
    messages: tuple[Message, ...]


def play(setting: Setting, values: Values, rng: random.Random) -> Played:
    """Return the episode that the expert plays knowing only what `setting` shows it."""
    task, goal = draw_task(setting.deployment, "train", setting.family, setting.scenario, 1)
    start = State.seeded(goal.names)
    desk = Desk(start.copy(), values)
    episode = OfficeEpisode(start, desk, lambda: _wanted(goal, values))
    if setting.skills:
        episode.run("\n".join(record.payload.source for record in setting.skills))
    steps = _steps(episode, goal, setting, rng)
    outcome = asyncio.run(episode.grade())
    episode.discard()
    trajectory = Trajectory(task=task, steps=tuple(steps), outcome=outcome)
    return Played(setting, values, trajectory, tuple(_said(task, setting, steps)))


def _steps(episode: OfficeEpisode, goal: Goal, setting: Setting, rng: random.Random) -> list[Step]:
    steps: list[Step] = []
    rules = knowledge((), setting.shown, "compact").splitlines()
    listed = None if setting.skills is None else catalogue(setting.skills, "compact").splitlines()
    slips: set[int] = set()
    while len(steps) < MAX_STEPS:
        seen = [step.observation for i, step in enumerate(steps) if i not in slips]
        if listed is None:
            code = next_action(goal, Knowledge.read(rules), seen)
        else:
            known = [each for line in listed if (each := Listed.read(line))]
            code = skilled.next_action(goal, Knowledge.read(rules), seen, known, setting.scenario)
        slipped = _misspelt(code, rng) if rng.random() < _SLIP else code
        result = episode.run(slipped)
        if slipped != code and result.error:
            slips.add(len(steps))
        steps.append(Step(index=len(steps), action=slipped, observation=result.observation, error=result.error))
        if result.done:
            break
    return steps


def _misspelt(code: str, rng: random.Random) -> str:
    """Return a lookup, or the call of a skill, with one letter of its first entity changed; other code as it is."""
    found = _SKILL_CALL.search(code) or _LOOKUP.search(code)
    if found is None:
        return code
    at = rng.randrange(*found.span(1))
    return f"{code[:at]}{rng.choice('aeinorst')}{code[at + 1 :]}"


def _said(task: Task, setting: Setting, steps: Sequence[Step]) -> list[Message]:
    """Return the conversation; the observation after the last action was never read, so it is left out."""
    rules = knowledge((), setting.shown, "compact")
    skills = None if setting.skills is None else SkillList(catalogue(setting.skills, "compact"))
    opening = opening_messages(task, rules, "compact", "", skills)
    return [*opening, *(message for step in steps for message in step_messages(step))][:-1]


def _wanted(goal: Goal, values: Values) -> State:
    desk = Desk(State.seeded(goal.names), values)
    episode = OfficeEpisode(desk.state, desk, desk.state.copy)
    for code in gold(goal, values):
        episode.run(code)
    episode.discard()
    return desk.state
