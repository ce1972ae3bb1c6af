"""What is held against a skill by reading it: each rule bites, and leaves honest code alone."""

from __future__ import annotations

import pytest

from skills.record import Skill
from skills.static_checks import complaints

GOOD = '''import re

def pay_by_mail(subject: str, *, limit: float = -1.0) -> dict[str, float]:
    """Pay what the newest mail with that subject asks for."""
    paid: dict[str, float] = {}
    for mail in apps.mail.search(query=subject):
        try:
            amount = float(re.findall(r"\\d+", mail["body"])[0])
        except IndexError:
            continue_with = ask(mail["id"])
            amount = float(continue_with) * 100
        while True:
            if amount > limit:
                break
            amount = amount + 1
        key = sorted(paid, key=lambda each: paid[each])
        paid[mail["from"]] = amount + len(key)
        apps.payments.send(to=mail["from"], amount=amount, memo=f"for {subject}")
    return {name: total for name, total in paid.items() if total > 0}
'''
ORIGIN = 'Rodor wants money. Please pay Mirak Olander (mirak@corp.org) 12.50 for "team lunch" by 2026-03-05, see f12.'


def made(body: str = "", *, head: str = "def f(x: int) -> int:", source: str = "", **fields: object) -> Skill:
    text = source or f'{head}\n    """Do it."""\n' + "".join(
        f"    {line}\n" for line in (body or "return x").split("\n")
    )
    return Skill.model_validate({"source": text, **fields})


def test_good_code_has_no_complaint() -> None:
    skill = made(source=GOOD, requires=("ask",), origin=ORIGIN)
    assert complaints(skill, documented={"apps.mail.search", "apps.payments.send"}, known={"ask"}) == ()


@pytest.mark.parametrize(
    ("skill", "said"),
    [
        (made(head="def f(x) -> int:"), "line 1: parameter 'x' has no type; annotate it"),
        (made(head="def f(x: int):"), "line 1: the function does not say what it returns"),
        (made(head="def f(*xs: int) -> int:", body="return 0"), "line 1: parameter 'xs' takes anything"),
        (made(source="def f(x: int) -> int:\n    return x\n"), "line 1: the function has no docstring"),
        (made(head="def f(x: int = len([])) -> int:"), "line 1: default `len([])` is computed"),
        (made(head="def f(x: list = []) -> int:", body="return 0"), "line 1: default `[]` is computed"),
        (made(head="def f(x: print('hi')) -> int:"), "annotation `print('hi')` is no plain type"),
        (made("class A:\n    pass\nreturn x"), "line 3: a skill has no class"),
        (made("global y\nreturn x"), "line 3: a skill has no `global`"),
        (made("yield x"), "line 3: a skill has no `yield`"),
        (made("return x.__class__"), "line 3: attribute '__class__' reaches"),
        (made("match x:\n    case int(__class__=kind):\n        return kind"), "line 4: attribute '__class__' reaches"),
        (made("return '{0.__class__}'.format(x)"), "line 3: a text names '__class__'"),
        (made("return x # \u202e"), "line 3: the source holds an invisible character (U+202E)"),
        (made("@cache\ndef g() -> int:\n    return 1\nreturn g()"), "line 4: function 'g' is decorated"),
        (made("import typing\nreturn typing.sys.modules"), "line 4: 'sys' is a module that another one imports"),
        (made("m = json\nreturn m.codecs"), "line 4: 'codecs' is a module that another one imports"),
        (made("from typing import sys\nreturn sys"), "line 3: 'sys' is a module that another one imports"),
        (made("import os\nreturn x"), "line 3: import of 'os' is not allowed; allowed are datetime, json"),
        (made(source="from math import pi\n" + made().source), "line 1: `from math import pi` may clash"),
        (made(source="import re as r\n" + made().source), "line 1: `import re as r` may clash"),
        (made(head="def sum(x: int) -> int:"), "line 1: the name 'sum' is taken or private"),
        (made("apps = x\nreturn x"), "line 1: 'apps' is given another meaning"),
        (made("while True:\n    x = x + 1\nreturn x"), "line 3: a `while True` without `break` never ends"),
        (made("while 1:\n    for y in [x]:\n        break\nreturn x"), "line 3: a `while True` without"),
        (made("try:\n    x = x + 1\nexcept ValueError:\n    pass\nreturn x"), "line 5: the `except` swallows"),
        (made("try:\n    x = x + 1\nexcept Exception:\n    x = 0\nreturn x"), "line 5: the `except` swallows"),
        (made("try:\n    return apps.a.b(x)\nexcept KeyError:\n    return 0"), "line 5: the `except` swallows"),
        (made("try:\n    x = x + 1\nfinally:\n    return x"), "line 6: leaving a `finally` swallows errors"),
        (made("return eval('x')"), "line 3: 'eval' is neither"),
        (made("return getattr(x, 'y')"), "line 3: 'getattr' is neither"),
        (made("return __import__('os')"), "line 3: '__import__' is neither"),
        (made("return pya(x)", requires=("pay",)), "'pya' is neither a parameter, a local name"),
        (made("return pya(x)", requires=("pay",)), "did you mean 'pay'?"),
        (made(requires=("pay",)), "line 1: it requires 'pay' and never calls it"),
        (made("return ask(x)", requires=("ask",)), "line 3: it requires 'ask', which is no skill in use"),
        (
            made("return apps.mail.serach(x)"),
            "no function apps.mail.serach; did you mean 'mail.search'?",
        ),
        (made("mail = apps.mail\nreturn mail.search(x)"), "line 3: `apps` is used otherwise than as"),
        (made("return apps.qqqq.wwww(x)"), "line 3: there is no function apps.qqqq.wwww"),
        (made(head="def f(x: int, *, y) -> int:"), "line 1: parameter 'y' has no type; annotate it"),
        (made(head="def f(y, /, x: int) -> int:"), "line 1: parameter 'y' has no type; annotate it"),
        (made(head="def f(**xs: int) -> int:", body="return 0"), "line 1: parameter 'xs' takes anything"),
        (made(head="def f(x: int, *, y: int = x) -> int:"), "line 1: default `x` is computed"),
        (made(head="def f(x: int = +1) -> int:"), "line 1: default `+1` is computed"),
        (made(head="def f(x: int = -y) -> int:"), "line 1: default `-y` is computed"),
        (made(head="def f(x: int) -> print():"), "line 1: annotation `print()` is no plain type"),
        (made("nonlocal_ = x\nasync def g() -> int:\n    return 1\nreturn x"), "line 4: a skill has no async function"),
        (made("def g() -> None:\n    nonlocal x\n    x = 1\nreturn x"), "line 4: a skill has no `nonlocal`"),
        (made("yield from x"), "line 3: a skill has no `yield`"),
        (made("from . import a\nreturn x"), "line 3: import of '.' is not allowed"),
        (made("import math, os\nreturn x"), "line 3: import of 'os' is not allowed"),
        (made(source="import os\n" + made().source), "line 1: import of 'os' is not allowed"),
        (made(head="def _f(x: int) -> int:"), "line 1: the name '_f' is taken or private"),
        (made(head="def math(x: int) -> int:"), "line 1: the name 'math' is taken or private"),
        (made(head="def apps(x: int) -> int:"), "line 1: the name 'apps' is taken or private"),
        (made("while True:\n    def g() -> int:\n        return 1\nreturn x"), "line 3: a `while True` without"),
        (made("while True:\n    g = lambda: x\nreturn x"), "line 3: a `while True` without"),
        (made("while x:\n    while True:\n        x = 1\n    break\nreturn x"), "line 4: a `while True` without"),
        (made("while True:\n    while x:\n        break\nreturn x"), "line 3: a `while True` without"),
        (made("try:\n    x = x + 1\nexcept:\n    x = 0\nreturn x"), "line 5: the `except` swallows"),
        (made("try:\n    x = 1\nexcept (KeyError, Exception):\n    x = 0\nreturn x"), "line 5: the `except` swallows"),
        (made("try:\n    x = 1\nexcept BaseException:\n    x = 0\nreturn x"), "line 5: the `except` swallows"),
        (made("try:\n    x = 1\nexcept KeyError:\n    'never mind'\nreturn x"), "line 5: the `except` swallows"),
        (
            made("for y in [x]:\n    try:\n        x = y\n    except KeyError:\n        continue\nreturn x"),
            "line 6: the",
        ),
        (
            made("try:\n    x = ask(x)\nexcept KeyError:\n    x = 0\nreturn x", requires=("ask",)),
            "line 5: the `except`",
        ),
        (made("for y in [x]:\n    try:\n        x = y\n    finally:\n        break\nreturn x"), "line 7: leaving a"),
        (made("for y in [x]:\n    try:\n        x = y\n    finally:\n        continue\nreturn x"), "line 7: leaving a"),
        (made("return x if pay else 0"), "line 3: 'pay' is neither a parameter"),
        (
            made("return zzzzzz"),
            "neither a parameter, a local name, an allowed builtin nor a required skill; pass it in",
        ),
    ],
)
def test_each_rule_bites_in_a_sentence_with_its_line(skill: Skill, said: str) -> None:
    found = complaints(skill, documented={"apps.mail.search", "apps.a.b"}, known={"pay"})
    assert any(said in each for each in found), found


@pytest.mark.parametrize(
    "body",
    [
        "while True:\n    for y in [x]:\n        return y",
        "try:\n    return apps.a.b(x)\nexcept KeyError as e:\n    raise ValueError('no') from e",
        "try:\n    return apps.a.b(x)\nexcept KeyError:\n    return apps.a.c(x)",
        "try:\n    return int(str(x))\nexcept ValueError:\n    return 0",
        "def g(y: int) -> int:\n    return f(y - 1)\nreturn g(x)",
        "match x:\n    case [a, *b]:\n        return len(b)\n    case {'k': c, **d}:\n        return c + d\nreturn a",
        "from datetime import date\nreturn date(2026, 1, 1).year",
        "total = sum(y for y in range(x) if (z := y))\nreturn total + z",
        "return ask.a.b(x) if (ask := x) else 0",
        "try:\n    x = int(str(x))\nexcept ValueError:\n    print(x)\nreturn x",
        "try:\n    x = int(str(x))\nexcept Exception:\n    print(x)\n    raise",
        "try:\n    return x + 1\nexcept Exception as e:\n    if x:\n        raise\n    return 0",
        "try:\n    x = x + 1\nfinally:\n    print(x)\nreturn x",
        "while True:\n    if x:\n        raise ValueError(x)",
        "while True:\n    try:\n        break\n    finally:\n        print(x)\nreturn x",
        "while False:\n    x = x + 1\nreturn x",
        "while x:\n    x = x - 1\nreturn x",
        "\treturn x".removeprefix("\t") + "\t# a tab",
        "return apps.any.thing(x)",
        "import math\nreturn math.floor(x)",
    ],
)
def test_honest_code_is_left_alone(body: str) -> None:
    assert complaints(made(body)) == ()


@pytest.mark.parametrize("line", ["from typing import Any", "from typing import Any, cast", "import json, math"])
def test_what_cannot_clash_with_other_skills_is_imported_beside_it(line: str) -> None:
    used = "cast(int, x)" if "cast" in line else "math.floor(x)" if "math" in line else "x"
    assert complaints(made(source=f"{line}\n{made(f'return {used}').source}")) == ()


@pytest.mark.parametrize(
    "line",
    [
        "eval: object",
        "g = lambda eval: 0",
        "g = lambda: (eval := 1)",
        "keep = [eval for eval in ()]",
        "keep = {eval: 1 for eval in ()}",
        "def g() -> int:\n    eval = 1\n    return eval",
        "def g(eval: int) -> int:\n    return 1",
        "def g() -> int:\n    import json as eval\n    return 1",
        "def g() -> int:\n    def eval() -> int:\n        return 1\n    return 1",
        "try:\n    x = 1\nexcept ValueError as eval:\n    raise",
        "match x:\n    case [eval]:\n        raise ValueError",
    ],
)
def test_no_scope_inside_may_name_what_reaches_into_the_interpreter(line: str) -> None:
    said = "line 1: 'eval' is given another meaning; choose another name"
    assert said in complaints(made(f"{line}\nreturn eval('x')"))


def test_complaints_come_in_the_order_of_lines_and_each_once() -> None:
    body = "a = zz\nb = aa\nimport os\nwhile True:\n    x = eval\nreturn aa"
    found = complaints(made(body, head="def f(x):"))
    lines = [int(each.split()[1].rstrip(":")) for each in found]
    assert lines == sorted(lines)
    assert len(set(found)) == len(found)
    assert lines == [1, 1, 3, 4, 5, 6, 7]


def test_which_skills_there_are_is_only_asked_where_it_is_known() -> None:
    skill = made("return ask(x)", requires=("ask",))
    assert complaints(skill) == ()
    assert complaints(skill, known=("ask",)) == ()
    assert complaints(skill, known=()) == ("line 3: it requires 'ask', which is no skill in use",)


@pytest.mark.parametrize("name", ["search", "apps.mail.search"])
def test_functions_of_the_world_are_known_by_its_description(name: str) -> None:
    root = name.partition(".")[0]
    assert complaints(made(f"return {name}(x)"), documented={name}) == ()
    assert any("is given another meaning" in each for each in complaints(made(f"{root} = x"), documented={name}))
    taken = made(head=f"def {root}(x: int) -> int:")
    assert any("is taken or private" in each for each in complaints(taken, documented={name}))


@pytest.mark.parametrize("factor", [7, 10, 12, 24, 60, 100, 1000, 3600])
def test_a_factor_that_changes_a_unit_is_free_in_a_product_alone(factor: int) -> None:
    origin = f"Take {factor} of them."
    for value in (f"x * {factor}", f"{factor} * x", f"x / {factor}", f"x // {factor}", f"x % {factor}"):
        assert complaints(made(f"return {value}", origin=origin)) == (), value
    for value in (f"x + {factor}", f"{factor}", f"-{factor}"):
        assert f"'{factor}' comes from the task" in str(complaints(made(f"return {value}", origin=origin))), value


@pytest.mark.parametrize(("number", "free"), [(0, True), (1, True), (2, True), (3, False), (61, False), (200, False)])
def test_small_numbers_say_nothing_of_a_task(number: int, free: bool) -> None:
    origin = f"Please take {number} of them."
    for value in (f"x + {number}", f"x * {number}"):
        assert (complaints(made(f"return {value}", origin=origin)) == ()) is free


@pytest.mark.parametrize(
    ("origin", "literal", "copied"),
    [
        ("Pay Al now.", "'Al'", "Al"),
        ("Take 5 now.", "'5'", ""),
        ("Take 15 now.", "'15'", "15"),
        ("Pay 1,250 now.", "1250", "1250"),
        ("Pay 0.07 now.", "7", "7"),
        ("Pay 3 now.", "300", "300"),
        ("Pay 3 now.", "3 + 1", "3"),
        ("Look into notes.txt now.", "'see notes.txt'", "notes.txt"),
        ("Pay Mirak Olander now.", "'Mirak and Olander'", "Olander"),
        ("Pay. Mirak waits.", "'Mirak'", "Mirak"),
        ("Pay. Mirak waits.", "' Mirak '", " Mirak "),
        ("Pay. Mirak waits.", "'to Mirak'", ""),
        ("Say 'well done' now.", "'well done'", "well done"),
        ("Say «well done» now.", "'well done'", "well done"),
        ("Say well done now.", "'well done'", ""),
        ("Take 12 now.", "b'12'", ""),
        ("Take 12 now.", "None", ""),
    ],
)
def test_what_of_a_task_may_not_stand_in_a_literal(origin: str, literal: str, copied: str) -> None:
    said = (f"line 3: {copied!r} comes from the task it was made from; make it a parameter",) if copied else ()
    assert complaints(made(f"return {literal}", origin=origin)) == said
    assert complaints(made(f"return {literal}"), tasks=["", "Wait.", origin]) == said


@pytest.mark.parametrize(
    ("literal", "copied"),
    [
        ("'mirak@corp.org'", "mirak@corp.org"),
        ("'to: mirak@corp.org'", "mirak@corp.org"),
        ("'Olander'", "Olander"),
        ("f'pay {x} to Mirak now'", "Mirak"),
        ("12.5", "12.5"),
        ("-12.50", "12.5"),
        ("1250", "1250"),
        ("'f12'", "f12"),
        ("'2026-03-05'", "2026-03-05"),
        ("'our team lunch'", "team lunch"),
        ("'Rodor'", "Rodor"),
        ("'%s Mirak' % x", "Mirak"),
    ],
)
def test_constants_of_the_instance_are_found(literal: str, copied: str) -> None:
    said = f"line 3: {copied!r} comes from the task it was made from; make it a parameter"
    assert said in complaints(made(f"return {literal}", origin=ORIGIN))
    assert complaints(made(f"return {literal}"), tasks=[ORIGIN]) == (said,)
    assert complaints(made(f"return {literal}")) == ()
    assert complaints(made(f"return {literal}", origin=ORIGIN), allowed=f"the house knows {copied} well") == ()


@pytest.mark.parametrize(
    "literal", ["'for'", "'pay'", "'the Rodor'", "2", "x * 100", "7 + x", "'lunch'", "True", "'Mir'"]
)
def test_what_any_task_may_share_is_no_constant_of_the_instance(literal: str) -> None:
    assert complaints(made(f"return {literal}", origin=ORIGIN + " Use 100 and 2 items.")) == ()


def test_a_docstring_may_quote_the_task() -> None:
    source = 'def f(x: int) -> int:\n    """Pay 12.50 to Mirak."""\n    return x\n'
    assert complaints(made(source=source, origin=ORIGIN)) == ()
