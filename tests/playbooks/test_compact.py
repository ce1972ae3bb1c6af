"""The compact dialect, to the byte: what the pocket model is trained on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from memory.records import Insight, Outcome, Step
from playbooks.compact import (
    CompactDecision,
    CompactReflection,
    curate_reply,
    reflect_reply,
    salient_steps,
    shown_observation,
)
from playbooks.curator import curate_messages
from playbooks.likeness import TrigramIndex
from playbooks.reflector import reflect_messages
from policies.structured import parse

Make = Callable[..., Any]

LOOK = ('c = apps.contacts.find(name="Rodor")\nprint(c)', "{'id': 'c0'}", None)
BAD = ('apps.payments.send(to=c["id"])', "error: payments.send: E1", "payments.send: E1")
GOOD = ('apps.payments.send(to=c["handle"])', "ok", None)
DONE = ("apps.task.done()", "ok", None)


def test_reflect_prompt_shows_errors_what_followed_and_the_last_step(played: Make, bullet: Make) -> None:
    trajectory = played(LOOK, BAD, GOOD, LOOK, DONE, failed={"payments": "payments.send amount: expected cents, got x"})
    (message,) = reflect_messages(trajectory, [bullet(3, "log in\nfirst"), bullet(12, "be kind")], "compact")
    assert message.role == "user"
    assert message.content == (
        "reflect\n"
        "task: pay Rodor 12.50 for lunch\n"
        '>> apps.payments.send(to=c["id"])\n'
        "<< error: payments.send: E1\n"
        '>> apps.payments.send(to=c["handle"])\n'
        "<< ok\n"
        ">> apps.task.done()\n"
        "<< ok\n"
        "fail: payments: payments.send amount: expected cents, got x\n"
        "rules:\n"
        "- log in first [3]\n"
        "- be kind [12]"
    )


def test_a_solved_task_says_ok_and_shows_no_quiet_step(played: Make) -> None:
    (message,) = reflect_messages(played(LOOK, DONE), [], "compact")
    assert message.content == "reflect\ntask: pay Rodor 12.50 for lunch\nok\nrules:"


def test_label_free_never_reads_the_outcome(played: Make) -> None:
    failed = played(LOOK, BAD, GOOD, LOOK, DONE, failed={"payments": "secret"})
    solved = failed.model_copy(update={"outcome": Outcome(success=True, reward=1.0)})
    ungraded = failed.model_copy(update={"outcome": None})
    texts = {reflect_messages(t, [], "compact", True)[-1].content for t in (failed, solved, ungraded)}
    assert len(texts) == 1
    assert "secret" not in (text := texts.pop())
    assert "apps.task.done()" not in text
    assert {reflect_messages(t, [], "full", True)[-1].content for t in (failed, solved, ungraded)} == {
        reflect_messages(failed, [], "full", True)[-1].content
    }


@pytest.mark.parametrize(("outcome", "line"), [(None, "missing"), (Outcome(success=False, reward=0.0), "failed")])
def test_a_failure_without_checks_is_still_a_failure(played: Make, outcome: Outcome | None, line: str) -> None:
    trajectory = played(DONE).model_copy(update={"outcome": outcome})
    assert f"\nfail: outcome: {line}\n" in reflect_messages(trajectory, [], "compact")[0].content
    assert salient_steps(trajectory) == trajectory.steps


def test_an_error_in_the_last_step_is_shown_once(played: Make) -> None:
    assert salient_steps(played(LOOK, BAD, failed={"a": "b"})) == played(LOOK, BAD).steps[1:]


def test_a_long_observation_is_cut_but_its_error_stays_visible() -> None:
    assert shown_observation(Step(index=0, action="", observation="x" * 300)) == "x" * 200
    hidden = Step(index=0, action="", observation="x" * 300 + "error: E1", error="E1")
    assert shown_observation(hidden) == "E1"


@pytest.mark.parametrize(("before", "shown"), [(10, False), (1500, True), (3000, False)])
def test_the_full_prompt_shows_an_error_apart_where_the_cut_would_hide_it(
    before: int, shown: bool, played: Make
) -> None:
    step = ("f()", f"{'x' * before}error: E1{'x' * (3000 - before)}", "error: E1")
    (text,) = (message.content for message in reflect_messages(played(step), [], "full")[-1:])
    assert ("\nerror:\n  error: E1\n" in text) is shown
    assert text.count("error: E1") == 1


def test_curate_prompt_lists_the_nearest_rules_and_the_lesson(bullet: Make) -> None:
    known = [
        bullet(number, text) for number, text in enumerate(("mail.send: to must be id", "cats", "mail.send: x"), 1)
    ]
    lesson = "mail.send: to must be email"
    (message,) = curate_messages(Insight(content=lesson), TrigramIndex(known).nearest(lesson, 2), "compact")
    assert message.content == (
        "curate\nrules:\n- mail.send: to must be id [1]\n- mail.send: x [3]\nlesson: mail.send: to must be email"
    )
    assert curate_messages(Insight(content="a\nb"), [], "compact")[0].content == "curate\nrules:\nlesson: a b"


def test_replies_are_one_line_of_json_that_the_parser_reads() -> None:
    said = reflect_reply(["a\nb", "ü"], [("log in", 3), ("page 4", 12)])
    assert said == '{"insights": ["a b", "ü"], "harmful": ["log in [3]", "page 4 [12]"]}'
    assert parse(said, CompactReflection)[0] == CompactReflection(insights=("a b", "ü"), harmful=(3, 12))
    assert curate_reply("ADD", "be x", "be x") == '{"target": "be x [?]", "lesson": "be x", "op": "ADD"}'
    assert parse(curate_reply("ADD", "be 1", "be 1"), CompactDecision)[0] == CompactDecision(op="ADD", target=None)
    said = curate_reply("EDIT", "page must be 2", "page must be 1", 4)
    assert parse(said, CompactDecision)[0] == CompactDecision(op="EDIT", target=4)


@pytest.mark.parametrize("said", ['{"op": "edit", "target": "[4]"}', '{"op": " EDIT ", "target": 4, "why": "x"}'])
def test_decisions_are_read_tolerantly(said: str) -> None:
    assert parse(said, CompactDecision)[0] == CompactDecision(op="EDIT", target=4)


@pytest.mark.parametrize(
    "said",
    [
        '{"insights": "a [7]", "harmful": ["[shr-00003]"]}',
        '{"insights": "a", "harmful": ["[shr-00003]"]}',
        '{"insights": [{"content": "a"}], "harmful": 3}',
        '{"insights": ["a [?]"], "harmful": "b [3]"}',
    ],
)
def test_reflections_are_read_tolerantly(said: str) -> None:
    assert parse(said, CompactReflection)[0] == CompactReflection(insights=("a",), harmful=(3,))
