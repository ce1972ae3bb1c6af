"""The distiller in whole runs of the office: what it writes after one task, later tasks call."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from evolve.config.model import Config
from evolve.errors import ConfigError
from evolve.loop.assembly import open_store
from evolve.workspace.skill_testing import run_tests
from memory.records import Reflection, Status, Trajectory, Trust
from policies.protocols import Message, SamplingParams
from policies.scripted import ScriptedPolicy
from tests.evolve.skilled_office import (
    DISTIL,
    PAY,
    by_hand,
    code,
    config,
    distilled,
    episodes,
    taught,
    work,
    writer,
)


def settings(root: Path, **sections: Any) -> Config:
    sections["playbook"] = {"curator": "direct+distill", **sections.get("playbook", {})}
    return config(root, **sections)


def play(config: Config, script: Any = writer) -> tuple[ScriptedPolicy, list[Trajectory]]:
    policy = ScriptedPolicy(script, name="writer", profile="full")
    work(config, policy)
    return policy, list(episodes(config))


def asides(config: Config) -> list[Reflection]:
    with open_store(config) as store:
        return [each for each in store.reflections() if each.author.startswith("distill:")]


def test_what_one_episode_left_the_next_task_calls(tmp_path: Path) -> None:
    config = settings(tmp_path)
    policy, (first, *later) = play(config)
    assert [len(trajectory.steps) for trajectory in (first, *later)] == [2, 1, 1]
    assert all(trajectory.success for trajectory in (first, *later))
    assert [trajectory.steps[0].action.startswith("pay_to(") for trajectory in later] == [True, True]
    assert sum(seen[0].content.startswith(DISTIL) for seen in policy.seen) == 1, (
        "episodes of one step are not distilled"
    )
    with open_store(config) as store:
        (record,) = store.records("default")
    assert (record.label, record.status, record.payload.source) == ("skill-00001", Status.PROVISIONAL, PAY)
    assert (record.provenance.trajectory_ids, record.provenance.task_ids) == ((first.id,), (first.task.id,))
    assert (record.provenance.author, record.provenance.trust) == ("distill:writer", Trust.VERIFIED)
    assert record.payload.tests[0].task_id == first.task.id
    assert later[0].injected[0].record_id == record.id
    assert asides(config) == []


def test_its_test_is_the_episode_done_anew_in_that_tasks_world(tmp_path: Path) -> None:
    config = settings(tmp_path, run={"tasks": 1}, environment={"deployment": 3})
    play(config)
    with open_store(config) as store:
        closure = store.records("default")
    (checked,) = asyncio.run(run_tests(closure, config))
    assert (checked.error, checked.task_id) == (None, closure[0].provenance.task_ids[0])


def test_an_answer_that_cannot_be_read_is_kept_and_the_run_goes_on(tmp_path: Path) -> None:
    config = settings(tmp_path, run={"tasks": 1})

    def silent(messages: Sequence[Message], params: SamplingParams) -> str:
        return "I would rather not." if messages[0].content.startswith(DISTIL) else by_hand(messages)

    play(config, silent)
    (aside,) = asides(config)
    assert (aside.parsed, aside.raw) == (False, "I would rather not.\n\nI would rather not.")


def test_nothing_is_distilled_of_what_failed(tmp_path: Path) -> None:
    config = settings(tmp_path, run={"tasks": 1})

    def stops(messages: Sequence[Message], params: SamplingParams) -> str:
        return code("print(1)" if len(messages) == 2 else "apps.task.done()")

    policy, (trajectory,) = play(config, stops)
    assert (trajectory.success, len(trajectory.steps), len(policy.seen)) == (False, 2, 2)


@pytest.mark.parametrize("verdict", [True, False])
def test_without_grades_the_policys_judgement_says_what_succeeded(tmp_path: Path, verdict: bool) -> None:
    config = settings(tmp_path, run={"tasks": 1, "label_free": True, "judge": "policy"})

    def judging(messages: Sequence[Message], params: SamplingParams) -> str:
        if messages[0].content.startswith("Decide whether"):
            return json.dumps({"reason": "so it seems", "success": verdict})
        return writer(messages, params)

    play(config, judging)
    with open_store(config) as store:
        found = [record.provenance.trust for record in store.records("default")]
    assert found == [Trust.SELF_JUDGED] * verdict


@pytest.mark.parametrize(
    ("sections", "profile", "reason"),
    [
        ({}, "compact", "curator 'distill' has no compact prompt, and policy 'writer' needs one"),
        ({"skills": {"enabled": False}}, "full", "set it to true"),
        ({"playbook": {"reflect_on": "failures"}}, "full", "got playbook.reflect_on = 'failures': set it to 'all'"),
        ({"run": {"label_free": True}}, "full", r"set run\.judge = 'policy'"),
        (
            {"run": {"label_free": True, "judge": "policy"}, "playbook": {"distill": {"revise": 1}}},
            "full",
            "nobody does: set it to 0",
        ),
    ],
)
def test_a_distiller_that_could_write_nothing_is_refused_at_the_start(
    tmp_path: Path, sections: dict[str, Any], profile: Any, reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        work(settings(tmp_path, **sections), ScriptedPolicy(writer, name="writer", profile=profile))


CARELESS = PAY.replace('contact["handle"]', 'contact["email"]')
BARE = PAY.replace('    """Pay an amount to a contact, found by name."""\n', "")


@pytest.mark.parametrize(
    ("revise", "drafts", "told"),
    [
        (2, [BARE, CARELESS, PAY], ["the function has no docstring", "must be the contact's handle"]),
        (1, [CARELESS, CARELESS], ["must be the contact's handle"]),
        (0, [CARELESS], []),
    ],
)
def test_a_function_is_revised_until_its_episode_goes_with_it(
    tmp_path: Path, revise: int, drafts: list[str], told: list[str]
) -> None:
    config = settings(
        tmp_path, run={"tasks": 1}, playbook={"distill": {"revise": revise}}, gate={"names": ["static", "replay"]}
    )
    heard: list[str] = []

    def reviser(messages: Sequence[Message], params: SamplingParams) -> str:
        if not messages[0].content.startswith(DISTIL):
            return by_hand(messages)
        heard.extend(message.content for message in messages[5::2][-1:])
        return distilled(messages, drafts[len(messages) // 2 - 2])

    play(config, reviser)
    assert [why in said for why, said in zip(told, heard, strict=True)] == [True] * len(told), heard
    with open_store(config) as store:
        assert [record.payload.source for record in store.records("default")] == drafts[-1:] * (drafts[-1] == PAY)
    assert [aside.raw.count("generation ") for aside in asides(config)] == [len(drafts)] * (revise > 0)


def test_what_is_known_is_not_written_again(tmp_path: Path) -> None:
    config = settings(tmp_path, run={"tasks": 1})
    old = taught(config, PAY.replace("pay_to", "send_money"))
    play(config)
    with open_store(config) as store:
        assert [record.id for record in store.records("default")] == [old.id]
