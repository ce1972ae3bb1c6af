"""A batch is loaded once and handed through its nodes, and what the journal says since then goes before it.

F1  a run makes as few reads, parses and statements as it did when they were counted last
F2  a resumed batch is read from the journal again
F3  what another process forgets while a batch is under way is neither learned from nor credited
F4  what is held is given up when somebody else writes, and only then
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.claims.house_3_flow import counted, total
from benchmarks.flow import DELTAS, PARSES, READS, STATEMENTS
from benchmarks.table import ROOT
from evolve.config.model import Config
from evolve.loop.assembly import open_store
from evolve.loop.batch import Batch, Stream
from evolve.loop.session import Parts, aresume, arun
from memory.records import Outcome, Reflection, Task, Trajectory
from policies.errors import PolicyUnavailable
from tests.evolve.toy_doors import Doors, doors_config, doors_policy


class Reader:
    """A reflector that writes down whose episodes it reads, and does something before it answers."""

    name = "reader"

    def __init__(self, meanwhile: Callable[[str], None]) -> None:
        self.read: list[str] = []
        self._meanwhile = meanwhile

    async def reflect(self, trajectory: Trajectory, injected: Any, *, label_free: bool = False) -> Reflection:
        self._meanwhile(trajectory.task.id)
        self.read.append(trajectory.task.id)
        return Reflection(trajectory_id=trajectory.id, task_id=trajectory.task.id)


def forget(config: Config, task_id: str) -> None:
    """Forget a task as another process does, through a connection of its own."""
    with open_store(config) as other:
        other.forget(task_id=task_id, purge=True)


def parts(reflector: Reader | None = None) -> Parts:
    return Parts(policy=doors_policy(), environment=Doors(10), reflector=reflector)


def test_a_run_reads_and_parses_no_more_than_it_did() -> None:
    found = counted(ROOT, rounds=1)
    assert found["held"] == {"episodes": 16, "gate episodes": 9, "replies": 109, "records": 14}
    counts = {what: total(found, what) for what in (READS, PARSES, DELTAS)}
    assert counts == {READS: 16, PARSES: 32, DELTAS: 25}
    assert total(found, STATEMENTS) <= 2230  # 27 of them ask at each recall whose vectors there are


async def test_a_resumed_batch_is_read_from_the_journal_again(tmp_path: Path) -> None:
    config = doors_config(tmp_path, run={"batch_size": 5, "concurrency": 1})

    def fail(task_id: str) -> None:
        raise PolicyUnavailable("no answer; start the server")

    with pytest.raises(PolicyUnavailable):
        await arun(config, parts=parts(Reader(fail)))
    forget(config, "train-1")
    reader = Reader(lambda task_id: None)
    await aresume(config, parts=parts(reader))
    assert reader.read[:4] == ["train-0", "train-2", "train-3", "train-4"]


async def test_what_is_forgotten_meanwhile_is_not_credited(tmp_path: Path) -> None:
    config = doors_config(tmp_path, run={"batch_size": 5, "concurrency": 1}, playbook={"reflect_on": "all"})
    await arun(doors_config(tmp_path, run={"tasks": 5}), parts=parts())
    reader = Reader(lambda task_id: forget(config, "train-1") if task_id == "train-4" else None)
    await arun(config, parts=parts(reader))
    assert set(reader.read) == {f"train-{at}" for at in range(10)}
    with open_store(config, read_only=True) as store:
        found = {record.number: record.usage.success for record in store.records("default")}
    assert found == dict.fromkeys((1, 3, 4, 5), 8)  # of nine that succeeded; the second rule went with its task


def test_a_batch_made_anew_holds_what_the_first_one_did(tmp_path: Path) -> None:
    with open_store(doors_config(tmp_path)) as store:
        stream = Stream("run", tuple(Doors(4).tasks("train")), batch_size=2, seed=0)
        batch = Batch(store, "default", stream, 1)
        for task in stream.batch(1):
            batch.add(episode(stream, task))
        batch.append("noted", {"secret": "none", "order": [2, 1]})
        again = Batch(store, "default", stream, 1)
        assert [each.task.id for each in batch.episodes] == ["train-2", "train-3"]
        assert batch.episodes == again.episodes
        assert batch.events("noted") == again.events("noted")
        assert Batch(store, "default", stream, 0).events("noted") == []


def test_what_is_held_is_given_up_when_somebody_else_writes(tmp_path: Path) -> None:
    config = doors_config(tmp_path)
    with open_store(config) as store:
        stream = Stream("run", tuple(Doors(2).tasks("train")), batch_size=2, seed=0)
        first = store.stamp()
        for task in stream.tasks:
            store.add_trajectory(episode(stream, task))
        assert store.stamp() == first
        store.forget(task_id="train-0")
        assert store.stamp() != first
        second = store.stamp()
        with open_store(config, read_only=True) as other:
            assert other.trajectories(run_id="run")
        assert store.stamp() == second
        forget(config, "train-1")
        assert store.stamp() != second


def episode(stream: Stream, task: Task) -> Trajectory:
    outcome = Outcome(success=True, reward=1.0)
    return Trajectory(id=stream.episode_id(task.id, "main"), task=task, run_id=stream.run_id, outcome=outcome)
