"""How the house rules are enforced around a call: which option the agent used, and what the office says to that."""

from __future__ import annotations

from typing import Any

from evolve.environments.office import dates
from evolve.environments.office.apps.spec import OfficeError
from evolve.environments.office.rules import Rule, Values, of_call
from evolve.environments.office.state import State
from evolve.environments.office.wording import sentence


class RuleBroken(OfficeError):
    """A call that breaks a house rule whose feedback is not silent."""

    def __init__(self, rule: Rule, wanted: str) -> None:
        super().__init__(sentence(rule, wanted) if rule.feedback == "told" else f"{rule.call}: {rule.code}")


def check(call: str, args: dict[str, Any], state: State, values: Values, prepared: str) -> dict[str, str]:
    """Normalise `args` in place and return, for each silent rule, the option that was used.

    Raises:
        RuleBroken: a told or code rule was violated.
        OfficeError: an argument is nothing this office knows.
    """
    filed: dict[str, str] = {}
    for rule in of_call(call):
        if rule.kind == "after":
            filed[f"{call} {rule.thing}"] = "nothing"
            continue
        used = prepared if rule.kind == "before" else _used(rule, args, state)
        if rule.feedback == "silent":
            filed[f"{call} {rule.thing}"] = used
        elif used != values[rule.id]:
            raise RuleBroken(rule, values[rule.id])
    return filed


def _used(rule: Rule, args: dict[str, Any], state: State) -> str:
    value = args[rule.thing]
    if rule.kind == "choice":
        return _choice(rule, value)
    if rule.kind == "field":
        used, args[rule.thing] = _contact(rule, value, state)
    elif rule.kind == "date":
        used, args[rule.thing] = _date(rule, value)
    elif rule.kind == "money":
        used, args[rule.thing] = _money(rule, value)
    else:
        used, args[rule.thing] = _style(value)
    return used


def _choice(rule: Rule, value: object) -> str:
    if str(value) not in rule.options:
        raise OfficeError(f"{rule.call}: {rule.thing} is one of {', '.join(rule.options)}; got {value!r}")
    return str(value)


def _contact(rule: Rule, value: object, state: State) -> tuple[str, str]:
    for contact_id, row in state.tables["contacts"].items():
        for field, known in (("id", contact_id), ("email", row["email"]), ("handle", row["handle"])):
            if value == known:
                return field, contact_id
    raise OfficeError(f"{rule.call}: {rule.thing} names no contact: {value!r}")


def _date(rule: Rule, value: object) -> tuple[str, str]:
    parsed = dates.parse(str(value))
    if parsed is None:
        raise OfficeError(f"{rule.call}: {rule.thing} is no date: {value!r}")
    return parsed


def _money(rule: Rule, value: object) -> tuple[str, int]:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise OfficeError(f"{rule.call}: {rule.thing} is a number; got {value!r}")
    return ("cents", value) if isinstance(value, int) else ("dollars", round(value * 100))


def _style(value: object) -> tuple[str, str]:
    text = str(value)
    if text != text.lower():
        return "upper", text.lower()
    return ("kebab", text.replace("-", " ")) if "-" in text else ("plain", text)
