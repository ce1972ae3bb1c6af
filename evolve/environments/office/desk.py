"""One agent at work in the office: every call of the sandbox arrives here.

A call is bound to its documented signature, checked against the house rules, performed on the state, and filed.
Rejected calls count: at the third the office locks the agent out and the episode is lost.

How the house rules are enforced around a call: which option the agent used, and what the office says to that.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from evolve.environments.office import dates
from evolve.environments.office.apps import calendar, contacts, files, mail, payments, todo
from evolve.environments.office.apps.spec import App, Function, OfficeError, Wrote
from evolve.environments.office.house_rules import RULES, Rule, Values, of_call
from evolve.environments.office.tables import State
from evolve.environments.office.wording import sentence

APPS: dict[str, App] = {
    "contacts": contacts.FUNCTIONS,
    "mail": mail.FUNCTIONS,
    "calendar": calendar.FUNCTIONS,
    "files": files.FUNCTIONS,
    "payments": payments.FUNCTIONS,
    "todo": todo.FUNCTIONS,
}
MAX_REJECTED = 3

_AFTER = {rule.app: rule for rule in RULES if rule.kind == "after"}


class Desk:
    """The office's answer to calls, for one episode. Pickles."""

    def __init__(self, state: State, values: Values) -> None:
        self.state = state
        self.values = values
        self.rejected = 0
        self.done = False
        self.prepared: dict[str, str] = {}

    @property
    def locked(self) -> bool:
        """True once the agent made its last allowed mistake."""
        return self.rejected >= MAX_REJECTED

    def modules(self) -> dict[str, dict[str, Callable[..., Any]]]:
        """Return the functions a sandbox may call, by app."""
        apps: dict[str, dict[str, Callable[..., Any]]] = {
            app: {name: self._bind(app, name) for name in functions} for app, functions in APPS.items()
        }
        apps["task"] = {"done": self._finish}
        return apps

    def call(self, app: str, name: str, /, *args: Any, **kwargs: Any) -> Any:
        """Perform one call. Raises OfficeError when the office refuses it."""
        if self.locked:
            raise OfficeError("locked out after too many rejected calls")
        if self.done:
            raise OfficeError("the task has been handed in")
        try:
            return self._perform(f"{app}.{name}", APPS[app][name], args, kwargs)
        except OfficeError:
            self.rejected += 1
            raise

    def _perform(self, call: str, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        bound = self._arguments(call, function, args, kwargs)
        app = call.partition(".")[0]
        if function.role == "prepare":
            self.prepared[app] = call.partition(".")[2]
            return None
        filed = check(call, bound, self.state, self.values, self.prepared.get(app, "nothing"))
        result = function.run(self.state, **bound)
        if function.role == "write":
            self.prepared.pop(app, None)
        if not isinstance(result, Wrote):
            return result
        row = self.state.tables[result.table][result.row_id]
        if function.role == "follow":
            rule = _AFTER[app]
            filed = {f"{rule.call} {rule.thing}": call.partition(".")[2]}
        row.setdefault("house", {}).update(filed)
        return result.row_id

    def _arguments(
        self, call: str, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> dict[str, Any]:
        try:
            bound = inspect.signature(function.run).bind(self.state, *args, **kwargs)
        except TypeError as problem:
            raise OfficeError(f"{call}: {problem}") from problem
        bound.apply_defaults()
        return {name: value for name, value in bound.arguments.items() if name != "state"}

    def _bind(self, app: str, name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            return self.call(app, name, *args, **kwargs)

        return call

    def _finish(self) -> None:
        """Hand the task in: the episode ends."""
        if self.locked:
            raise OfficeError("locked out after too many rejected calls")
        self.done = True


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
