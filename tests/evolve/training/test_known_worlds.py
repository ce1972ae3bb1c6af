"""The worlds that a workspace worked in, from what its runs and trainings recorded.

W1  each namespace and environment is a world, the configured one first; the latest settings count
W2  settings that agree in namespace and held-out tasks are one world, with the runs of all of them
W3  what cannot be opened any more is there, with its name and why
W4  a workspace where nothing was done knows the configured world; evaluations and sessions make none
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from evolve.config.file import changed
from evolve.config.model import Config
from evolve.generations.workspace_registry import FOLDER
from evolve.loop.assembly import open_store
from evolve.loop.runs import EVAL, RunRecord, save_run
from evolve.training import ledger, resumption
from evolve.training.known_worlds import known_worlds, runs_elsewhere
from tests.evolve.toy_doors import doors_config

DOORS, MANY = "tests.evolve.toy_doors:Doors", "tests.evolve.toy_doors:ManyDoors"


def settings(root: Path, environment: str = DOORS, namespace: str = "default", **options: Any) -> Config:
    return doors_config(
        root, environment={"name": environment, **options}, memory={"namespace": namespace}, policy={"name": "scripted"}
    )


def worked(run_id: str, config: Config, **told: Any) -> None:
    """Journal that a run was done under a configuration."""
    given: dict[str, Any] = {"environment": "doors", "config": config.model_dump(mode="json", exclude={"root"})}
    with open_store(config, len) as store:
        save_run(store, RunRecord.model_validate({"run_id": run_id, **given, **told}))


def test_w1_each_namespace_and_environment_is_a_world(tmp_path: Path) -> None:
    home = settings(tmp_path)
    worked("one", settings(tmp_path, MANY))
    worked("two", settings(tmp_path, namespace="other"))
    worked("three", settings(tmp_path, MANY, max_steps=3))
    worked("four", home)
    found = known_worlds(home)
    assert [each.name for each in found] == [f"{DOORS} in default", f"{MANY} in default", f"{DOORS} in other"]
    assert [set(each.runs) for each in found] == [{"four"}, {"one", "three"}, {"two"}]
    assert found[0].config == home
    assert found[1].config.environment.max_steps == 3
    assert found[2].config.memory.namespace == "other"
    assert not any(each.missing for each in found)
    assert runs_elsewhere(home) == {"one", "two", "three"}


def test_w2_the_same_held_out_tasks_are_one_world(tmp_path: Path) -> None:
    home = settings(tmp_path, n=20)
    worked("short", settings(tmp_path, n=5))
    worked("elsewhere", settings(tmp_path, MANY, n=5))
    worked("longer", settings(tmp_path, MANY, n=50))
    found = known_worlds(home)
    assert [set(each.runs) for each in found] == [{"short"}, {"elsewhere", "longer"}]
    assert found[1].config.environment.options == {"n": 50}
    tests = changed(settings(tmp_path, MANY, n=50), {"run.dev_split": "test_normal"})
    worked("other tasks", tests)
    assert [each.name for each in known_worlds(home)][1:] == [
        f"{MANY}(n=50) in default",
        f"{MANY}(n=50) in default, dev",
    ]


def test_w3_what_is_gone_is_named(tmp_path: Path) -> None:
    home = settings(tmp_path)
    worked("gone", settings(tmp_path, "tests.evolve.no_such_world:Gone"))
    worked("given", settings(tmp_path, MANY), environment="an object")
    stored = {"environment": {"name": "x"}, "no_such_section": {}}
    with open_store(home, len) as store:
        save_run(store, RunRecord(run_id="unread", config=stored))
    found = {each.name: each for each in known_worlds(home)}
    assert "no_such_section" in found["x in default"].missing
    assert "given 'an object' as an object" in found[f"{MANY} in default"].missing
    assert "no_such_world" in found["tests.evolve.no_such_world:Gone in default"].missing
    assert runs_elsewhere(home) == {"gone", "given", "unread"}


def test_w4_what_worked_on_no_train_tasks_is_no_world(tmp_path: Path) -> None:
    home = settings(tmp_path)
    assert [each.name for each in known_worlds(home)] == [f"{DOORS} in default"]
    worked("asked", settings(tmp_path, MANY), kind=EVAL)
    assert len(known_worlds(home)) == 1
    training = home.workspace / FOLDER / ledger.FOLDER / "grpo-1"
    training.mkdir(parents=True)
    begun = settings(tmp_path, MANY).model_dump(mode="json", exclude={"root"})
    resumption.note(training, resumption.Begun(recipe="grpo", journal=False, start="base", config=begun))
    assert [each.name for each in known_worlds(home)][1:] == [f"{MANY} in default"]
