"""Offices with longer streams, and what goes wrong in them: a grader that errs, a reflector that lies at times."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from evolve.environments.office.environment import Office
from evolve.environments.office.episode import OfficeEpisode
from evolve.environments.office.families import NORMAL, draw_task
from evolve.environments.office.house_rules import Rule, of_call, seeded
from evolve.environments.office.wording import sentence, value_text
from evolve.protocols import Action, StepResult
from memory.records import Check, Insight, Outcome, Record, Reflection, Task, Trajectory
from playbooks.rules import RulesReflector

TASKS = 300
NOISE = 0.15
BATCH = 4


class LongOffice(Office):
    """An office with 300 train tasks: the same 24 scenarios, 13 variants of each, in a drawn order."""

    @cached_property
    def _train(self) -> tuple[Task, ...]:
        deployment, variants = self.config.deployment, range(1, 2 + TASKS // len(NORMAL))
        drawn = [draw_task(deployment, "train", family, 0, at) for at in variants for family in NORMAL]
        seeded("order", deployment).shuffle(drawn)
        self._goals.update((task.id, goal) for task, goal in drawn)
        return tuple(task for task, _ in drawn)[:TASKS]

    def tasks(self, split: str) -> Sequence[Task]:
        """Return the tasks of a split."""
        return self._train if split == "train" else super().tasks(split)

    def rules_of(self, task: Task) -> list[Rule]:
        """Return the house rules that a task falls under."""
        return [rule for intent, _ in self.goal(task).intents for call in intent.calls for rule in of_call(call)]


class NoisyEpisode:
    """An episode whose grade is wrong with a chance of 15 %: a failure passes, or a success fails for a false reason.

    The lot depends on the seed and on what was done, so the same episode gets the same grade.
    """

    def __init__(self, episode: OfficeEpisode, office: LongOffice, task: Task, seed: int) -> None:
        self._episode, self._office, self._task, self._seed = episode, office, task, seed
        self._done: list[str] = []

    async def step(self, action: Action) -> StepResult:
        """Run the action's code."""
        self._done.append(action.text)
        return await self._episode.step(action)

    async def grade(self) -> Outcome:
        """Grade rightly, or else the other way round."""
        right = await self._episode.grade()
        lot = seeded("noise", self._task.id, self._seed, *self._done)
        if lot.random() >= NOISE:
            return right
        if not right.success:
            passed = tuple(check.model_copy(update={"passed": True, "detail": ""}) for check in right.checks)
            return Outcome(success=True, reward=1.0, checks=passed)
        rule = lot.choice(self._office.rules_of(self._task))
        value = self._office.values_for(self._task)[rule.id]
        wrong = lot.choice([option for option in rule.options if option != value])
        detail = f"{rule.call} {rule.thing}: expected {value_text(rule, wrong)}, got {value_text(rule, value)}"
        false = Check(name=right.checks[0].name, passed=False, detail=detail)
        return Outcome(success=False, reward=0.0, checks=(false, *right.checks[1:]))

    async def close(self) -> None:
        """Give the sandbox worker back."""
        await self._episode.close()


class NoisyOffice(LongOffice):
    """An office whose grader errs: on the stream and on the select split alike. Its test splits are not for use."""

    seedless = False

    def start(self, task: Task, seed: int = 0) -> Any:
        """Return a fresh episode with a grade that may be wrong."""
        return NoisyEpisode(super().start(task, seed), self, task, seed)


class LyingReflector:
    """The `rules` reflector; in every third batch it states another value of each rule that an episode falls under.

    Where the cycle of three begins is the deployment's number, so that streams end at different points of it.
    """

    name = "lying"

    def __init__(self, office: LongOffice) -> None:
        self._office, phase = office, office.config.deployment % 3
        stream = office.tasks("train")
        self._lies = {task.id for at, task in enumerate(stream) if at // BATCH % 3 == phase}

    async def reflect(
        self, trajectory: Trajectory, injected: Sequence[Record[Any]], *, label_free: bool = False
    ) -> Reflection:
        """Return what the `rules` reflector says, or the contrary in its wording."""
        found = await RulesReflector().reflect(trajectory, injected, label_free=label_free)
        if trajectory.task.id not in self._lies:
            return found
        task, lot = trajectory.task, seeded("lie", trajectory.task.id)
        values = self._office.values_for(task)
        said = [
            sentence(rule, lot.choice([option for option in rule.options if option != values[rule.id]]))
            for rule in self._office.rules_of(task)
        ]
        return found.model_copy(update={"insights": tuple(Insight(content=text) for text in said), "tags": {}})
