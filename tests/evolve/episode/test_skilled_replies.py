"""What the agent says about skills: answered as a step that the world never sees, and proposed to the gates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from evolve.episode.rollout import Attempt, RolloutConfig, rollout
from evolve.episode.skill_runtime.skill_proposals import skill_ops
from evolve.loop.assembly import open_store
from memory.records import Op, Outcome, Record, Status, Step, Task, Trajectory, Trust
from policies.scripted import ScriptedPolicy
from skills.record import Skill
from tests.evolve.skilled_office import PAY, call, config, episodes, office, taught, work

CALL = 'pay_to("Rodor", 77.93, "early lunch")'
DONE = "```python\napps.task.done()\n```"
BETTER = PAY.replace("contact = ", "print(name)\n    contact = ")


def code(*parts: str) -> str:
    return "```python\n" + "\n".join(parts) + "\n```"


def said(verb: str, name: str = "pay_to") -> str:
    return f"<{verb}_skill>{name}</{verb}_skill>"


def stored(source: str = PAY) -> Record[Any]:
    return Record[Skill](id="s1", kind="skill", slug="skill", number=1, version=4, payload=Skill(source=source))


async def talk(
    *replies: str, skills: tuple[Record[Any], ...] = (), profile: Any = "full", described: str = ""
) -> Trajectory:
    task = next(task for task in office().tasks("train") if task.id == "office-3/pay-0_3")
    policy = ScriptedPolicy(replies, profile=profile)
    acting = RolloutConfig("W", skills=True, described=described)
    return await rollout(office(), policy, Attempt(id="tr", task=task, seed=1, skills=skills), acting)


async def test_a_skill_is_read_on_demand_and_the_world_never_sees_the_question() -> None:
    trajectory = await talk(said("show"), code(CALL), DONE, skills=(stored(),))
    assert trajectory.steps[0].action == "show_skill('pay_to')"
    assert trajectory.steps[0].observation == PAY.strip()
    assert trajectory.success
    assert trajectory.usage.calls == 3


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (said("show", "pay_all"), "error: no skill 'pay_all'; pay_to"),
        (said("save", "pay_all"), "no function 'pay_all' that you defined and called here without an error"),
        (said("save"), "is a skill already; to change it reply with <update_skill>pay_to</update_skill>"),
        (said("update"), "no function 'pay_to' that you defined"),
        (said("update", "pay_all"), "no skill 'pay_all' to update; pay_to"),
        (said("delete", "pay_all"), "no skill 'pay_all' to delete; pay_to"),
    ],
)
async def test_what_cannot_be_done_is_told_and_proposes_nothing(reply: str, why: str) -> None:
    trajectory = await talk(reply, DONE, skills=(stored(),))
    assert why in trajectory.steps[0].observation
    assert trajectory.steps[0].error
    assert skill_ops(trajectory, (stored(),), success=True) == ()


async def test_what_no_skill_may_be_is_told_at_once() -> None:
    bare = 'def lunch():\n    return apps.contacts.find(name="Rodor")'
    trajectory = await talk(code(bare, "print(lunch())"), said("save", "lunch"), DONE)
    assert "the function has no docstring" in trajectory.steps[1].observation
    assert "'Rodor' comes from the task it was made from" in trajectory.steps[1].observation


ASK = 'def ask(name: str) -> bool:\n    """Tell whether there is such a contact."""\n    return bool(find(name))\n'
FIND = """\
def find(name: str) -> str:
    \"\"\"Find a contact.\"\"\"
    if name == "Rodor":
        return name
    return apps.contacts.find(name=name)["handle"]
"""


async def test_it_is_told_what_the_gate_would_say_of_this_world() -> None:
    both = code(FIND, ASK, 'print(ask("Rodor"))')
    bare = await talk(both, said("save", "find"), said("save", "ask"), DONE)
    assert [step.error or "" for step in bare.steps[1:3]] == [
        "line 3: 'Rodor' comes from the task it was made from; make it a parameter",
        "line 3: it requires 'find', which is no skill in use",
    ]
    world = 'apps.contacts.find(name: str)\n"Rodor" is the cashier'
    allowed = await talk(both, said("save", "find"), said("save", "ask"), DONE, described=world)
    assert [step.error for step in allowed.steps[1:3]] == [None, None]
    strange = await talk(both, said("save", "find"), DONE, described='apps.contacts.look(name)\n"Rodor"')
    assert "there is no function apps.contacts.find; did you mean 'contacts.look'?" in (strange.steps[1].error or "")


def test_a_run_answers_by_the_environments_own_description(tmp_path: Path) -> None:
    settings = config(tmp_path, run={"tasks": 1}, gate={"static": {"allow": ["Rodor"]}})
    wrong = FIND.replace("contacts.find(", "contacts.search(")
    replies = (code(wrong, 'find("Rodor")'), said("save", "find"), DONE)
    work(settings, ScriptedPolicy(replies, profile="full"))
    (trajectory,) = episodes(settings)
    assert "there is no function apps.contacts.search" in (trajectory.steps[1].error or "")
    assert "Rodor" not in (trajectory.steps[1].error or "")


async def test_a_saved_function_is_proposed_with_what_it_was_made_from() -> None:
    trajectory = await talk(code(PAY, CALL), said("save"), DONE)
    (op,) = skill_ops(trajectory, (), success=True)
    assert (op.op, op.kind) == (Op.ADD, "skill")
    assert op.payload is not None
    assert op.payload["source"].strip() == PAY.strip()
    assert op.payload["origin"] == trajectory.task.instruction
    assert (op.provenance.task_ids, op.provenance.trajectory_ids) == ((trajectory.task.id,), ("tr",))
    assert skill_ops(trajectory, (), success=False) == ()


@pytest.mark.parametrize("last", ["", "apps.task.done()"])
async def test_what_was_written_and_called_is_proposed_without_a_word(last: str) -> None:
    trajectory = await talk(code(PAY, CALL, last), DONE)
    (op,) = skill_ops(trajectory, (), success=True)
    assert (op.op, op.payload and op.payload["source"].strip()) == (Op.ADD, PAY.strip())
    assert skill_ops(trajectory, (), success=False) == ()
    said_too = await talk(code(PAY, CALL), said("save"), DONE)
    assert [each.op for each in skill_ops(said_too, (), success=True)] == [Op.ADD], "saying it proposes nothing twice"


async def test_what_was_not_called_or_failed_is_not_proposed() -> None:
    for block in (code(PAY), code(PAY, "pay_to('Nobody here', 1, 'x')"), code(f"if True:\n    {FIND!r}")):
        assert skill_ops(await talk(block, DONE), (), success=True) == ()


async def test_what_was_said_overrides_what_was_done() -> None:
    trajectory = await talk(code(BETTER, CALL), said("delete"), DONE, skills=(stored(),))
    assert [op.op for op in skill_ops(trajectory, (stored(),), success=True)] == [Op.REMOVE]


async def test_a_change_is_an_edit_of_the_version_that_was_shown() -> None:
    trajectory = await talk(code(BETTER, CALL), said("update"), DONE, skills=(stored(),))
    (op,) = skill_ops(trajectory, (stored(),), success=True)
    assert (op.op, op.target_id, op.base_version) == (Op.EDIT, "s1", 4)
    assert op.payload is not None
    assert "print(name)" in op.payload["source"]


async def test_what_the_loop_answered_is_no_part_of_the_test() -> None:
    trajectory = await talk(code(PAY, CALL), said("save"), said("show"), DONE)
    asked = "<search_experience>whom to pay</search_experience>"
    search = Step(index=4, action="search_experience('whom to pay')", reply=asked)
    done = trajectory.model_copy(update={"steps": (*trajectory.steps, search)})
    (op,) = skill_ops(done, (), success=True)
    assert op.payload is not None
    assert [test["code"] for test in op.payload["tests"]] == [f"{CALL}\napps.task.done()".replace('"', "'")]


@pytest.mark.parametrize("terms", [400, 1500])
def test_code_that_is_nested_too_deep_proposes_nothing(terms: int) -> None:
    deep = f"print({' + '.join(['1'] * terms)})"
    steps = (Step(index=0, action=f"{PAY}{CALL}\n{deep}"), Step(index=1, action=deep))
    trajectory = Trajectory(task=Task(id="t", instruction="x"), steps=steps, outcome=Outcome(success=True, reward=1))
    assert skill_ops(trajectory, (), success=True) == ()


async def test_a_deletion_is_proposed_even_by_a_failed_episode() -> None:
    trajectory = await talk(said("delete"), DONE, skills=(stored(),))
    (op,) = skill_ops(trajectory, (stored(),), success=False)
    assert (op.op, op.target_id, op.base_version) == (Op.REMOVE, "s1", 4)


async def test_words_about_skills_in_the_worlds_own_steps_ask_for_nothing() -> None:
    task = Task(id="t", instruction="x")
    steps = (Step(index=0, action=CALL), Step(index=1, action="look()", reply=f"{said('save')} look()"))
    trajectory = Trajectory(task=task, steps=steps, outcome=Outcome(success=True, reward=1))
    assert skill_ops(trajectory, (), success=True) == ()


async def test_in_the_compact_profile_a_function_is_saved_by_its_use() -> None:
    trajectory = await talk(f"{PAY}\n{CALL}\napps.task.done()", profile="compact")
    assert [op.op for op in skill_ops(trajectory, (), success=True)] == [Op.ADD]
    assert [op.op for op in skill_ops(trajectory, (stored(BETTER),), success=True)] == [Op.EDIT]
    assert skill_ops(trajectory, (stored(),), success=True) == ()


def test_what_one_task_wrote_the_next_one_calls(tmp_path: Path) -> None:
    settings = config(tmp_path)
    work(settings)
    first, *later = episodes(settings)
    assert first.steps[0].action.startswith("def pay_to")
    assert first.injected == ()
    assert [t.steps[0].action.startswith("pay_to(") for t in later] == [True, True]
    with open_store(settings) as store:
        (record,) = store.records("default")
    assert (record.label, record.status, record.version) == ("skill-00001", Status.PROVISIONAL, 1)
    assert record.provenance.trust is Trust.VERIFIED
    assert record.provenance.task_ids == (first.task.id,)


def test_a_better_version_is_the_same_record_with_its_history(tmp_path: Path) -> None:
    settings = config(tmp_path)
    old = taught(settings, PAY.replace("amount=amount", "amount=amount * 2"))

    work(settings, ScriptedPolicy(lambda messages, _: f"{PAY}\n{call(messages)}", profile="compact"))
    with open_store(settings) as store:
        (record,) = store.records("default")
        edits = [event for event in store.history(record.id) if event.type == "knowledge.edit"]
    assert (record.id, record.status) == (old.id, Status.PROVISIONAL)
    assert record.payload.source.strip() == PAY.strip()
    assert len(edits) == 1
