"""Changes that still wait when a run is done: the next run's first batch is asked about them, with their origins."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

from evolve.config.model import Config
from evolve.gates.decision_ledger import entries, replay
from evolve.gates.gate_events import VERDICT, WAITING
from evolve.loop.assembly import open_store
from evolve.loop.nodes.waiting import left_over
from evolve.loop.session import Parts, aresume, arun, run
from memory.records import Status, Verdict
from policies.errors import PolicyUnavailable
from policies.protocols import Message, Reply, SamplingParams
from policies.scripted import ScriptedPolicy
from tests.evolve.listener import Listener
from tests.evolve.toy_doors import COLORS, Doors, ManyDoors, doors_config, replies

ENOUGH = {"names": ["default"], "calls_ratio": 1000}
TOO_LITTLE = {**ENOUGH, "calls_ratio": 0.1, "calls_advance": 0}


class Server(ScriptedPolicy):
    """Plays doors and is gone after `up` calls."""

    def __init__(self, up: int = 1000) -> None:
        super().__init__(replies, name="doors", profile="compact", version="1")
        self.up = up

    async def generate(self, messages: Sequence[Message], params: SamplingParams) -> Reply:
        self.up -= 1
        if self.up < 0:
            raise PolicyUnavailable("the server went away")
        return await super().generate(messages, params)


class Elsewhere(ManyDoors):
    name = "elsewhere"


@pytest.fixture(scope="module")
def waited(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder in which a finished run left a lesson about each door waiting; do not write to it."""
    folder = tmp_path_factory.mktemp("waited")
    config = doors_config(folder, run={"batch_size": 5}, controls={"no_memory": 0}, gate=TOO_LITTLE)
    run(config, parts=Parts(policy=Server(), environment=ManyDoors(5)))
    with open_store(config, read_only=True) as store:
        (event,) = store.events(type=WAITING)
        assert len(event.data["waiting"]) == len(COLORS)
        assert store.records("default") == ()
    return folder


def after(waited: Path, folder: Path, gate: dict[str, Any] = ENOUGH, **more: Any) -> Config:
    """Return the configuration of a further run, of other tasks and without a writer, in a copy of the folder."""
    copytree(waited, folder)
    settings = {"batch_size": 5, "concurrency": 1, "split": "test_normal", "eval_splits": ["test_challenge"], **more}
    playbook = {"reflector": "none"}
    return doors_config(folder, run=settings, controls={"no_memory": 0}, playbook=playbook, gate=gate)


async def test_the_first_batch_of_the_next_run_is_asked_with_the_tasks_it_was_written_from(
    waited: Path, tmp_path: Path
) -> None:
    config = after(waited, tmp_path / "next")
    listener = Listener()
    result = await arun(config, parts=Parts(policy=Server(), environment=ManyDoors()), observers=[listener])
    with open_store(config, read_only=True) as store:
        proposals = store.events(type="proposal", run_id=result.run_id)
        assert not any(event.data["ops"] for event in proposals), "nothing is new"
        found = [Verdict.model_validate(event.data) for event in store.events(type=VERDICT, run_id=result.run_id)]
        assert [(v.gate, len(v.accepted)) for v in found] == [(g, 5) for g in ("static", "batch_screen", "held_out")]
        screened = {task for each in found[1].evidence["rounds"] for task in each["trial"]["cohort"]}
        assert screened == {f"train-{at}" for at in range(5)}
        known = store.view("default").records()
        assert {record.status for record in known} == {Status.PROVISIONAL}
        assert len({record.provenance.run_id for record in known} - {result.run_id}) == 1
        assert len(known) == len(COLORS)
        assert all(entry.text for entry in entries(store, result.run_id)), "the log knows what was taken up"
        assert replay(store, result.run_id).differences == ()
        assert left_over(store, "default", "doors") == ()
    assert "5 changes that an earlier run left waiting are judged with the first batch" in listener.heard
    again = await arun(config, parts=Parts(policy=Server(), environment=ManyDoors()))
    with open_store(config, read_only=True) as store:
        assert store.events(type=VERDICT, run_id=again.run_id) == []


async def test_a_run_that_stops_over_them_goes_on_as_if_it_had_not(waited: Path, tmp_path: Path) -> None:
    found: list[Any] = []
    for up in (1000, 3, 20, 60):
        config = after(waited, tmp_path / str(up))
        doors, server = ManyDoors(), Server(up)
        if up < 1000:
            with pytest.raises(PolicyUnavailable):
                await arun(config, parts=Parts(policy=server, environment=doors))
            with open_store(config, read_only=True) as store:
                assert left_over(store, "default", "doors") == (), "a run that can be resumed still has them"
            result = await aresume(config, parts=Parts(policy=Server(), environment=doors))
        else:
            result = await arun(config, parts=Parts(policy=server, environment=doors))
        with open_store(config, read_only=True) as store:
            verdicts = [event.data for event in store.events(type=VERDICT, run_id=result.run_id)]
            texts = sorted(record.payload.text() for record in store.view("default").records())
        found.append((verdicts, texts))
    assert len(found[0][1]) == len(COLORS)
    assert found[1:] == found[:1] * 3


@pytest.mark.parametrize("kind", ["static", "elsewhere", "same tasks", "no memory"])
async def test_they_stay_where_they_are_when_the_run_cannot_judge_them(kind: str, waited: Path, tmp_path: Path) -> None:
    gate = {"static": {"names": ["static"]}, "same tasks": ENOUGH}.get(kind, ENOUGH)
    config = after(waited, tmp_path / "next", gate)
    if kind == "same tasks":
        config = config.model_copy(update={"run": config.run.model_copy(update={"dev_split": "train"})})
    if kind == "no memory":
        config = config.model_copy(update={"playbook": config.playbook.model_copy(update={"enabled": False})})
    world: Doors = Elsewhere() if kind == "elsewhere" else ManyDoors()
    result = await arun(config, parts=Parts(policy=Server(), environment=world))
    with open_store(config, read_only=True) as store:
        assert store.events(type=WAITING, run_id=result.run_id) == []
        assert store.records("default") == ()
        assert len(left_over(store, "default", "doors")) == len(COLORS)


async def test_what_waits_still_is_handed_on_from_run_to_run(waited: Path, tmp_path: Path) -> None:
    config = after(waited, tmp_path / "next", TOO_LITTLE)
    for _ in range(2):
        result = await arun(config, parts=Parts(policy=Server(), environment=ManyDoors()))
        with open_store(config, read_only=True) as store:
            assert len(store.events(type=WAITING, run_id=result.run_id)) >= 2
            assert len(left_over(store, "default", "doors")) == len(COLORS)
