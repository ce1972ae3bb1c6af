"""Gate `static` refuses what says nothing of the world, and lets every true lesson pass that we have.

E1  what a prompt shows as an answer, in part or as a whole, is no lesson; the words are those of the files
E2  nor is what only repeats the task or tells its result, what says that something was right or wrong, and what could
    not be false; the texts are those that a model of half a billion parameters learned on Formula
E3  none of the office's house rules is refused, and none of a playbook that a large model learned on AppWorld
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from evolve.environments.office.environment import Office, OfficeConfig
from evolve.episode.echo import FEEDBACK, PROMPTS, plain
from evolve.episode.echo import HARBOUR as HARBOUR_WORDS
from evolve.episode.prompting import NO_CODE
from evolve.gates.static import StaticGate
from memory.records import DeltaOp, Op, Provenance, Step, Task, Trajectory, Trust
from playbooks.view import RecordView
from policies.structured import NO_OBJECT
from policies.templates import prompt_names, prompt_source
from tests.playbooks.conftest import PARTS

TRAINED = "appworld_offline_trained_no_gt_playbook.txt"
EPISODE = Trajectory(task=Task(id="t1", instruction="Send the quarterly report to Ann before noon."))


def add(content: str, trust: Trust = Trust.VERIFIED) -> DeltaOp:
    return DeltaOp(op=Op.ADD, op_id=content, payload={"content": content}, provenance=Provenance(trust=trust))


async def refused(*ops: DeltaOp) -> dict[str, str]:
    """Return op id -> reason of those that the gate refuses for what they say, not for being alike."""
    verdict = await StaticGate().judge(ops, RecordView(), [EPISODE])
    return {key: why for key, why in verdict.rejected.items() if "duplicate" not in why}


def examples() -> list[str]:
    """Return the quoted values of the answers that our prompts show, of more than one word."""
    found: list[str] = []
    for prompts in PROMPTS:
        for name in prompt_names(prompts):
            text = prompt_source(prompts, name)
            answers = re.findall(r"^\s*\{\"?.*", re.sub(r"\{[{%].*?[}%]\}", "", text), re.DOTALL | re.MULTILINE)
            found += [value for answer in answers for value in re.findall(r'"([^"]*\w \w[^"]*)"', answer)]
    return found


@pytest.mark.parametrize("parroted", ["the rule", "the call to make then", "for ADD, EDIT, MERGE"])
async def test_the_placeholders_that_a_small_model_once_learned_are_refused(parroted: str) -> None:
    (why,) = (await refused(add(parroted))).values()
    assert why.startswith("repeats the words of our own prompts")


async def test_whatever_a_prompt_shows_as_an_answer_is_refused() -> None:
    shown = examples()
    assert len(shown) > 10
    found = await refused(*map(add, dict.fromkeys(shown)))
    assert set(found) == set(shown)


def test_the_feedback_that_is_refused_is_what_our_agent_says() -> None:
    said = [" ".join(plain(text)) for text in (NO_OBJECT, NO_CODE)]
    assert all(told in text for told, text in zip(FEEDBACK, said, strict=True))


async def test_a_part_of_a_prompt_in_a_longer_text_is_refused() -> None:
    lesson = "In general: no names, ids or amounts that belong to this task alone, as always."
    assert "repeats the words of our own prompts" in (await refused(add(lesson)))[lesson]


async def test_a_note_is_read_part_by_part() -> None:
    def note(**parts: Any) -> DeltaOp:
        return DeltaOp(op=Op.ADD, op_id="note", kind="note", payload={**PARTS, **parts})

    assert await refused(note()) == {}
    assert "our own prompts" in (await refused(note(strategy="the call to make then")))["note"]


HARBOUR = ("Lock the crane first, then send.", "crane.lock comes before send", "as hbr-00007 says: lock it")
"""Of our examples, in words of a model's own: SmolLM2 went on about cranes when it was asked about finance."""


@pytest.mark.parametrize("lesson", HARBOUR)
async def test_what_goes_on_about_the_world_of_our_examples_is_refused(lesson: str) -> None:
    assert "as the examples of our prompts do" in (await refused(add(lesson)))[lesson]
    assert await refused(add(lesson, Trust.OPERATOR)) == {}


async def test_a_world_that_has_cranes_may_be_learned_from() -> None:
    def episode(**told: Any) -> Trajectory:
        return EPISODE.model_copy(update={"steps": (Step(index=0, action="look()", **told),)})

    async def judged(trajectory: Trajectory) -> bool:
        return bool((await StaticGate().judge([add(HARBOUR[0])], RecordView(), [trajectory])).accepted)

    assert await judged(episode(observation="The crane is open."))
    assert not await judged(episode(observation="NameError: name 'crane'", error="NameError: name 'crane'"))
    pushed = Step(index=0, action="docker push harbor.corp/app", observation="pushed")
    told = add("x").model_copy(update={"payload": {"content": "Tag the image first.", "action": pushed.action}})
    trajectory = EPISODE.model_copy(update={"steps": (pushed,)})
    assert (await StaticGate().judge([told], RecordView(), [trajectory])).accepted


def test_each_word_of_the_examples_world_stands_in_a_prompt_that_shows_an_answer() -> None:
    shown = " ".join(examples()).lower()
    assert {"crane", "berth"} <= HARBOUR_WORDS & set(re.findall(r"\w+", shown))


@pytest.mark.parametrize("lesson", ["Send the quarterly report", "before noon"])
async def test_what_only_repeats_the_task_is_refused(lesson: str) -> None:
    assert "repeats words of task 't1'" in (await refused(add(lesson)))[lesson]
    assert await refused(add(f"{lesson}: attach it as a PDF.")) == {}


LOAN = Trajectory(
    task=Task(
        id="f1",
        instruction="A stock pays a dividend per share of $0.60 at a share price of $30; bonds $200,000. Its yield?",
    ),
    steps=(Step(index=0, action="print(fv)", observation="9529.882937207223"),),
)


@pytest.mark.parametrize(
    ("lesson", "why"),
    [
        ("The dividend per share is 0.60 and the share price is 30.", "repeats words of task 'f1'"),
        ("A share price of 30, bonds of $200000.", "repeats words of task 'f1'"),
        ("50,000", "could be false"),
        ("The reply holds no JSON object.", "repeats the words of our own prompts"),
        ("The answer holds no JSON object", "repeats the words of our own prompts"),
        ("exported_products", "could be false"),
        ("Error: no code was found", "repeats the words of our own prompts"),
        ("The future value of the investment is 9529.882937207223.", "tells 9529.882937207223, a result of task 'f1'"),
        ("The action failed in the same way before: change it.", "repeats the words of our own prompts"),
        ("The EPS calculation is correct.", "right or wrong"),
        ("The code did not print the expected result.", "right or wrong"),
        ("The calculation went wrong.", "right or wrong"),
        ("The code failed.", "right or wrong"),
        ("The loan payments are not correctly calculated.", "right or wrong"),
        ("The calculation of the Price-to-Earnings Ratio is incorrect.", "right or wrong"),
        (
            "The flows were not calculated correctly, and went well once the flows were calculated correctly.",
            "right or wrong",
        ),
    ],
)
async def test_what_a_small_model_reports_of_one_episode_is_no_lesson(lesson: str, why: str) -> None:
    verdict = await StaticGate().judge([add(lesson)], RecordView(), [LOAN])
    assert why in verdict.rejected[lesson]


@pytest.mark.parametrize(
    "lesson",
    [
        "The dividend yield is 0.60 / 30 times 100.",
        "The current ratio is calculated as current_assets / current_liabilities.",
        "Check that the date is correct.",
        "The total is correct if tax is added.",
        "The rate was wrong: it is a share, not percent.",
        "The constant e is 2.718281828.",
        "SELECT without ORDER BY did not return the expected order.",
        "The column cust_id is wrong, the column customer_id is correct.",
        "The flag -R is wrong but the flag -r is correct.",
        "grep with -E did not match the right lines.",
        "Pressing Enter did not submit the right form.",
        "A refund to a gift card is correct and an exchange is wrong.",
        "The share price of a stock is not its dividend of $0.60.",
        "Answers are compared to within 0.00001.",
        "Multiply pounds by 0.45359237.",
        "Reply with one python block.",
        "When the search reply is empty, widen the date range.",
        "\u5148\u767b\u5f55\u7cfb\u7edf\u518d\u67e5\u8be2\u8ba2\u5355\u91d1\u989d",
    ],
)
async def test_what_says_what_makes_it_right_is_one(lesson: str) -> None:
    assert (await StaticGate().judge([add(lesson)], RecordView(), [LOAN])).accepted == (lesson,)


async def test_a_condition_of_the_world_of_our_examples_is_refused_too() -> None:
    parts = {"content": "Compute the rate first, then the payment.", "cue": "after crane.lift(box)"}
    op = add("x").model_copy(update={"payload": parts})
    assert "speaks of 'crane'" in (await refused(op))["x"]


async def test_a_note_may_say_that_something_was_wrong_where_it_says_what_is_right() -> None:
    said = {**PARTS, "mistake_summary": "The rate was wrong."}
    assert await refused(DeltaOp(op=Op.ADD, op_id="note", kind="note", payload=said)) == {}


@pytest.mark.parametrize(
    "lesson", ["Always follow the instructions carefully.", "Avoid mistakes and use the right call!"]
)
async def test_what_could_not_be_false_is_refused(lesson: str) -> None:
    assert "could be false" in (await refused(add(lesson)))[lesson]
    assert await refused(add(f"{lesson} Amounts are in cents.")) == {}


async def test_a_loop_that_the_model_fell_into_is_refused() -> None:
    looped = "The answer is 1.11. " * 12
    assert (
        "says 'the answer is 1' over and over" in (await refused(add("The answer is 1. " * 3)))["The answer is 1. " * 3]
    )
    assert await refused(add(looped))
    assert await refused(add("Open the gate. Wait. Close the gate. Wait.")) == {}


@pytest.mark.parametrize(
    ("lesson", "loops"),
    [
        ("The ROI is 400.0" + ", and the ROI is 200.0" * 3, True),
        ("The ratio is 1.0, a ratio of this. The ratio is 1.0. The ratio is 1.0. The ratio is", True),
        ("Pay the fee, book the room, pay the fee, book the tour, pay the fee, book the car.", False),
        ("Pad with zeros: 0, 0, 0, 0, 0, 0, 0, 0.", False),
    ],
)
async def test_a_loop_within_a_sentence_is_refused(lesson: str, loops: bool) -> None:
    assert ["over and over" in why for why in (await refused(add(lesson))).values()] == [True] * loops


async def test_an_operators_own_words_are_not_read() -> None:
    assert await refused(add("the rule", Trust.OPERATOR)) == {}


async def test_no_rule_of_an_office_is_refused() -> None:
    rules = {rule for deployment in range(10) for rule in Office(OfficeConfig(deployment=deployment)).oracle}
    assert len(rules) > 50
    assert await refused(*map(add, sorted(rules))) == {}


async def test_no_lesson_that_a_large_model_learned_is_refused() -> None:
    folder = os.environ.get("EVOLVE_TEST_DATA")
    if not folder or not (Path(folder) / TRAINED).exists():
        pytest.skip(f"EVOLVE_TEST_DATA names no folder with {TRAINED}")
    lessons = re.findall(r"^\[[a-z]+-\d+\] (.+)$", (Path(folder) / TRAINED).read_text(), re.MULTILINE)
    assert len(lessons) == 318
    found = await refused(*map(add, dict.fromkeys(lessons)))
    ours = ("our own prompts", "could be false", "right or wrong", "words of task", "a result of task")
    assert {why for why in found.values() if any(part in why for part in ours)} == set()
