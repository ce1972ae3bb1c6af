"""A use is honest: the stored function ran and the step returned; strict when the result was needed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from memory.records import Check, Outcome, Record, Step, ToolCall, Trajectory
from skills.library import Library
from skills.record import Skill
from skills.usage import Use, uses
from tests.skills.conftest import function

Acted = Callable[..., Trajectory]
Kept = Callable[..., Record[Skill]]
FIND = 'import re\n\ndef find(who: str) -> str:\n    """Find."""\n    return re.sub("a", "b", apps.contacts.get(who))\n'
SEND = (
    'def send(who: str, text: str) -> int:\n    """Send."""\n    for to in apps.contacts.all():\n'
    "        if to == find(who):\n            return apps.mail.send(to=to, text=text)\n    return 0\n"
)


@pytest.fixture
def shown(skill: Kept) -> list[Record[Skill]]:
    return [skill(1, source=FIND), skill(2, source=SEND, requires=("find",)), skill(3, "add", version=4)]


@pytest.fixture
def played(acted: Acted, shown: list[Record[Skill]]) -> Callable[..., tuple[Use, ...]]:
    """Play steps after the prelude of all shown skills and return the uses."""

    def play(*steps: str | tuple[str, str | None], **fields: object) -> tuple[Use, ...]:
        fields = {"prelude": Library(shown).prelude(["send", "add"])} | fields
        return uses(acted(*steps, **fields), shown)

    return play


Played = Callable[..., tuple[Use, ...]]


def names(found: tuple[Use, ...]) -> list[str]:
    return [use.name for use in found if use.ok]


def test_a_call_that_returned_is_a_use_once_a_step(played: Played) -> None:
    found = played("x = add(1)\ny = add(add(2))", "print(x)", "add(3)")
    assert [(use.name, use.record_id, use.version, use.step) for use in found] == [
        ("add", "record-3", 4, 0),
        ("add", "record-3", 4, 2),
    ]


def test_a_call_in_a_failed_step_is_recorded_and_is_no_use(played: Played) -> None:
    (use,) = played(("add('x')", "TypeError: no"))
    assert (use.ok, use.error, use.step, use.strict) == (False, "TypeError: no", 0, False)


@pytest.mark.parametrize(
    ("error", "counted"),
    [
        ("NameError: name 'amuont' is not defined", []),
        ("UnboundLocalError: cannot access local variable 'amuont' where it is not associated with a value", []),
        ("NameError: name 're' is not defined", ["send"]),
        ("NameError: name 'text' is not defined", ["send"]),
        ("NameError: name 'tex' is not defined", []),
        ("KeyError: 'amuont'", ["send"]),
    ],
)
def test_a_name_that_no_skill_holds_is_the_agents_own_slip(played: Played, error: str, counted: list[str]) -> None:
    found = played(("send('a', amuont)", error))
    assert [(use.name, use.ok) for use in found] == [(name, False) for name in counted]


@pytest.mark.parametrize(
    "before",
    [
        "def add(x: int) -> int:\n    return 7",
        "def add(x: int) -> int:\n    '''Add up as add does.'''\n    return x",
        "add = abs",
        "add: object = abs",
        "for add in [abs]:\n    pass",
        "import math as add",
        "from math import floor as add",
        "class add:\n    pass",
        "if (add := abs):\n    pass",
        "with thing as add:\n    pass",
        "add.__code__ = abs",
        "del add",
        "def cheat() -> None:\n    global add\n    add = abs",
        "match 1:\n    case add:\n        pass",
        ("def add(x: int) -> int:\n    return 7", "boom"),
        "@cache\n" + function("add"),
    ],
)
def test_another_function_of_the_same_name_earns_nothing(played: Played, before: str) -> None:
    assert names(played(before, "add(1)")) == []
    assert names(played("add(1)", before)) == (["add"])


@pytest.mark.parametrize(
    "action",
    [
        "def add(x):\n    return 7\nadd(1)",
        "if True:\n    def add(x):\n        return 7\n    add(1)",
        "def add(x):\n    return 7\ndef other():\n    return add(1)\nother()",
        "def never():\n    return add(1)",
        "later = lambda: add(1)",
        "def other(add):\n    return add(1)\nother(abs)",
        "[add(1) for add in [abs]]",
        "# add(1)",
        "print('add(1)')",
        "thing.add(1)",
        "not code: add(1)",
    ],
)
def test_what_only_looks_like_a_call_earns_nothing(played: Played, action: str) -> None:
    assert played(action) == ()


def test_the_same_bytes_defined_again_are_the_skill(played: Played) -> None:
    assert names(played("add = abs", function("add") + "\nadd(1)")) == ["add"]
    assert names(played("add = abs", (function("add"), "boom"), "add(1)")) == []


@pytest.mark.parametrize(
    "before",
    [
        function("find"),
        "re = None",
        "import json as re",
        "apps = None",
        "def len(x):\n    return 0\ndef sum(x):\n    return 0",
    ],
)
def test_what_a_skill_relies_on_must_be_as_stored_too(played: Played, before: str) -> None:
    assert names(played("send('a', 'b')")) == ["send"]
    expected = ["send"] if "sum" in before else []
    assert names(played(before, "send('a', 'b')")) == expected
    assert names(played("import re", "send('a', 'b')")) == ["send"]


def test_a_builtin_that_the_agent_replaced_spoils_the_skills_that_read_it(skill: Kept, acted: Acted) -> None:
    record = skill(1, source="def n(x: list[int]) -> int:\n    return len(x)\n")
    prelude = Library([record]).prelude(["n"])
    assert uses(acted("def len(x):\n    return 0", "n([1])", prelude=prelude), [record]) == ()
    assert len(uses(acted("n([1])", prelude=prelude), [record])) == 1


def test_a_skill_that_was_never_defined_is_not_used(played: Played) -> None:
    assert played("add(1)", prelude="") == ()
    assert names(played(function("add"), "add(1)", prelude="")) == ["add"]


def test_a_call_through_the_agents_own_function_counts_when_that_is_called(played: Played) -> None:
    mine = "def mine(x):\n    return [add(y) for y in x]"
    assert names(played(mine, "mine([1])")) == ["add"]
    assert names(played(mine, "mine = print", "mine([1])")) == []


def test_native_tool_calls_are_no_code(acted: Acted, shown: list[Record[Skill]]) -> None:
    step = Step(index=0, action="add(x=1)", tool_calls=(ToolCall(id="1", name="add"),))
    assert uses(acted(steps=(step,), prelude=Library(shown).prelude(["add"])), shown) == ()


@pytest.mark.parametrize(
    ("steps", "strict"),
    [
        (["send('a', 'b')"], True),
        (["find('a')"], False),
        (["send('a', 'b')", "apps.contacts.all()\napps.mail.send(to='c')"], False),
        (["apps.contacts.all()", "n = send('a', 'b')", "m = n + 1", "apps.mail.send(to=m)"], True),
        (["apps.contacts.all()", "apps.mail.send(to=send('a', 'b'))"], True),
        (["apps.contacts.all()", "n = send('a', 'b')", "n = 1", "apps.mail.send(to=n)"], False),
        (["send('a', 'b')", ("apps.contacts.all()\napps.mail.send(to='c')", "boom")], True),
    ],
)
def test_a_strict_use_has_two_host_calls_and_is_needed(played: Played, steps: list[str], strict: bool) -> None:
    assert next(use.strict for use in played(*steps) if use.ok) is strict


def test_no_use_is_strict_without_a_graded_success(played: Played) -> None:
    checks = (Check(name="mail", passed=True),)
    for outcome in (None, Outcome(success=False, reward=0.5, checks=checks)):
        assert [use.strict for use in played("send('a', 'b')", outcome=outcome)] == [False]
    assert [
        use.strict for use in played("send('a', 'b')", outcome=Outcome(success=True, reward=1.0, checks=checks))
    ] == [True]


def test_host_calls_are_the_places_in_the_code_that_make_one(acted: Acted, shown: list[Record[Skill]]) -> None:
    prelude = Library(shown).prelude(["send"])
    read = uses(acted("if False:\n    send('a', 'b')", "send('c', 'd')", prelude=prelude), shown)
    assert [(use.step, use.host_calls, use.strict) for use in read] == [(0, 3, True), (1, 3, True)]
