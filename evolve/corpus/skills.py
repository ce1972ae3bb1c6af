"""The skills that a training episode is shown: right, stale and useless ones, under usual and made-up names."""

from __future__ import annotations

import random
from collections.abc import Sequence

from evolve.environments.office.intents import BY_INTENT, INTENTS, Intent
from evolve.environments.office.rules import Values
from evolve.environments.office.skilled import parameters, phrases, rules, written
from memory.records import Record
from skills.record import Skill

_MOST = 16
_STALE, _RENAMED, _REORDERED, _USELESS = 0.12, 0.3, 0.2, 0.3
_WORDS = ("tidy", "check", "sort", "list", "count", "print", "rename", "merge", "sum", "open", "fetch", "trim")
_GIVEN = ("rows", "who", "title", "subject", "date", "amount", "name", "limit")
_THINGS = ("rows", "names", "notes", "pages", "totals", "labels", "drafts", "entries", "records", "items")


def draw_skills(rng: random.Random, values: Values, family: Sequence[str]) -> tuple[Record[Skill], ...]:
    """Return the skills of a catalogue: none, some or all of those the task can use, and others."""
    share = rng.choices((0.0, rng.random(), 1.0), weights=(25, 30, 45))[0]
    useful = [BY_INTENT[name] for name in family if rng.random() < share]
    rest = [intent for intent in INTENTS if intent.id not in family]
    others = rng.sample(rest, rng.randint(0, min(len(rest), _MOST - len(useful)))) if share else []
    sources = [_skill(rng, values, intent) for intent in (*useful, *others)]
    if share and rng.random() < _USELESS:
        sources += [_useless(rng) for _ in range(rng.randint(1, _MOST - len(sources) + 1))]
    rng.shuffle(sources)
    unique = {skill.name: skill for skill in [Skill(source=source) for source in sources]}
    return tuple(Record[Skill](kind="skill", number=at, payload=skill) for at, skill in enumerate(unique.values(), 1))


def _skill(rng: random.Random, values: Values, intent: Intent) -> str:
    order = list(parameters(intent))
    if rng.random() < _REORDERED:
        rng.shuffle(order)
    name = intent.id if rng.random() >= _RENAMED else f"{intent.id}_{rng.choice(_WORDS)}"
    if name != intent.id and rng.random() < 0.5:
        name = f"{rng.choice(_WORDS)}_{rng.choice(_THINGS)}_{rng.randint(1, 9)}"
    if rng.random() < _STALE:
        rule = rng.choice(rules(intent))
        values = values | {rule.id: rng.choice([option for option in rule.options if option != values[rule.id]])}
    return written(intent, values, name, order, rng.choice(phrases(intent)))


def _useless(rng: random.Random) -> str:
    """Return a function that no task needs, in words that tasks use as well."""
    word, thing = rng.choice(_WORDS), rng.choice(_THINGS)
    given = rng.sample(_GIVEN, rng.randint(1, 3))
    typed = ", ".join(f"{each}: str" for each in given)
    said = f"{word} the {thing} {rng.choice(('of', 'for', 'with'))} {' and '.join(given)}"
    return f'def {word}_{thing}({typed}) -> None:\n    """{said}"""\n    print({", ".join(given)})'
