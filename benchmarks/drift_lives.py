"""Learners that live through a change of the office's rules, and what their knowledge was worth on the way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.office_arms import folder
from evolve.config.model import Config
from evolve.environments.office.environment import Office, OfficeConfig
from evolve.environments.office.wording import meaning
from evolve.environments.office.worker import make_worker
from evolve.loop.assembly import open_store
from evolve.loop.session import Parts, run
from evolve.progress import Learned, Progress
from memory.protocols import KnowledgeView
from memory.records import DeltaOp, Reflection, Task, Trust
from playbooks.lessons import Known, add_op, agree_op, collect, tag_ops
from playbooks.protocols import Curator

BATCH = 5


@dataclass(frozen=True)
class Life:
    """A stream of `tasks`, of which the second half is done under changed rules."""

    deployment: int
    tasks: int = 300
    checks: tuple[int, ...] = (0, 10, 20, 30, 40, 50, 60, 100, 150)
    """Tasks after the change at which the knowledge is frozen."""
    test_tasks: int | None = None
    """How many tasks of test_normal; none = all."""

    @property
    def change(self) -> int:
        """Tasks before the change."""
        return self.tasks // 2

    def office(self, drift_at: int | None) -> OfficeConfig:
        """Return the office's settings."""
        return OfficeConfig(deployment=self.deployment, train_tasks=self.tasks, drift_at=drift_at)


@dataclass
class Level:
    """What was known after some tasks of the changed world."""

    passed: float
    """Share of test_normal solved under the changed rules."""
    right: int = 0
    """Rules in force that the knowledge states."""
    stale: int = 0
    """Rules it states with another value."""


class SecondHalf(Office):
    """The stream from the change on."""

    def tasks(self, split: str) -> Sequence[Task]:
        """Return the tasks of a split."""
        found = super().tasks(split)
        return found[self.config.train_tasks // 2 :] if split == "train" else found


class Adding:
    """A curator that adds whatever is new and never changes what is there."""

    name = "adding"

    async def curate(self, reflections: Sequence[Reflection], view: KnowledgeView) -> tuple[DeltaOp, ...]:
        """Return the reflections' tags, and one op per lesson."""
        known = Known(view)
        ops: list[DeltaOp] = []
        for lesson in collect(reflections):
            same = known.texts.duplicate_of(lesson.insight.content)
            agreed = agree_op(lesson, known.records[same[0]], Trust.VERIFIED) if same else None
            ops += [agreed] if agreed else [] if same else [add_op(lesson, Trust.VERIFIED)]
        return tuple({op.op_id: op for op in (*tag_ops(reflections, view), *ops)}.values())


@dataclass
class Freezer:
    """Freezes the knowledge after the batches asked for. An observer of the run."""

    config: Config
    wanted: dict[int, int]
    """Tasks done -> tasks of the changed world."""
    frozen: dict[int, str] = field(default_factory=dict[int, str])
    """Tasks of the changed world -> snapshot."""

    def notify(self, event: Progress) -> None:
        """Take a snapshot where one is wanted."""
        if isinstance(event, Learned) and (event.batch + 1) * BATCH in self.wanted:
            with open_store(self.config, owner=False) as store:
                snapshot = store.snapshot("default")
            self.frozen[self.wanted[(event.batch + 1) * BATCH]] = snapshot.id


def live(life: Life, *, fresh: bool = False, curator: Curator | None = None, forget: bool = True) -> dict[int, Level]:
    """Return the levels of one learner by tasks of the changed world. `fresh` starts with nothing at the change."""
    office = SecondHalf(life.office(0)) if fresh else Office(life.office(life.change))
    with folder() as root:
        config = _config(root, {} if forget else {"forget": {"rules": ()}})
        before = 0 if fresh else life.change
        freezer = Freezer(config, {before + check: check for check in life.checks})
        run(config, parts=Parts(policy=make_worker(office), environment=office, curator=curator), observers=[freezer])
        return {check: _level(life, config, name) for check, name in freezer.frozen.items()}


def _config(root: Path, more: dict[str, object]) -> Config:
    return Config.model_validate(
        {
            "root": root,
            "run": {"batch_size": BATCH, "concurrency": 1},
            "playbook": {"reflector": "rules", "curator": "direct"},
            "environment": {"name": "office", "max_steps": 16},
            "memory": {"index": "exact", "recall_k": 40},
            "controls": {"no_memory": 0},
            **more,
        }
    )


def _level(life: Life, config: Config, snapshot: str) -> Level:
    """Go back to a snapshot and examine it under the changed rules."""
    office = Office(life.office(0))
    with open_store(config) as store:
        store.rollback("default", snapshot, actor="benchmark")
        known = [meaning(record.payload.text()) for record in store.view("default").records()]
    values = office.values_for(office.tasks("test_normal")[0])
    section = config.run.model_copy(
        update={"mode": "frozen", "eval_splits": ("test_normal",), "tasks": life.test_tasks}
    )
    result = run(
        config.model_copy(update={"run": section}), parts=Parts(policy=make_worker(office), environment=office)
    )
    marks = result.evaluations[0].passed.values()
    return Level(
        passed=sum(mark is True for mark in marks) / len(marks),
        right=sum(rule is not None and values[rule[0]] == rule[1] for rule in known),
        stale=sum(rule is not None and values[rule[0]] != rule[1] for rule in known),
    )
