"""Wording of house rules: the office's own error text, and frames of other words around it.

A frame holds `{rule}` where the rule stands. The first frames are what a training corpus may use; the held-out ones are
kept out of every corpus so that reading can be told from memorising.
"""

from __future__ import annotations

import re

from evolve.environments.office.house_rules import RULES, Rule, Values

FRAMES = (
    "{rule}",
    "here {rule}",
    "always: {rule}",
    "note that {rule}",
    "house rule: {rule}",
    "{rule} in this house",
    "as a rule, {rule}",
    "{rule}, no exceptions",
)
HELD_OUT = (
    "in this office {rule}",
    "remember: {rule}",
    "{rule}, nothing else works",
)

_CORE = re.compile(r"[\w.]+: \w+ (?:it must come|must be(?: the contact's)?) \w+")


def value_text(rule: Rule, option: str) -> str:
    """Return how an option is named in a sentence (`the contact's email`, `dmy`, `low`)."""
    if rule.kind == "field":
        return f"the contact's {option}"
    return option


def sentence(rule: Rule, option: str, frame: str = FRAMES[0]) -> str:
    """Return one rule in words; without a frame, in the office's own wording."""
    verb = "it must come" if rule.kind in {"before", "after"} else "must be"
    return frame.format(rule=f"{rule.call}: {rule.thing} {verb} {value_text(rule, option)}")


def oracle(values: Values) -> tuple[str, ...]:
    """Return the complete and correct playbook of a deployment: one sentence a rule."""
    return tuple(sentence(rule, values[rule.id]) for rule in RULES)


def meaning(text: str) -> tuple[str, str] | None:
    """Return (rule id, option) of the rule that a text states, whatever stands around it; None if it states none."""
    core = _CORE.search(text)
    return _MEANING.get(core[0]) if core else None


def meanings(text: str) -> list[tuple[str, str]]:
    """Return (rule id, option) of every rule that a text states, in order."""
    return [_MEANING[core[0]] for core in _CORE.finditer(text) if core[0] in _MEANING]


_MEANING = {sentence(rule, option): (rule.id, option) for rule in RULES for option in rule.options}
