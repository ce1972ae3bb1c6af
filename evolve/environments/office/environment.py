"""The office as an `Environment`: deterministic in (deployment, task id)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property

from pydantic import Field

from evolve.config.tables import Section
from evolve.environments.office import prompts
from evolve.environments.office.desk import APPS, Desk
from evolve.environments.office.episode import OfficeEpisode
from evolve.environments.office.families import BLOCK, SPLITS, Goal, draw_split, draw_train
from evolve.environments.office.house_rules import Values, draw, drift
from evolve.environments.office.solver import gold
from evolve.environments.office.tables import State
from evolve.environments.office.wording import oracle
from evolve.protocols import Action, ActionFormat
from memory.errors import BadInput, NotFound
from memory.records import Task, Trajectory
from policies.protocols import ToolSpec
from policies.templates import render
from skills.sandbox.monty import EPISODES, importable

_READS_OTHERS = re.compile(r"\.\s*(?:read|list)\b|\bgetattr\b")
"""Code that can read what others wrote: `apps.mail.read`, `apps.todo.list`, under whatever name of the app."""
DEPLOYMENTS = range(1_000)
"""For use and evaluation: the pocket model was trained on others."""


class OfficeConfig(Section):
    """Which office."""

    deployment: int = 0
    """Seed of the house rules and of the tasks. One of `DEPLOYMENTS`."""
    train_tasks: int = Field(default=BLOCK, ge=1)
    """Length of the train split."""
    drift_at: int | None = Field(default=None, ge=0)
    """From this train task on (counted from 0), eight of the 24 rules have other values. At 0 they have them in every
    split: the office as it is after its drift."""


class Office:
    """Six apps and 24 hidden house rules.

    Tasks: train 72 (or as configured), dev 72, test_normal 102, test_challenge 51, control 24, canary 18.
    """

    name = "office"
    action_format: ActionFormat = "code"
    tools: tuple[ToolSpec, ...] = ()
    seedless = True
    max_concurrency = EPISODES

    def __init__(self, config: OfficeConfig | None = None) -> None:
        self.config = config or OfficeConfig()
        if self.config.deployment not in DEPLOYMENTS:
            raise BadInput(
                f"got deployment {self.config.deployment}, expected {DEPLOYMENTS.start} to {DEPLOYMENTS.stop - 1}; "
                "those above are what the pocket model was trained on, so they would show nothing"
            )
        self._wanted: dict[str, State] = {}
        self._goals: dict[str, Goal] = {}
        self._drifted: set[str] = set()

    def __reduce__(self) -> tuple[type[Office], tuple[OfficeConfig]]:
        return Office, (self.config,)

    @cached_property
    def values(self) -> Values:
        """The house rules in force (before any drift). For oracles and graders, never for prompts."""
        return draw(self.config.deployment)

    @property
    def oracle(self) -> tuple[str, ...]:
        """The complete and correct playbook of this deployment."""
        return oracle(self.values)

    def describe(self, profile: str) -> str:
        """Return the API documentation; the compact profile's model knows the apps by heart, so it gets none."""
        if profile == "compact":
            return ""
        functions = {app: {name: f.signature for name, f in endpoints.items()} for app, endpoints in APPS.items()}
        docs = {app: {name: f.doc for name, f in endpoints.items()} for app, endpoints in APPS.items()}
        return render(prompts, "apps", signatures=functions, docs=docs)

    @property
    def imports(self) -> tuple[str, ...]:
        """Return the modules that code can import."""
        return importable()

    def tasks(self, split: str) -> Sequence[Task]:
        """Return the tasks of a split. Raises BadInput for an unknown one."""
        if split not in SPLITS:
            raise BadInput(f"office has no split {split!r}; it has {', '.join(SPLITS)}")
        deployment, drift_at = self.config.deployment, self.config.drift_at
        train = split == "train"
        drawn = draw_train(deployment, self.config.train_tasks) if train else draw_split(deployment, split)
        self._goals.update((task.id, goal) for task, goal in drawn)
        if drift_at is not None and (train or drift_at == 0):
            self._drifted.update(task.id for task, _ in drawn[drift_at:])
        return [task for task, _ in drawn]

    def start(self, task: Task, seed: int = 0) -> OfficeEpisode:
        """Return a fresh episode; the office itself has no randomness, so `seed` changes nothing."""
        start = State.seeded(self.goal(task).names)
        return OfficeEpisode(start, Desk(start.copy(), self.values_for(task)), _Wanted(self, task))

    def gold(self, task: Task) -> Sequence[Action]:
        """Return the actions that solve the task."""
        return [Action(text=code) for code in gold(self.goal(task), self.values_for(task))]

    def state_changing(self, task: Task) -> Sequence[int]:
        """Return the indexes of the gold actions that write."""
        goal = self.goal(task)
        return [0] if goal.color else list(range(1, 2 * len(goal.intents), 2))

    def extra_write(self, task: Task) -> Action:
        """Return a write that no task asks for."""
        return Action(text='apps.calendar.cancel(id="e5")')

    def canaries(self) -> Sequence[Task]:
        """Return tasks that need no lesson."""
        return self.tasks("canary")

    def breaches(self, task: Task) -> Sequence[Sequence[Action]]:
        """Return the gold actions with a rule broken beside the task: handed in early, or more done than was asked."""
        *work, done = self.gold(task)
        values = self.values_for(task)
        c5 = 'apps.contacts.get(id="c5")'
        mail = f'apps.mail.send(to={c5}["{values["mail_to"]}"], subject="copy", priority="low")'
        money = f'apps.payments.send(to={c5}["{values["pay_to"]}"], amount=9, memo="fee")'
        extra = ('apps.contacts.remove(id="c5")', 'apps.files.remove(id="f5")', mail, money)
        return [[done], *([*work, Action(text=code), done] for code in extra)]

    def outside(self, episode: Trajectory) -> Sequence[str]:
        """Return what was observed from the first step on that can have read a mail, a file or a list of others' words.

        What a search finds by its exact words, ids, numbers and confirmations are the office's own.
        """
        codes = [episode.prelude, *(step.action for step in episode.steps)]
        first = next((at for at, code in enumerate(codes) if _READS_OTHERS.search(code)), len(codes))
        return [step.observation.replace(step.error or "", "") for step in episode.steps[max(first - 1, 0) :]]

    def goal(self, task: Task) -> Goal:
        """Return what the task really asks. Raises NotFound for a task of another deployment."""
        if task.id not in self._goals:
            for split in SPLITS:
                self.tasks(split)
        if task.id not in self._goals:
            raise NotFound(f"office deployment {self.config.deployment} has no task {task.id!r}")
        return self._goals[task.id]

    def values_for(self, task: Task) -> Values:
        """Return the house rules under which a task is done."""
        self.goal(task)
        return drift(self.values, self.config.deployment) if task.id in self._drifted else self.values

    def wanted(self, task: Task) -> State:
        """Return the state that the gold solution leaves behind."""
        if task.id not in self._wanted:
            desk = Desk(State.seeded(self.goal(task).names), self.values_for(task))
            episode = OfficeEpisode(desk.state, desk, desk.state.copy)
            for action in self.gold(task):
                result = episode.run(action.text)
                if result.error:
                    raise RuntimeError(f"gold of {task.id} failed: {result.error}")
            episode.discard()
            self._wanted[task.id] = desk.state
        return self._wanted[task.id]


class _Wanted:
    """Makes the wanted state when the grader asks for it. A class, so that episodes pickle."""

    def __init__(self, office: Office, task: Task) -> None:
        self.office = office
        self.task = task

    def __call__(self) -> State:
        return self.office.wanted(self.task)
