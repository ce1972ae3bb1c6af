"""The scripted solver as a skill agent: what it writes runs, what it is shown it calls, what fails it writes anew."""

from __future__ import annotations

import pytest

from evolve.environments.office.environment import Office, OfficeConfig
from evolve.environments.office.house_rules import draw
from evolve.environments.office.intents import INTENTS
from evolve.environments.office.skilled import Listed, find, next_action, parameters, phrases, written
from evolve.environments.office.solver import Knowledge
from memory.records import Record, Task
from skills.listing import line
from skills.record import Skill

OFFICE = Office(OfficeConfig(deployment=3))


def skill(intent_id: str, deployment: int = 3, name: str = "") -> Skill:
    (intent,) = (each for each in INTENTS if each.id == intent_id)
    source = written(intent, draw(deployment), name or intent.id, parameters(intent), phrases(intent)[0])
    return Skill(source=source)


def listed(skills: list[Skill]) -> list[Listed]:
    return [each for one in skills if (each := Listed.read(line(one, "compact")))]


async def play(task: Task, skills: list[Skill], rules: tuple[str, ...] = OFFICE.oracle) -> tuple[list[str], bool]:
    """Return the actions of an episode, and whether it solved the task."""
    lines = [f"- {text} [{at}]" for at, text in enumerate(rules, 1)]
    episode, actions, seen = OFFICE.start(task), list[str](), list[str]()
    for each in skills:
        assert episode.run(each.source).error is None
    while len(actions) < 16:
        actions.append(next_action(OFFICE.goal(task), Knowledge.read(lines), seen, listed(skills)))
        result = episode.run(actions[-1])
        seen.append(result.observation)
        if result.done:
            break
    outcome = await episode.grade()
    await episode.close()
    return actions, outcome.success


@pytest.mark.parametrize(
    "task", OFFICE.tasks("test_challenge")[:6] + OFFICE.tasks("train")[:12], ids=lambda task: task.id
)
async def test_it_writes_a_function_for_each_part_and_calls_it(task: Task) -> None:
    actions, success = await play(task, [])
    assert success
    assert len(actions) == len(OFFICE.goal(task).intents) + 1
    assert all("def " in action for action in actions[:-1])


async def test_what_it_is_shown_it_calls() -> None:
    task = OFFICE.tasks("test_challenge")[0]
    known = [skill(intent.id, name=f"do_{intent.id}") for intent, _ in OFFICE.goal(task).intents]
    actions, success = await play(task, [skill("archive", name="of_no_use"), *known])
    assert success
    assert not any("def " in action for action in actions)
    assert all(f"{one.name}(" in action for one, action in zip(known, actions, strict=False))


async def test_a_skill_that_fails_is_written_anew_under_its_name() -> None:
    task = next(task for task in OFFICE.tasks("train") if task.metadata["family"] == "send_mail")
    stale = next(
        one
        for deployment in range(9)
        if draw(deployment)["mail_to"] != draw(3)["mail_to"]
        for one in [skill("send_mail", deployment, "mail_them")]
    )
    actions, success = await play(task, [stale])
    assert success
    assert ["def mail_them(" in action for action in actions] == [False, True, False]


def test_a_skill_is_known_by_its_description_and_its_parameters() -> None:
    (pay,) = (intent for intent in INTENTS if intent.id == "pay")
    right = Listed("pay who amount for memo", "x", ("memo", "who", "amount"))
    assert find(pay, [right]) is right
    assert find(pay, [Listed(right.phrase, "x", ("who",)), Listed("pay", "x", right.parameters)]) is None
    assert Listed.read("- pay who: x(who)") == Listed("pay who", "x", ("who",))
    assert Listed.read("- no call here") is None


def test_skills_of_all_intents_are_records_whose_catalogue_line_reads_back() -> None:
    for intent in INTENTS:
        one = skill(intent.id)
        assert Record[Skill](kind="skill", payload=one).payload.sha256
        assert listed([one]) == [Listed(phrases(intent)[0], intent.id, parameters(intent))]
