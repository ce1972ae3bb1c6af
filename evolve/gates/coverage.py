"""Code coverage of gate trials: a gate that runs tasks admits a skill only if its trials reached all of its code.

A skill that pays, and on one word does something else, passes every measurement on tasks without that word: what is
measured says nothing of code that did not run. The trials in which the skill was called are done again, action by
action and without a model, with a mark at each place of its code (`skills.code_coverage`). A skill with a place that
none reached is refused, with the places as the reason, and waits for a person in the review queue.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from evolve.errors import EnvironmentFailure
from evolve.gates.decisions import held_back
from evolve.protocols import Action, Environment
from evolve.usercode import begun
from memory.protocols import Gate, KnowledgeView
from memory.records import DeltaOp, Frozen, Task, Trajectory, Trust, Verdict
from skills.code_coverage import Place, marked, reached
from skills.record import Skill

MOST = 64
"""Trials of a skill that are done again at most."""
TRIES = frozenset({"batch_screen", "held_out", "replay", "utility"})
"""Gates that run tasks with what is proposed."""
_NAMED = 3
_SILENT = "def print(*values, **options): pass"


class SkillTrial(Frozen):
    """An episode of a gate in which a skill was called: all that is needed to do it again."""

    task: Task
    world_seed: int
    prelude: str
    actions: tuple[str, ...]


@dataclass(frozen=True)
class Trials:
    """The trials of this process, by the definition of the skill that was called in them."""

    _of: dict[str, dict[str, SkillTrial]] = field(default_factory=dict[str, dict[str, SkillTrial]])

    def take(self, skill: Skill, episode: Trajectory, world_seed: int) -> None:
        """Keep an episode if the skill was defined in it and may have been called."""
        actions = tuple(step.action for step in episode.steps if step.action)
        known = self._of.setdefault(skill.definition, {})
        if skill.definition in episode.prelude and any(skill.name in action for action in actions):
            known.setdefault(
                episode.id,
                SkillTrial(task=episode.task, world_seed=world_seed, prelude=episode.prelude, actions=actions),
            )

    def of(self, skill: Skill) -> tuple[SkillTrial, ...]:
        """Return the trials of a skill."""
        return tuple(self._of.get(skill.definition, {}).values())


class Covered:
    """A gate that runs tasks, with its yes to a skill held back where its trials left some of the code out."""

    def __init__(self, gate: Gate, environment: Environment, trials: Trials) -> None:
        self.measures, self._environment, self._trials = gate, environment, trials

    @property
    def name(self) -> str:
        """Return the name of the gate that measures."""
        return self.measures.name

    async def judge(self, ops: Sequence[DeltaOp], view: KnowledgeView, trajectories: Sequence[Trajectory]) -> Verdict:
        """Return the gate's verdict; an accepted skill that was not exercised as a whole is refused."""
        verdict = await self.measures.judge(ops, view, trajectories)
        refused: dict[str, str] = {}
        for op in skill_ops(ops):
            if op.op_id in verdict.accepted and op.provenance.trust is not Trust.OPERATOR:
                skill = Skill.model_validate(op.payload)
                missed = await unexercised(self._environment, skill, self._trials.of(skill))
                if missed:
                    refused[op.op_id] = sentence(missed)
        return held_back(verdict, refused)


def exercised(gates: Sequence[Gate], environment: Environment, trials: Trials) -> tuple[Gate, ...]:
    """Return the gates; the last that tries proposals out admits only skills whose code was exercised (`Covered`)."""
    at = max((at for at, gate in enumerate(gates) if gate.name in TRIES), default=-1)
    if at < 0:
        return tuple(gates)
    return (*gates[:at], Covered(gates[at], environment, trials), *gates[at + 1 :])


def skill_ops(ops: Iterable[DeltaOp]) -> list[DeltaOp]:
    """Return the ops that bring the code of a skill."""
    return [op for op in ops if op.kind == Skill.kind and op.payload is not None]


async def unexercised(environment: Environment, skill: Skill, trials: Sequence[SkillTrial]) -> tuple[Place, ...]:
    """Return the places of a skill's code that no trial reached, each trial done again with marks."""
    tag = f"mark{secrets.token_hex(8)}"
    source, places = marked(skill, tag)
    wanted = {number for number, place in enumerate(places) if place.reachable}
    seen: set[int] = set()
    for trial in trials[:MOST]:
        if seen >= wanted:
            break
        seen |= reached(await _again(environment, trial, trial.prelude.replace(skill.definition, source)), tag)
    return tuple(place for number, place in enumerate(places) if number not in seen)


def sentence(missed: Sequence[Place]) -> str:
    """Return why a skill is not admitted."""
    places = list(dict.fromkeys(map(str, missed)))
    named = "; ".join(places[:_NAMED])
    more = f" and {len(places) - _NAMED} more" if len(places) > _NAMED else ""
    return f"no trial exercised {named}{more}; a person can admit it: `evolve review`"


async def _again(environment: Environment, trial: SkillTrial, prelude: str) -> str:
    """Do a trial's actions in a fresh episode and return the marks: what else is printed could cut them off."""
    printed: list[str] = []
    try:
        episode, _ = await begun(environment, trial.task, trial.world_seed)
        try:
            for text in (f"{prelude}\n{_SILENT}", *trial.actions):
                result = await episode.step(Action(text=text))
                printed += (result.observation, result.error or "")
                if result.done:
                    break
        finally:
            await episode.close()
    except EnvironmentFailure:  # what it reached before the world broke still counts
        pass
    return "\n".join(printed)
