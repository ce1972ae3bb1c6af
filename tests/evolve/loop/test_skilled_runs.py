"""Skills in whole runs of the office: what a task is shown, what it is kept from, and what becomes of what it makes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from evolve.episode.injection import shown_again
from evolve.episode.world_texts import kept
from evolve.errors import ConfigError
from evolve.integrations.agent import Agent
from evolve.loop.assembly import open_store
from evolve.loop.prompt_replay import opening, proved
from evolve.loop.session import Parts, run
from memory.records import Provenance, Trajectory
from policies.scripted import ScriptedPolicy
from tests.evolve.skilled_office import code, config, episodes, office, taught, work
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


def openings(tmp_path: Path, name: str, **sections: Any) -> set[str]:
    """Return the system messages of a frozen evaluation of three tasks in the full profile, with no skill known."""
    given = {"run": {"mode": "frozen", "eval_splits": ["train"]}, "policy": {"profile": "full"}, **sections}
    policy = ScriptedPolicy([code("apps.task.done()")] * 9, profile="full")
    work(config(tmp_path / name, **given), policy)
    return {seen[0].content for seen in policy.seen}


def test_an_evaluation_that_keeps_nothing_asks_for_no_skill(tmp_path: Path) -> None:
    """A sentence about skills that were not there cost a small model 5 of 25 points."""
    (told,) = openings(tmp_path, "on")
    assert {told} == openings(tmp_path, "off", skills={"enabled": False})
    assert "skill" not in told.lower()


def test_an_episode_without_memory_is_told_nothing_of_skills_and_its_prompt_can_be_made_again(tmp_path: Path) -> None:
    settings = config(tmp_path, controls={"no_memory": 1.0}, policy={"profile": "full"})
    taught(settings)
    policy = ScriptedPolicy([code("apps.task.done()")] * 9, profile="full")
    work(settings, policy)
    told = [seen[0].content for seen in policy.seen]
    assert [sum("- pay_to(" in each for each in told), sum("skill" not in each.lower() for each in told)] == [3, 3]
    with open_store(settings) as store:
        words = kept(store, store.trajectories()[0].run_id)
        assert words is not None
        for trajectory in store.trajectories():
            messages = opening(settings, trajectory, shown_again(store, trajectory.injected), words)
            assert proved(settings, trajectory, 0, messages, words)


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
