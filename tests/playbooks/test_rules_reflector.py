"""The rules reflector: which (failing call, error, later attempt) patterns become which lessons, and which none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from memory.records import Insight, Outcome, Record, Step, Task, ToolCall, Trajectory
from playbooks.calls import calls_of
from playbooks.rules import RulesReflector

Make = Callable[..., Any]


async def learned(trajectory: Trajectory, injected: tuple[Record[Any], ...] = (), **options: bool) -> list[Insight]:
    return list((await RulesReflector().reflect(trajectory, injected, **options)).insights)


@pytest.mark.parametrize(
    ("failing", "working", "error", "content", "cue", "action"),
    [
        (
            'apps.files.save(name="a b", folder="inbox")',
            'apps.files.save(name="a b", folder="work")',
            "files.save: E24",
            "files.save: folder must be work",
            "files.save folder",
            "work",
        ),
        (
            'apps.calendar.add(date="2026-07-13")',
            'apps.calendar.add(date=apps.calendar.dmy("2026-07-13"))',
            "E1",
            "calendar.add: date must be dmy",
            "calendar.add date",
            "dmy",
        ),
        (
            'apps.calendar.add(date=apps.calendar.iso("2026-07-13"))',
            'd = apps.calendar.dmy("2026-07-13")\napps.calendar.add(date=d)',
            "E1",
            "calendar.add: date must be dmy",
            "calendar.add date",
            "dmy",
        ),
        (
            'apps.pay.send(to=contact["id"])',
            'apps.pay.send(to=contact["handle"])',
            "E1",
            "pay.send: to must be the contact's handle",
            "pay.send to",
            "the contact's handle",
        ),
        ("apps.f.share(x)", 'apps.f.share(x, mode="read")', "E1", "f.share: mode must be read", "f.share mode", "read"),
        (
            "apps.f.share(x, mode=1)",
            "apps.f.share(x)",
            "E1",
            "f.share: mode must be left out",
            "f.share mode",
            "left out",
        ),
        ("search(page=0)", "search(page=1)", "E1", "search: page must be 1", "search page", "1"),
        ("search(1, 0)", "search(1, 5)", "E1", "search: argument 2 must be 5", "search argument 2", "5"),
        ('f(name="red book")', 'f(name="red-book")', "E1", "f: name must be kebab", "f name", "kebab"),
        ('f(name="red book")', 'f(name="RED BOOK")', "E1", "f: name must be upper", "f name", "upper"),
        (
            'f(day="2026-07-13")',
            'f(day="13.07.2026")',
            "E1",
            "f: day must be written as 99.99.9999",
            "f day",
            "written as 99.99.9999",
        ),
        ('f(n="12345")', "f(n=12345)", "E1", "f: n must be of type int", "f n", "of type int"),
        (
            "apps.mail.send(1)",
            "t = apps.mail.login()\napps.mail.send(1, token=t)",
            "E1",
            "mail.send: token must be the result of mail.login",
            "mail.send token",
            "the result of mail.login",
        ),
        (
            "apps.pay.request(1)",
            "apps.pay.unlock()\napps.pay.request(1)",
            "pay.request: E12",
            "pay.request: before it must come unlock",
            "before pay.request",
            "pay.unlock",
        ),
        ("mv(a=1)", "cd(folder='x')\nmv(a=1)", "no such file", "mv: before it must come cd", "before mv", "cd"),
        (
            "apps.pay.request(1)",
            "apps.auth.check()\napps.pay.request(1)",
            "no",
            "pay.request: before it must come auth.check",
            "before pay.request",
            "auth.check",
        ),
    ],
)
async def test_a_failure_that_was_overcome_teaches_what_changed(
    played: Make, failing: str, working: str, error: str, content: str, cue: str, action: str
) -> None:
    trajectory = played(("contact = find()", "ok", None), (failing, f"error: {error}", error), (working, "ok", None))
    insights = await learned(trajectory)
    assert (content, cue, action) in [(i.content, i.cue, i.action) for i in insights]
    assert await learned(trajectory, label_free=True) == insights


@pytest.mark.parametrize(
    ("failing", "working"),
    [
        ('send(to="bob")', 'send(to="rodor")'),
        ('send(to="c12")', 'send(to="c345")'),
        ("send(amount=1250.5)", "send(amount=12.5)"),
        ('send(to="bob")', 'send(to=rows[0]["id"])'),
        ('send(text="hello")', 'send(text="good bye and thanks")'),
    ],
)
async def test_values_of_the_task_are_no_convention(played: Make, failing: str, working: str) -> None:
    seen = ("rows = look()", "[{'id': 'c345'}]", None)
    assert await learned(played(seen, (failing, "error: E1", "E1"), (working, "ok", None))) == []


async def test_a_failure_that_was_never_overcome_and_says_nothing_teaches_nothing(played: Make) -> None:
    steps = (('f(x="a")', "error: E1", "E1"), ('f(x="b")', "error: E1", "E1"))
    assert await learned(played(*steps)) == []


async def test_a_rule_told_in_words_is_taken_at_its_word(played: Make) -> None:
    told = "payments.send: to must be the contact's handle"
    steps = (
        ('apps.payments.send(to=c["id"])', f"error: {told}", f"OfficeError: {told}"),
        ('apps.payments.send(to=c["handle"])', "ok", None),
    )
    (insight,) = await learned(played(*steps))
    assert (insight.content, insight.cue) == (told, "payments.send to")
    assert [i.content for i in await learned(played(steps[0]))] == [told]


@pytest.mark.parametrize(
    "error", ["send: must be called with 'bob' only", "list index out of range", "you must be joking"]
)
async def test_an_error_that_is_no_rule_of_the_call_is_not_taken(played: Make, error: str) -> None:
    assert await learned(played(("apps.mail.send(to='bob')", error, error))) == []


async def test_chains_of_errors_are_told_apart(played: Make) -> None:
    insights = await learned(
        played(
            ('apps.files.save(name="red book", folder="inbox")', "", "E1"),
            ('apps.files.save(name="RED BOOK", folder="inbox")', "", "E2"),
            ('apps.files.save(name="RED BOOK", folder="shared")', "", "E2"),
            ('apps.files.save(name="RED BOOK", folder="work")', "ok", None),
        )
    )
    assert [i.content for i in insights] == ["files.save: name must be upper", "files.save: folder must be work"]


@pytest.mark.parametrize(
    ("detail", "expected"),
    [
        (
            "payments.send amount: expected cents, got dollars",
            [("payments.send: amount must be cents", "payments.send amount", "cents")],
        ),
        (
            "todo.assign after: expected ping, got nothing",
            [("todo.assign: after it must come ping", "after todo.assign", "todo.ping")],
        ),
        (
            "to: expected c1, got c2; mail.send priority: expected low, got high",
            [("mail.send: priority must be low", "mail.send priority", "low")],
        ),
        ("missing", []),
        ("unexpected change", []),
    ],
)
async def test_failed_checks_that_name_a_call_teach(played: Make, detail: str, expected: list[Any]) -> None:
    trajectory = played(("apps.task.done()", "ok", None), failed={"events": detail})
    assert [(i.content, i.cue, i.action) for i in await learned(trajectory)] == expected
    assert await learned(trajectory, label_free=True) == []


async def test_injected_rules_are_tagged_by_what_was_seen(played: Make, bullet: Make) -> None:
    wrong, order, right, other = (
        bullet(1, "payments.send: amount must be dollars"),
        bullet(2, "todo.assign: after it must come nothing"),
        bullet(3, "mail.send: to must be id"),
        bullet(4, "files.save: folder must be work"),
    )
    detail = "payments.send amount: expected cents, got dollars; todo.assign after: expected ping, got nothing"
    steps = (("apps.mail.send(to=1)", "ok", None),)
    failed = await RulesReflector().reflect(played(*steps, failed={"a": detail}), [wrong, order, right, other])
    assert failed.tags == {wrong.id: "harmful", order.id: "harmful"}
    solved = await RulesReflector().reflect(played(*steps), [wrong, order, right, other])
    assert solved.tags == {right.id: "helpful"}
    assert (await RulesReflector().reflect(played(*steps), [right], label_free=True)).tags == {}


async def test_a_rule_whose_call_failed_on_the_way_did_not_help(played: Make, bullet: Make) -> None:
    rule, other = bullet(1, "mail.send: before it must come unlock"), bullet(2, "mail.find: page must be 1")
    steps = [("apps.mail.find(page=1)\napps.mail.unlock()\napps.mail.send()", "", "mail.send: E9")]
    solved = await RulesReflector().reflect(played(*steps, ("apps.mail.send()", "", None)), [rule, other])
    assert solved.tags == {other.id: "helpful"}


async def test_a_told_rule_still_refutes_what_was_dropped_for_it(played: Make, bullet: Make) -> None:
    stale = bullet(1, "mail.send: before it must come unlock")
    told = "mail.send: before it must come verify"
    steps = [
        ("apps.mail.unlock()\napps.mail.send()", "", told),
        ("apps.mail.verify()\napps.mail.send()", "", None),
    ]
    reflection = await RulesReflector().reflect(played(*steps), [stale])
    assert [insight.content for insight in reflection.insights] == [told]
    assert reflection.tags == {stale.id: "harmful"}


async def test_native_tool_calls_are_read_too() -> None:
    def step(index: int, error: str | None, *names: str) -> Step:
        calls = tuple(ToolCall(id=name, name=name, arguments={"a": 1}) for name in names)
        return Step(index=index, action="", tool_calls=calls, error=error)

    steps = (step(0, "refused", "book"), step(1, None, "sign_in"), step(2, None, "book"))
    trajectory = Trajectory(task=Task(id="t", instruction="book it"), steps=steps)
    (insight,) = await learned(trajectory)
    assert (insight.cue, insight.action) == ("before book", "sign_in")


async def test_the_same_trajectory_gives_the_same_lessons_and_nothing_is_executed(played: Make) -> None:
    hostile = "__import__('os').system('exit 1')\nopen('x', 'w')\nraise SystemExit"
    trajectory = played((hostile, "", "E1"), ("not code at all (", "", "E2"), ("f(**x, *y)", "", None))
    first, second = [await RulesReflector().reflect(trajectory, []) for _ in range(2)]
    assert first.insights == second.insights == ()
    assert first.root_cause == "E1; E2"


async def test_an_outcome_is_never_read_label_free(played: Make) -> None:
    graded = played(("f(1)", "", None), failed={"a": "mail.send to: expected x, got y"})
    blind = graded.model_copy(update={"outcome": Outcome(success=True, reward=1.0)})
    assert await learned(graded, label_free=True) == await learned(blind, label_free=True) == []


def test_calls_are_those_of_the_environment() -> None:
    code = (
        "```python\nrows = apps.mail.search(q='x')\nfor row in rows:\n    print(row.upper(), len(rows))\n"
        "    apps.mail.send(to=apps.contacts.find(row)['id'])\nrows.append(1)\n```"
    )
    (calls,) = calls_of([Step(index=0, action=code)])
    assert [call.name for call in calls] == ["mail.search", "contacts.find", "mail.send"]
    assert calls[2].source("to") == "apps.contacts.find(row)['id']"
