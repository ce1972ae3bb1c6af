"""Skills in whole runs of the office: what a task is shown, what it is kept from, and what becomes of what it makes."""

from __future__ import annotations

from pathlib import Path

import pytest

from evolve.errors import ConfigError
from evolve.integrations.agent import Agent
from evolve.loop.assembly import open_store
from evolve.loop.session import Parts, run
from memory.records import Provenance, Trajectory
from policies.scripted import ScriptedPolicy
from tests.evolve.skilled_office import config, episodes, office, taught, work
from tests.evolve.toy_doors import Doors, doors_policy


def test_a_skill_is_shown_called_and_named_in_every_trajectory(tmp_path: Path) -> None:
    settings = config(tmp_path)
    record = taught(settings)
    assert work(settings).metrics.tgc == 1.0  # type: ignore[union-attr]
    done = episodes(settings)
    assert len(done) == 3
    for trajectory in done:
        assert [(item.record_id, item.version) for item in trajectory.injected] == [(record.id, 1)]
        assert trajectory.steps[0].action.startswith("pay_to(")
        assert len(trajectory.steps) == 1


def test_switched_off_no_skill_is_shown_in_any_way(tmp_path: Path) -> None:
    settings = config(tmp_path, skills={"enabled": False})
    taught(settings)
    policy = ScriptedPolicy(["apps.task.done()"] * 3, profile="compact")
    work(settings, policy)
    assert all(trajectory.injected == () for trajectory in episodes(settings))
    assert all("pay_to" not in message.content for seen in policy.seen for message in seen)


def test_a_skill_is_no_rule(tmp_path: Path) -> None:
    settings = config(tmp_path, playbook={"search_k": 3})
    taught(settings, pinned=True)
    policy = ScriptedPolicy(["apps.task.done()"] * 3, profile="compact")
    work(settings, policy)
    prompt = policy.seen[0][0].content
    assert prompt.count("pay_to") == 1
    assert "rules:\nskills:\n- Pay an amount" in prompt


def test_a_frozen_evaluation_keeps_a_skill_from_the_task_it_was_made_from(tmp_path: Path) -> None:
    settings = config(tmp_path, run={"mode": "frozen", "eval_splits": ["train"]})
    own = office().tasks("train")[0]
    taught(settings, provenance=Provenance(task_ids=(own.id,)))
    work(settings)
    shown = {trajectory.task.id: len(trajectory.injected) for trajectory in episodes(settings)}
    assert len(shown) == 3
    assert shown.pop(own.id) == 0
    assert set(shown.values()) == {1}


def test_skills_that_cannot_be_defined_are_journalled_and_the_run_goes_on(tmp_path: Path) -> None:
    settings = config(tmp_path)
    taught(settings, 'def now(day: str = today) -> str:\n    """Pay it now."""\n    return day\n')
    assert work(settings).metrics.tgc == 1.0  # type: ignore[union-attr]
    with open_store(settings) as store:
        events = store.events(type="skills.left_out")
        assert len(events) == 3
        assert events[0].data["reason"] == "now: NameError: name 'today' is not defined"
        assert store.trajectory(events[0].subject).prelude_error == events[0].data["reason"]  # type: ignore[union-attr]


def test_skills_need_an_environment_whose_actions_are_code(tmp_path: Path) -> None:
    settings = config(tmp_path)

    class Spoken(Doors):
        action_format = "text"

    with pytest.raises(ConfigError, match=r"those of .doors. are text: set skills\.enabled = false"):
        run(settings, parts=Parts(policy=doors_policy(), environment=Spoken()))
    with pytest.raises(ConfigError, match="skills"):
        Agent(lambda task, text: Trajectory(task=task), settings)
