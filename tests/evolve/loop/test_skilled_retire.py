"""Skills are retired in real runs by rules of their own, not by those for texts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from evolve.loop.assembly import open_store
from memory.records import Status
from policies.protocols import Message, SamplingParams
from policies.scripted import ScriptedPolicy
from tests.evolve.skilled_office import PAY, call, config, episodes, taught, work

PAY_MUCH = '''\
def pay_much(name: str, amount: float) -> str:
    """Pay somebody ten times as much."""
    return pay_to(name, amount * 10)
'''
WRONG = PAY.replace("amount=amount, ", "")
"""Lacks an argument: every call of it is refused."""


def helpless(messages: Sequence[Message], params: SamplingParams) -> str:
    """Call the skill, and give up where it failed."""
    return call(messages) if len(messages) < 3 else "apps.task.done()"


@pytest.mark.parametrize(
    ("skills", "required", "after"),
    [
        ({"useless": {"evidence": 2.5}}, False, Status.RETIRED),
        ({"useless": {"evidence": 2.5}}, True, Status.ACTIVE),
        ({"useless": {"evidence": 4}}, False, Status.ACTIVE),
        ({"useless": {"evidence": 2.5}, "retire": []}, False, Status.ACTIVE),
        ({"useless": {"evidence": 9}, "retire": ["unused"], "unused": {"tasks": 1}}, False, Status.ACTIVE),
    ],
)
def test_a_skill_that_only_fails_is_retired_unless_another_requires_it(
    tmp_path: Path, skills: dict, required: bool, after: Status
) -> None:
    settings = config(
        tmp_path, skills=skills, forget={"rules": ["harmful"], "harmful": {"marks": 1}}, gate={"names": ["none"]}
    )
    record = taught(settings, WRONG)
    if required:
        taught(settings, PAY_MUCH, payload={"requires": ["pay_to"]})
    work(settings, ScriptedPolicy(helpless, profile="compact"))
    with open_store(settings) as store:
        found = store.get(record.id)
        assert found is not None
        assert (found.status, found.usage.harmful) == (after, 3)


@pytest.mark.parametrize(("every", "shown"), [(2, [2, 2, 1]), (50, [2, 2, 2])])
def test_skills_that_do_the_same_become_one_at_a_compaction_point(tmp_path: Path, every: int, shown: list[int]) -> None:
    settings = config(tmp_path, playbook={"compact_every": every})
    twin = taught(settings, PAY.replace("pay_to", "send_money"))
    used = taught(settings)
    work(settings)
    assert [len(trajectory.injected) for trajectory in episodes(settings)] == shown
    with open_store(settings) as store:
        records = store.view("default").records("skill")
        if every == 50:
            assert {record.id for record in records} == {twin.id, used.id}
            return
        (one,) = records
        assert (one.payload.name, one.status, one.usage.helpful) == ("pay_to", Status.ACTIVE, 3)
        assert {record.status for key in (twin.id, used.id) if (record := store.get(key))} == {Status.SUPERSEDED}


def test_a_skill_that_nobody_calls_is_retired_when_asked(tmp_path: Path) -> None:
    settings = config(tmp_path, skills={"retire": ["unused"], "unused": {"tasks": 2}})
    used = taught(settings)
    idle = taught(settings, PAY_MUCH.replace("return pay_to(name, amount * 10)", "return name"))
    work(settings)
    with open_store(settings) as store:
        found = [store.get(each.id) for each in (used, idle)]
        assert [record and record.status for record in found] == [Status.ACTIVE, Status.RETIRED]
        removal = store.history(idle.id)[-1]
        assert (removal.type, removal.data["actor"]) == ("knowledge.remove", "retire")
