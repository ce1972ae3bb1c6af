"""An environment that says `live = True`: no task is run twice, `default` tests as it goes, repeats are refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from evolve.errors import ConfigError
from evolve.gates.gate_events import VERDICT
from evolve.loop.assembly import make_gates, open_store
from evolve.loop.runs import load_run
from evolve.loop.session import Parts, arun
from memory.errors import EvolveError
from memory.records import Status, Task
from tests.evolve.listener import Listener
from tests.evolve.toy_doors import COLORS, DoorEpisode, Doors, doors_config, doors_policy

DEFAULT = {"names": ["default"]}


class LiveDoors(Doors):
    """Doors that are opened once."""

    name = "live-doors"
    live = True

    def __init__(self, n: int = 20) -> None:
        super().__init__(n)
        self.started: list[str] = []

    def start(self, task: Task, seed: int = 0) -> DoorEpisode:
        assert task.id not in self.started, f"{task.id} was run again"
        self.started.append(task.id)
        return super().start(task, seed)


async def test_default_tests_live_what_cannot_be_run_again(tmp_path: Path) -> None:
    config, doors, listener = doors_config(tmp_path, gate=DEFAULT), LiveDoors(), Listener()
    result = await arun(config, parts=Parts(policy=doors_policy(), environment=doors), observers=[listener])
    assert sorted(doors.started) == sorted(task.id for task in doors.tasks("train"))
    assert "gates: static -> online_ab (tasks of live-doors cannot be run again)" in listener.heard
    assert "no no-memory control: the tasks of this environment cannot be run again" in listener.heard
    with open_store(config, read_only=True) as store:
        assert load_run(store, result.run_id).gates == ("static", "online_ab")
        assert {event.data["gate"] for event in store.events(type=VERDICT)} == {"static", "online_ab"}
        known = store.view("default").records()
        assert (len(known), {record.status for record in known}) == (len(COLORS), {Status.PROVISIONAL})
        assert any(lots for event in store.events(type="recall") for lots in event.data["lots"].values())


async def test_default_reads_only_where_no_outcome_may_be_read(tmp_path: Path) -> None:
    config, listener = doors_config(tmp_path, gate=DEFAULT, run={"label_free": True}), Listener()
    result = await arun(config, parts=Parts(policy=doors_policy(), environment=Doors(5)), observers=[listener])
    assert "gates: static (run.label_free: no outcome is read, so nothing is measured)" in listener.heard
    with open_store(config, read_only=True) as store:
        assert load_run(store, result.run_id).gates == ("static",)


async def test_default_runs_tasks_again_where_it_can(tmp_path: Path) -> None:
    config, listener = doors_config(tmp_path, gate=DEFAULT), Listener()
    result = await arun(config, parts=Parts(policy=doors_policy(), environment=Doors(5)), observers=[listener])
    left_out = "canary is left out: doors has no canary tasks"
    said = f"gates: static -> batch_screen -> held_out (tasks of doors can be run again; {left_out})"
    assert said in listener.heard
    with open_store(config, read_only=True) as store:
        assert load_run(store, result.run_id).gates == ("static", "batch_screen", "held_out")


def test_a_program_of_its_own_cannot_run_tasks_again_either(tmp_path: Path) -> None:
    assert [gate.name for gate in make_gates(doors_config(tmp_path, gate=DEFAULT))] == ["static", "online_ab"]


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"gate": {"names": ["static", "held_out"]}}, "gate 'held_out' does so; name 'default'"),
        ({"gate": {"names": ["default", "utility"]}}, "gate 'utility' does so"),
        ({"run": {"mode": "offline"}}, "run.mode = 'offline' does so; use 'online'"),
        ({"run": {"mode": "frozen", "attempts": 2}}, "run.attempts = 2 does so"),
        ({"controls": {"aa": True}}, "controls.aa does so"),
        ({"playbook": {"distill": {"revise": 1}}}, "playbook.distill.revise = 1 does so"),
        ({"controls": {"no_memory": 0.5}}, "controls.no_memory = 0.5 does so"),
    ],
)
async def test_what_repeats_live_tasks_is_refused(
    sections: dict[str, dict[str, object]], said: str, tmp_path: Path
) -> None:
    doors = LiveDoors()
    with pytest.raises(ConfigError, match="tasks of 'live-doors' cannot be run again") as refused:
        await arun(doors_config(tmp_path, **sections), parts=Parts(policy=doors_policy(), environment=doors))
    assert said in str(refused.value)
    assert doors.started == []


class Undivided(LiveDoors):
    """Doors that could be opened again, but none are set aside."""

    name = "undivided-doors"
    live = False

    def tasks(self, split: str) -> Sequence[Task]:
        return super().tasks(split) if split == "train" else ()


async def test_default_tests_live_where_no_tasks_are_set_aside(tmp_path: Path) -> None:
    config = doors_config(tmp_path, gate=DEFAULT, controls={"no_memory": 0})
    doors, listener = Undivided(), Listener()
    result = await arun(config, parts=Parts(policy=doors_policy(), environment=doors), observers=[listener])
    assert "gates: static -> online_ab (undivided-doors has no tasks in split 'dev')" in listener.heard
    with open_store(config, read_only=True) as store:
        assert load_run(store, result.run_id).gates == ("static", "online_ab")


async def test_held_out_by_name_still_asks_for_its_tasks(tmp_path: Path) -> None:
    config = doors_config(tmp_path, gate={"names": ["static", "held_out"]})
    with pytest.raises(EvolveError, match="split 'dev' of 'undivided-doors' has no tasks"):
        await arun(config, parts=Parts(policy=doors_policy(), environment=Undivided()))
