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
        (made("return '{0.__class__}'.format(x)"), "line 3: a text names '__class__'"),
        (made("return x # \u202e"), "line 3: the source holds an invisible character (U+202E)"),
        (made("@cache\ndef g() -> int:\n    return 1\nreturn g()"), "line 4: function 'g' is decorated"),
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
    ],
)
def test_honest_code_is_left_alone(body: str) -> None:
    assert complaints(made(body)) == ()


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
