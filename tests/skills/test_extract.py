"""What an agent's own functions become: only those that worked, to the byte, with what they need."""

from __future__ import annotations

import ast
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.records import Record, Trajectory
from skills.extract import defined, extracted
from skills.library import Library
from skills.record import Skill
from tests.skills.conftest import function

Acted = Callable[..., Trajectory]
Kept = Callable[..., Record[Skill]]
ODD = 'def  odd( x:int ,*, y = "ä\\n🙂" ) -> str :  # head\n\n\tz  =  (  x,\n  y )   # tail\n\treturn f"{ z }"'
LINES = st.sampled_from(["x = 1 ", "import re", "import json, math", "# é comment", "", 'print( "ü" )', "class A: 1"])


def names(skills: tuple[Skill, ...]) -> list[str]:
    return [skill.name for skill in skills]


@given(before=st.lists(LINES), after=st.lists(LINES), newline=st.sampled_from(["\n", "\r\n"]))
def test_a_definition_is_taken_to_the_byte(before: list[str], after: list[str], newline: str) -> None:
    odd = ODD.replace("\n", newline)
    code = newline.join([*before, odd, *after])
    (source,) = defined(code)
    assert source == odd + "\n"
    assert ast.dump(ast.parse(source)) == ast.dump(ast.parse(ODD))


def test_a_definition_comes_after_the_imports_it_uses_and_no_others() -> None:
    code = "import os\nimport  re as r\ndef f(x: str) -> str:\n    return r.sub('a', math.pi, x)\ndef g():\n    pass\n"
    f, g = defined(code, imports="from  math import tau\nimport math\n")
    assert f == "import  re as r\nimport math\n\ndef f(x: str) -> str:\n    return r.sub('a', math.pi, x)\n"
    assert g == "def g():\n    pass\n"
    assert Skill(source=f).name == "f"


@pytest.mark.parametrize("code", ["@cache\ndef f():\n    1", "async def f():\n    1", "def f(:", "f = lambda: 1", ""])
def test_what_is_no_plain_function_is_left_out(code: str) -> None:
    assert defined(code) == ()


def test_functions_defined_and_called_without_error_become_skills(acted: Acted) -> None:
    (skill,) = extracted(acted("import re", function("f") + "\ny = f(1)", function("never_called")))
    assert skill.source == function("f")
    assert (skill.origin, skill.scenario, skill.requires) == ("pay Rodor 12.50 for lunch", "pay", ())
    assert skill.described() == "Add up as f does."


def test_only_successful_episodes_count(acted: Acted) -> None:
    steps = (function("f"), "f(1)")
    assert extracted(acted(*steps, success=False)) == ()
    assert extracted(acted(*steps, outcome=None)) == ()
    assert names(extracted(acted(*steps))) == ["f"]


@pytest.mark.parametrize(
    ("steps", "found"),
    [
        ([(function("f"), "boom"), "f(1)"], []),
        ([function("f"), ("f(1)", "boom")], []),
        ([function("f"), ("f(1)", "boom"), "f(2)"], ["f"]),
        ([function("f"), "f(1)", (function("f", "g"), "boom")], []),
        ([function("f"), "f(1)", "f = 3"], []),
        ([function("f"), "f(1)", "import f"], []),
        ([function("f"), "g = lambda: f(1)"], []),
        ([function("f"), "def g():\n    return f(1)\n"], []),
        ([function("f"), "[f(1) for f in [abs]]"], []),
        ([function("f"), "if ready:\n    print([f(x) for x in range(3)])"], ["f"]),
        (["no code at all", function("f"), "f(1)"], ["f"]),
    ],
)
def test_a_function_counts_only_as_it_stood_when_it_worked(acted: Acted, steps: list[str], found: list[str]) -> None:
    assert names(extracted(acted(*steps))) == found


def test_the_last_definition_counts_and_must_have_worked_itself(acted: Acted) -> None:
    first, last = function("f"), function("f").replace("return x", "return x + 1")
    assert [each.source for each in extracted(acted(first, "f(1)", last, "f(2)"))] == [last]
    assert extracted(acted(first, "f(1)", last)) == ()


def test_callees_come_first_with_the_imports_of_earlier_steps(acted: Acted, skill: Kept) -> None:
    low = "def low(x: int) -> int:\n    return math.floor(x) + pay(x)\n"
    steps = ("import math", function("top", "low"), low, "top(1)")
    found = extracted(acted(*steps), known=[skill(1, "pay").payload])
    assert names(found) == ["low", "top"]
    assert found[0].source == "import math\n\n" + low
    assert [each.requires for each in found] == [("pay",), ("low",)]
    records = [skill(at + 2, source=each.source, requires=each.requires) for at, each in enumerate(found)]
    assert Library([skill(1, "pay"), *records]).closure(["top"])


def test_functions_that_call_each_other_are_left_out(acted: Acted) -> None:
    steps = (function("a", "b"), function("b", "a"), function("c"), "a(1)", "c(1)")
    assert names(extracted(acted(*steps))) == ["c"]


def test_a_known_skill_is_not_found_again_but_a_changed_one_is(acted: Acted, skill: Kept) -> None:
    trajectory = acted(function("f"), "f(1)")
    assert extracted(trajectory, known=[skill(1, "f").payload]) == ()
    assert names(extracted(trajectory, known=[skill(1, "f", "g").payload])) == ["f"]


def test_a_function_too_long_for_a_skill_is_none(acted: Acted) -> None:
    long = function("f") + "".join(f"    y{at} = {at}\n" for at in range(2000))
    assert extracted(acted(long, "f(1)")) == ()
