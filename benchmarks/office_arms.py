"""The arms of an office experiment: workspaces with a given playbook, frozen evaluations, and what was followed.

Used by the claims about learning; it measures and returns numbers, and stores nothing outside the folder it is given.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean

from evolve.config.model import (
    Config,
    EnvironmentSection,
    GateSection,
    MemorySection,
    PlaybookSection,
    PolicySection,
    RunSection,
)
from evolve.config.sections import SkillsSection
from evolve.environments.office.environment import Office, OfficeConfig
from evolve.environments.office.house_rules import RULES, Feedback, Rule, of_call
from evolve.environments.office.wording import HELD_OUT, sentence
from evolve.episode.skill_runtime.figures import SkillFigures, figures
from evolve.gates.account import account
from evolve.loop.assembly import open_store
from evolve.loop.session import Parts, RunResult, run
from memory.records import DeltaOp, Op, Provenance, Status, Trajectory, Trust
from policies.protocols import Policy

TRAIN_TASKS = 60
SPLITS = ("test_normal", "test_challenge")
CONTROL = ("control",)


def office(deployment: int) -> Office:
    """Return the office of a deployment."""
    return Office(OfficeConfig(deployment=deployment))


Cost = Callable[[Trajectory], float]


def steps(trajectory: Trajectory) -> float:
    """Return how many steps an episode took."""
    return len(trajectory.steps)


def tokens(trajectory: Trajectory) -> float:
    """Return how many tokens the policy wrote in an episode."""
    return trajectory.usage.completion_tokens


@dataclass
class Tally:
    """Successes and trajectories of one arm over its splits."""

    passed: dict[str, bool] = field(default_factory=dict[str, bool])
    trajectories: list[Trajectory] = field(default_factory=list[Trajectory])
    sgc: dict[str, float] = field(default_factory=dict[str, float])

    @property
    def rate(self) -> float:
        """Share of tasks solved."""
        return sum(self.passed.values()) / len(self.passed)

    def spent(self, cost: Cost) -> float:
        """Return what all tasks together cost, divided by the number of tasks solved."""
        return sum(map(cost, self.trajectories)) / max(1, sum(self.passed.values()))

    def spent_on(self, tasks: Collection[str], cost: Cost) -> float:
        """Return the mean cost of some tasks."""
        return mean(cost(t) for t in self.trajectories if t.task.id in tasks)

    def split_rate(self, office: Office, split: str) -> float:
        """Share solved of one split's tasks that were run (a quick run leaves some out)."""
        marks = [self.passed[task.id] for task in office.tasks(split) if task.id in self.passed]
        return sum(marks) / len(marks)


@dataclass(frozen=True)
class Bench:
    """One deployment with the policy under test."""

    policy: Policy
    deployment: int
    concurrency: int = 64
    batch_size: int = 4
    train_tasks: int = TRAIN_TASKS
    test_tasks: int | None = None
    """Only that many tasks of each test split (quick runs); none = all."""
    skills: bool = False
    """The agent works with skills."""

    @property
    def office(self) -> Office:
        """A fresh office of the deployment."""
        return office(self.deployment)

    def learn(
        self,
        root: Path,
        *,
        reflector: str = "model",
        curator: str = "model",
        label_free: bool = False,
        gates: tuple[str, ...] = ("static",),
        world: Office | None = None,
    ) -> RunResult:
        """Work through the online stream in a workspace under `root`; `world` stands for the office where given."""
        section = RunSection(
            tasks=self.train_tasks, batch_size=self.batch_size, concurrency=self.concurrency, label_free=label_free
        )
        config = self._config(root, section, PlaybookSection(reflector=reflector, curator=curator))
        config = config.model_copy(update={"gate": GateSection(names=gates)})
        return run(config, parts=Parts(policy=self.policy, environment=world or self.office))

    def gate_calls(self, root: Path, result: RunResult) -> float:
        """Return the calls of a run's gates as a multiple of its stream's."""
        config = self.config(root)
        with open_store(config, self.policy.count_tokens, read_only=True) as store:
            spent = account(store, result.run_id).usage.calls
        return spent / result.metrics.usage.calls if result.metrics else 0.0

    def evaluate(
        self,
        root: Path,
        *,
        splits: Sequence[str] = SPLITS,
        memory: bool = True,
        temperature: float = 0.0,
        seed: int = 0,
    ) -> Tally:
        """Evaluate what the workspace under `root` knows, frozen."""
        section = RunSection(
            mode="frozen", eval_splits=tuple(splits), concurrency=self.concurrency, seed=seed, tasks=self.test_tasks
        )
        config = self._config(root, section, PlaybookSection(enabled=memory), temperature)
        result = run(config, parts=Parts(policy=self.policy, environment=self.office))
        return self._tally(config, result)

    def skill_figures(self, root: Path, tally: Tally) -> SkillFigures | None:
        """Return what the skills of an evaluation under `root` amounted to."""
        config = self.config(root)
        with open_store(config, self.policy.count_tokens, read_only=True) as store:
            return figures(store, tally.trajectories[0].run_id, tally.trajectories)

    def skills_in_use(self, root: Path) -> int:
        """Return how many skills the workspace under `root` has in use."""
        config = self.config(root)
        with open_store(config, self.policy.count_tokens, read_only=True) as store:
            return len(store.view(config.memory.namespace).records("skill"))

    def with_rules(self, root: Path, sentences: Sequence[str]) -> Path:
        """Make a workspace under `root` whose playbook is `sentences`, as an operator would write it."""
        write_rules(self.config(root), sentences, self.policy.count_tokens)
        return root

    def reworded(self) -> list[str]:
        """Return this deployment's oracle playbook in wordings that no training corpus contains."""
        chosen: list[str] = []
        for i, rule in enumerate(RULES):
            chosen.append(sentence(rule, self.office.values[rule.id], HELD_OUT[i % len(HELD_OUT)]))
        return chosen

    def config(self, root: Path) -> Config:
        """Return the configuration of the workspace under `root`."""
        return self._config(root, RunSection(), PlaybookSection())

    def _config(self, root: Path, section: RunSection, playbook: PlaybookSection, temperature: float = 0.0) -> Config:
        return Config(
            root=root,
            run=section,
            playbook=playbook,
            policy=PolicySection(name="pocket", temperature=temperature, max_tokens=120),
            environment=EnvironmentSection(name="office", max_steps=16),
            memory=MemorySection(index="exact", recall_k=40),
            skills=SkillsSection(enabled=self.skills),
        )

    def _tally(self, config: Config, result: RunResult) -> Tally:
        tally = Tally()
        with open_store(config, self.policy.count_tokens, read_only=True) as store:
            for report in result.evaluations:
                if report.arm not in {"main", "no_memory"} or (config.playbook.enabled and report.arm == "no_memory"):
                    continue
                tally.passed.update({task: mark is True for task, mark in report.passed.items()})
                tally.sgc[report.split] = report.metrics.sgc
                tally.trajectories += store.trajectories(run_id=report.id)
        return tally


def write_rules(config: Config, sentences: Sequence[str], count_tokens: Callable[[str], int]) -> None:
    """Give a workspace the playbook `sentences`, as an operator would write it."""
    written = Provenance(trust=Trust.OPERATOR, author="benchmark")
    ops = [
        DeltaOp(op=Op.ADD, payload={"content": text}, status=Status.ACTIVE, pinned=True, provenance=written)
        for text in sentences
    ]
    with open_store(config, count_tokens) as store:
        commit = store.commit(config.memory.namespace, ops, actor="benchmark")
    if commit.refused:
        raise RuntimeError(f"the playbook was refused: {commit.refused[0].reason}")


@contextmanager
def folder() -> Generator[Path]:
    """Give a folder that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="evolve-bench-") as name:
        yield Path(name)


def followed(office: Office, trajectories: Sequence[Trajectory]) -> dict[Feedback, float]:
    """Return, for each class of rule, how often a rule that came up was followed from the start.

    A told or code rule is broken when its error was seen; a silent one when the grader names it. A rule comes up when
    an action of the episode calls what it governs.
    """
    seen: dict[Feedback, list[bool]] = {"told": [], "code": [], "silent": []}
    for trajectory in trajectories:
        actions = "\n".join(step.action for step in trajectory.steps)
        errors = [step.error for step in trajectory.steps if step.error]
        details = " ".join(check.detail for check in trajectory.outcome.checks) if trajectory.outcome else ""
        goal = office.goal(trajectory.task)
        for rule in (rule for intent, _ in goal.intents for call in intent.calls for rule in of_call(call)):
            if f"apps.{rule.call}(" in actions:
                seen[rule.feedback].append(not _broken(rule, office, errors, details))
    return {feedback: sum(marks) / len(marks) for feedback, marks in seen.items() if marks}


def _broken(rule: Rule, office: Office, errors: Sequence[str], details: str) -> bool:
    if rule.feedback == "silent":
        return f"{rule.call} {rule.thing}: expected" in details
    said = sentence(rule, office.values[rule.id]) if rule.feedback == "told" else f"{rule.call}: {rule.code}"
    return said in errors
