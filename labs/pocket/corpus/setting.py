"""One training situation: a deployment, a task in it, and which of its house rules the agent is shown, and how.

The skills that a training episode is shown: right, stale and useless ones, under usual and made-up names.
"""

from __future__ import annotations

import random
import string
from collections.abc import Sequence
from dataclasses import dataclass

from evolve.environments.office.families import LONG, NORMAL
from evolve.environments.office.house_rules import RULES, Rule, Values
from evolve.environments.office.intents import BY_INTENT, INTENTS, Intent
from evolve.environments.office.skilled import parameters, phrases, rules, written
from evolve.environments.office.wording import FRAMES, sentence
from memory.records import Record
from playbooks.kinds.bullet import Bullet
from skills.record import Skill

FIRST_DEPLOYMENT, LAST_DEPLOYMENT = 1_000, 99_999
"""Deployments a corpus may draw from; 0 to 999 are kept for use and evaluation."""

_NOISE = (
    "check your work before you hand it in",
    "read the task twice",
    "look things up before you write",
    "print what you find",
    "do one thing at a time",
    "ask for the id first",
)
_HIGHEST_NUMBER = 99
_SKILLED = 0.35
"""Share of the episodes in which the agent works with skills."""
_LETTERS = string.ascii_lowercase
_SYLLABLES = tuple(a + b + c for a in "bcdfghlmnprstvw" for b in "aeiou" for c in ("", "n", "r", "s", "l", "ck"))


@dataclass(frozen=True)
class Setting:
    """What the corpus knows about an episode before it is played."""

    deployment: int
    family: tuple[str, ...]
    scenario: int
    shown: tuple[Record[Bullet], ...]
    skills: tuple[Record[Skill], ...] | None = None
    """None = the agent does not work with skills."""


def draw_family(rng: random.Random) -> tuple[str, ...]:
    """Return a family of the usual splits, or a new sequence of up to four intents that no test split contains."""
    if rng.random() < 0.4:
        return rng.choice(NORMAL)
    size = rng.choices((1, 2, 3, 4), weights=(3, 4, 3, 2))[0]
    while True:
        family = tuple(rng.sample(sorted(BY_INTENT), size))
        if family not in LONG:
            return family


def draw_shown(rng: random.Random, values: Values) -> tuple[Record[Bullet], ...]:
    """Return the bullets an episode is shown: none, some or all of the rules, some of them wrong or useless."""
    share = rng.choices((0.0, rng.random(), 1.0), weights=(25, 40, 35))[0]
    rules = [rule for rule in RULES if rng.random() < share]
    stale = set(rng.sample(rules, min(len(rules), rng.randint(1, 3)))) if rng.random() < 0.15 else set[Rule]()
    frames = draw_frames(rng)
    texts = [_say(rng, rule, values, rule in stale, rng.choice(frames)) for rule in rules]
    texts += rng.sample(_NOISE, rng.randint(1, 2)) if rng.random() < 0.15 else []
    rng.shuffle(texts)
    highest = len(texts) if rng.random() < 0.3 else _HIGHEST_NUMBER
    numbers = sorted(rng.sample(range(1, highest + 1), len(texts)))
    return tuple(bullet(number, text) for number, text in zip(numbers, texts, strict=True))


def bullet(number: int, content: str) -> Record[Bullet]:
    """Return a bullet as the loop would have stored it."""
    return Record[Bullet](kind="bullet", number=number, slug="shr", payload=Bullet(content=content))


def draw_setting(rng: random.Random, values: Values, deployment: int) -> Setting:
    """Return one situation in a deployment."""
    family, scenario, shown = draw_family(rng), rng.randint(0, 999), draw_shown(rng, values)
    skills = draw_skills(rng, values, family) if rng.random() < _SKILLED else None
    return Setting(deployment, family, scenario, shown, skills)


def draw_frames(rng: random.Random) -> tuple[str, ...]:
    """Return how the rules of one playbook are worded: as the office does, in the known frames, or in made-up words."""
    style = rng.choices(("office", "frames", "made up"), weights=(5, 2, 3))[0]
    if style == "office":
        return FRAMES[:1]
    if style == "frames":
        return FRAMES
    return tuple(_made_up(rng) for _ in range(rng.randint(1, 4)))


def _made_up(rng: random.Random) -> str:
    """Return a frame of words that mean nothing, so that the model learns to read past any words."""
    before, after = ([_word(rng) for _ in range(rng.randint(0, 4))] for _ in range(2))
    if rng.random() < 0.4:
        before, after = (before, []) if rng.random() < 0.7 else ([], after)
    lead = " ".join(before) + rng.choice(("", ":", ",")) + " " if before else ""
    return f"{lead}{{rule}}{rng.choice((',', '', ';')) if after else ''}{''.join(f' {word}' for word in after)}"


def _word(rng: random.Random) -> str:
    if rng.random() < 0.5:
        return "".join(rng.choice(_LETTERS) for _ in range(rng.randint(1, 9)))
    return "".join(rng.choice(_SYLLABLES) for _ in range(rng.randint(1, 3)))


def _say(rng: random.Random, rule: Rule, values: Values, stale: bool, frame: str) -> str:
    option = values[rule.id]
    if stale:
        option = rng.choice([other for other in rule.options if other != option])
    return sentence(rule, option, frame)


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
