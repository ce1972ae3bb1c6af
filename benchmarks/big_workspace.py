"""A workspace as after a year: 10,000 records, 1,000 runs, 100,000 steps, made through the journal's own methods."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from evolve.config.model import Config, MemorySection, PolicySection
from evolve.episode.arms import MAIN, NO_MEMORY
from evolve.gates.gate_events import VERDICT
from evolve.loop.assembly import open_store
from evolve.loop.runs import DONE, RunRecord, save_run
from memory.records import (
    DeltaOp,
    Event,
    Injection,
    Op,
    Outcome,
    Provenance,
    Status,
    Step,
    Task,
    Trajectory,
    Usage,
    UsageCounts,
)
from memory.store import Store

SETTINGS = '[policy]\nname = "pocket"\n[memory]\nindex = "exact"\n'
RUN = "run-{:05d}"
BATCH = 500
"""Ops of a commit."""


@dataclass(frozen=True)
class Size:
    """How much there is."""

    records: int = 10_000
    runs: int = 1_000
    tasks: int = 10
    """Of a run; every fifth has a control."""
    steps: int = 9

    @property
    def all_steps(self) -> int:
        """Return the steps of all episodes."""
        return self.runs * (self.tasks + self.tasks // 5) * self.steps


def build(folder: Path, size: Size) -> Config:
    """Make the workspace; return its configuration."""
    (folder / "evolve.toml").write_text(SETTINGS)
    config = Config(
        root=folder,
        policy=PolicySection(name="pocket"),
        memory=MemorySection(index="exact"),
    )
    with open_store(config) as store:
        ids = _know(store, config.memory.namespace, size)
        stored = config.model_dump(mode="json", exclude={"root"})
        for at in range(size.runs):
            _run(store, at, size, ids, stored)
        store.snapshot(config.memory.namespace)
    return config


def _know(store: Store, namespace: str, size: Size) -> list[str]:
    ids: list[str] = []
    for start in range(0, size.records, BATCH):
        ops = [_add(at) for at in range(start, min(start + BATCH, size.records))]
        done = store.commit(namespace, ops, actor="loop", run_id=RUN.format(0))
        fresh = [result.record_id for result in done.results if result.record_id]
        tags = [
            DeltaOp(op=Op.TAG, target_id=key, usage=UsageCounts(injected=at % 9 + 1, helpful=at % 4, harmful=at % 3))
            for at, key in enumerate(fresh)
        ]
        store.commit(namespace, tags, actor="loop", run_id=RUN.format(0))
        store.snapshot(namespace)
        ids += fresh
    return ids


def _add(at: int) -> DeltaOp:
    """Return a bullet, every tenth time a skill."""
    origin = Provenance(trajectory_ids=(f"tr-{at % 1000:05d}-0",), task_ids=("task-0",), run_id=RUN.format(at % 1000))
    words = f"rule {at}: before service{at % 97} is called, item{at % 1013} must hold value{at % 31}"
    if at % 10 == 5:
        source = f'def skill_{at}(item: str) -> str:\n    """Return what {words}."""\n    return item\n'
        payload, kind = {"source": source}, "skill"
    else:
        payload, kind = {"content": words}, "bullet"
    return DeltaOp(op=Op.ADD, kind=kind, payload=payload, status=Status.ACTIVE, provenance=origin)


def _run(store: Store, at: int, size: Size, ids: list[str], config: dict[str, object]) -> None:
    run_id = RUN.format(at)
    tasks = [Task(id=f"task-{n}", instruction=f"send item{n} of run {at} to service{n}") for n in range(size.tasks)]
    for n, task in enumerate(tasks):
        store.add_trajectory(_episode(f"tr-{at:05d}-{n}", task, run_id, MAIN, size, ids[(at + n) % len(ids) :][:8]))
        if n % 5 == 0:
            store.add_trajectory(_episode(f"tr-{at:05d}-{n}-c", task, run_id, NO_MEMORY, size, []))
    for n in range(2):
        accepted = {"gate": "static", "accepted": [f"op-{at}-{n}"], "rejected": {f"no-{at}-{n}": "twice the same"}}
        store.append(Event(type=VERDICT, namespace="default", run_id=run_id, subject=f"{run_id}/{n}", data=accepted))
    ids_of = tuple(task.id for task in tasks)
    record = RunRecord(run_id=run_id, status=DONE, config=config, environment="office", policy="pocket", tasks=ids_of)
    save_run(store, record)


def _episode(key: str, task: Task, run_id: str, arm: str, size: Size, shown: list[str]) -> Trajectory:
    steps = tuple(
        Step(index=n, action=f"apps.mail.send(to={n})", observation="ok " * 20, usage=Usage(prompt_tokens=200, calls=1))
        for n in range(size.steps)
    )
    injected = tuple(
        Injection(record_id=record, version=1, label="shr", rank=rank) for rank, record in enumerate(shown)
    )
    passed = (len(key) + int(key[3:8])) % 3 > 0
    return Trajectory(
        id=key,
        task=task,
        steps=steps,
        outcome=Outcome(success=passed, reward=float(passed)),
        injected=injected,
        run_id=run_id,
        arm=arm,
        policy="pocket",
        usage=Usage(prompt_tokens=200 * size.steps, calls=size.steps),
    )
