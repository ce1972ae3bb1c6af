"""`[gate] names = ["utility"]` in a run: fresh rounds with and without the change, on tasks it was not written from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from evolve.errors import ConfigError
from evolve.gates.account import REPLAYS, exposures
from evolve.gates.decisions import redecided
from evolve.gates.evaluator import episodes_of
from evolve.gates.gate_events import VERDICT
from evolve.loop.assembly import open_store
from evolve.loop.session import Parts, arun
from memory.records import Status, Verdict
from policies.scripted import ScriptedPolicy
from tests.evolve.toy_doors import COLORS, Doors, doors_config, replies


class Twice(Doors):
    """Two dev tasks for every door: ten, where seven are the least that `utility` can say yes to."""

    def tasks(self, split: str) -> Any:
        found = list(super().tasks(split))
        more = [task.model_copy(update={"id": f"{task.id}-again"}) for task in found]
        return found + more if split == "dev" else found


@pytest.mark.parametrize(("dev", "rounds", "status"), [(Twice, 2, Status.ACTIVE), (Doors, 3, None)])
async def test_what_is_worth_something_for_certain_becomes_active(
    dev: type[Doors], rounds: int, status: Status | None, tmp_path: Path
) -> None:
    config = doors_config(
        tmp_path,
        run={"batch_size": 5},
        controls={"no_memory": 0},
        gate={"names": ["static", "utility"], "calls_ratio": 1000, "utility": {"rounds": rounds}},
    )
    policy = ScriptedPolicy(replies, name="doors", profile="compact", version="1")
    result = await arun(config, parts=Parts(policy=policy, environment=dev(5)))
    with open_store(config, read_only=True) as store:
        records = store.records("default")
        assert [record.status for record in records] == [status] * (len(COLORS) if status else 0)
        _, verdict = (Verdict.model_validate(event.data) for event in store.events(type=VERDICT))
        (made,) = verdict.evidence["rounds"]
        trial = made["trial"]
        assert len(trial["without"]) == len(trial["with_change"]) == rounds
        assert redecided(verdict, REPLAYS["utility"]) == verdict
        assert bool(verdict.accepted) == bool(status)
        trials = store.trajectories(run_id=episodes_of(result.run_id))
        cohort = set(trial["cohort"])
        assert {trial.task.id for trial in trials} == cohort
        assert len({trial.seed for trial in trials}) == rounds * len(cohort), "a round repeated another one's seed"
        (look,) = exposures(store, "default")
        assert (look.tasks, look.p, look.accepted) == (len(cohort), None, bool(status))


async def test_utility_reads_outcomes(tmp_path: Path) -> None:
    config = doors_config(tmp_path, run={"label_free": True}, gate={"names": ["utility"]})
    with pytest.raises(ConfigError, match="label_free"):
        await arun(config, parts=Parts(policy=ScriptedPolicy(replies, profile="compact"), environment=Doors(5)))
