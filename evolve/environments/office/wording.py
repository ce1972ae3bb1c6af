"""How a house rule is said in words: the office's own error text, and paraphrases of it.

The first frames are what a training corpus may use; the held-out ones are other wordings of the same facts, kept out of
every corpus so that reading can be told from memorising.
"""

from __future__ import annotations

from evolve.environments.office.rules import RULES, Kind, Rule, Values

_VALUE, _ORDER = "{call}: {thing} must be {value}", "{call}: {thing} it must come {value}"

_FRAMES = (
    "{rule}",
    "here {rule}",
    "always: {rule}",
    "note that {rule}",
    "house rule: {rule}",
    "{rule} in this house",
    "as a rule, {rule}",
    "{rule}, no exceptions",
)
_HELD_OUT = (
    "in this office {rule}",
    "remember: {rule}",
    "{rule}, nothing else works",
)

_ORDER_KINDS: tuple[Kind, ...] = ("before", "after")


def frames(rule: Rule, held_out: bool = False) -> tuple[str, ...]:
    """Return the sentence frames for a rule; the first one is the office's own wording."""
    frame = _ORDER if rule.kind in _ORDER_KINDS else _VALUE
    return tuple(outer.format(rule=frame) for outer in (_HELD_OUT if held_out else _FRAMES))


def value_text(rule: Rule, option: str) -> str:
    """Return how an option is named in a sentence (`the contact's email`, `dmy()`, `low`)."""
    if rule.kind == "field":
        return f"the contact's {option}"
    return option


def sentence(rule: Rule, option: str, frame: str | None = None) -> str:
    """Return one rule in words; without a frame, in the office's own wording."""
    return (frame or frames(rule)[0]).format(call=rule.call, thing=rule.thing, value=value_text(rule, option))


def oracle(values: Values) -> tuple[str, ...]:
    """Return the complete and correct playbook of a deployment: one sentence a rule."""
    return tuple(sentence(rule, values[rule.id]) for rule in RULES)


def _dictionary() -> dict[str, tuple[str, str]]:
    known: dict[str, tuple[str, str]] = {}
    for rule in RULES:
        for option in rule.options:
            for frame in (*frames(rule), *frames(rule, held_out=True)):
                known[sentence(rule, option, frame)] = (rule.id, option)
    return known


MEANING: dict[str, tuple[str, str]] = _dictionary()
"""Every sentence this module can say -> (rule id, option): how the scripted solver reads a playbook."""
