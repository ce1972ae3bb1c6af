"""Skills in an episode: defined before it begins, called in it, told in its prompt and in its trajectory."""

from __future__ import annotations

from typing import Any

import pytest

from evolve.environments.office.environment import Office, OfficeConfig
from evolve.episode.rollout import Attempt, RolloutConfig, rollout
from evolve.protocols import Action, ActionFormat, StepResult
from memory.records import Injection, Outcome, Record, Task, Trajectory
from policies.protocols import ToolSpec
from policies.scripted import ScriptedPolicy
from skills.record import Skill

PAY = '''\
def pay_to(name: str, amount: float, memo: str) -> str:
    """Pay an amount to a contact, found by name."""
    contact = find_contact(name)
    return apps.payments.send(to=contact["handle"], amount=amount, memo=memo)
'''
FIND = '''\
def find_contact(name: str) -> dict[str, str]:
    """Return the contact of that name."""
    return apps.contacts.find(name=name)
'''
DOUBLE = 'def double(n: int) -> int:\n    """Double."""\n    return 2 * n\n'
CALL = 'pay_to("Rodor", 77.93, "early lunch")\napps.task.done()'


def stored(number: int, source: str, *requires: str) -> Record[Any]:
    payload = Skill(source=source, requires=requires)
    return Record[Skill](id=f"s{number}", kind="skill", slug="skill", number=number, payload=payload)


SKILLS = (stored(2, FIND), stored(1, PAY, "find_contact"))


@pytest.fixture(scope="module")
def office() -> Office:
    return Office(OfficeConfig(deployment=3))


async def attempt(
    office: Office, policy: ScriptedPolicy, skills: tuple[Record[Any], ...] = SKILLS, **acting: Any
) -> Trajectory:
    task = next(task for task in office.tasks("train") if task.id == "office-3/pay-0_3")
    injected = tuple(
        Injection(record_id=record.id, version=1, label=record.label, rank=at) for at, record in enumerate(skills)
    )
    plan = Attempt(id="tr", task=task, seed=1, skills=skills, injected=injected)
    return await rollout(office, policy, plan, RolloutConfig(world="W", skills=True, **acting))


async def test_a_skill_and_what_it_calls_are_there_from_the_first_action(office: Office) -> None:
    trajectory = await attempt(office, ScriptedPolicy([CALL], profile="compact"))
    assert [(step.action, step.error) for step in trajectory.steps] == [(CALL, None)]
    assert trajectory.success
    assert [item.label for item in trajectory.injected] == ["skill-00002", "skill-00001"]
    assert trajectory.prelude.index("def find_contact") < trajectory.prelude.index("def pay_to")


class Sessions:
    """A world whose episodes can do nothing before their opening was read."""

    name = "sessions"
    action_format: ActionFormat = "code"
    tools: tuple[ToolSpec, ...] = ()

    def describe(self, profile: str) -> str:
        return "a world"

    def tasks(self, split: str) -> list[Task]:
        return [Task(id="a", instruction="Pay.")]

    def start(self, task: Task, seed: int = 0) -> SessionEpisode:
        return SessionEpisode()


class SessionEpisode:
    """Keeps what it ran."""

    ran: list[str] | None = None

    async def opening(self) -> str:
        self.ran = []
        return "Who are you?"

    async def step(self, action: Action) -> StepResult:
        assert self.ran is not None
        self.ran.append(action.text)
        return StepResult(observation="", error="no such name" if "contacts" in action.text else None)

    async def grade(self) -> Outcome:
        return Outcome(success=True, reward=1.0)

    async def close(self) -> None:
        pass


async def test_skills_are_defined_after_the_opening_of_an_episode() -> None:
    for skills, kept in ((SKILLS, ""), ((stored(3, DOUBLE),), DOUBLE)):
        world = Sessions()
        plan = Attempt(id="tr", task=world.tasks("train")[0], seed=1, skills=skills)
        policy = ScriptedPolicy(["double(2)"], profile="compact")
        trajectory = await rollout(world, policy, plan, RolloutConfig(world="W", skills=True, max_steps=1))
        assert (trajectory.opening, trajectory.success) == ("Who are you?", True)
        assert trajectory.prelude.strip() == kept.strip()


async def test_defining_skills_takes_no_step(office: Office) -> None:
    trajectory = await attempt(office, ScriptedPolicy([CALL], profile="compact"), max_steps=1)
    assert trajectory.success


async def test_the_compact_prompt_lists_them_between_rules_and_task(office: Office) -> None:
    policy = ScriptedPolicy([CALL], profile="compact")
    await attempt(office, policy)
    lines = policy.seen[0][0].content.splitlines()
    assert lines[lines.index("rules:") + 1 :] == [
        "skills:",
        "- Return the contact of that name.: find_contact(name)",
        "- Pay an amount to a contact, found by name.: pay_to(name, amount, memo)",
        'task: pay "Rodor" 77.93 for "early lunch"',
    ]


async def test_the_full_prompt_also_says_how_to_ask_for_one_and_how_to_save(office: Office) -> None:
    policy = ScriptedPolicy([f"```python\n{CALL}\n```"])
    trajectory = await attempt(office, policy)
    system = policy.seen[0][0].content
    assert trajectory.success
    assert "- find_contact(name: str) -> dict[str, str]: Return the contact of that name." in system
    assert all(f"<{verb}_skill>name</{verb}_skill>" in system for verb in ("show", "save", "update", "delete"))


@pytest.mark.parametrize("profile", ["full", "compact"])
async def test_an_agent_that_does_not_work_with_skills_reads_nothing_of_them(office: Office, profile: Any) -> None:
    policy = ScriptedPolicy(["apps.task.done()"], profile=profile)
    task = office.tasks("train")[0]
    await rollout(office, policy, Attempt(id="tr", task=task, seed=1), RolloutConfig(world="W", max_steps=1))
    assert "skill" not in "".join(message.content for message in policy.seen[0])


BROKEN = stored(3, 'def pay_now(sum: float = nothing) -> str:\n    """Pay."""\n    return ""\n')
CLASH = stored(4, 'import random as find_contact\n\n\ndef draw() -> int:\n    """Draw."""\n    return 4\n')


async def test_a_skill_that_cannot_be_defined_is_left_out_with_what_calls_it_and_this_is_told(office: Office) -> None:
    calls_it = stored(5, 'def pay_all() -> str:\n    """Pay."""\n    return pay_now()\n', "pay_now")
    policy = ScriptedPolicy([CALL, "apps.task.done()"], profile="compact")
    trajectory = await attempt(office, policy, (*SKILLS, BROKEN, calls_it))
    why = "pay_now: NameError: name 'nothing' is not defined; pay_all: it calls pay_now"
    assert trajectory.prelude_error == why
    assert [item.record_id for item in trajectory.injected] == [record.id for record in SKILLS]
    assert "pay_now" not in trajectory.prelude + policy.seen[0][0].content
    assert trajectory.steps[0].error is None


async def test_skills_whose_imports_clash_are_left_out_and_this_is_told(office: Office) -> None:
    policy = ScriptedPolicy([CALL, "apps.task.done()"], profile="compact")
    trajectory = await attempt(office, policy, (*SKILLS, CLASH))
    assert "imports" in (trajectory.prelude_error or "")
    assert (trajectory.prelude, trajectory.injected) == ("", ())
    assert "- " not in policy.seen[0][0].content
    assert trajectory.steps[0].error == "NameError: name 'pay_to' is not defined"
