"""Exercises that teach densely what the real roles need here and there: copying, and finding a rule among many.

A small model learns to copy and to look up late, and everything it does is one of the two: names and amounts go into
code, rules decide arguments, numbers become citations. Half of the drills open the training, the rest stand beside the
real roles. What each of them brought is in docs/LOG.md.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from evolve.corpus.pack import Document
from evolve.environments.office.names import draw_names
from evolve.environments.office.rules import RULES, seeded
from evolve.environments.office.wording import frames, sentence
from policies.protocols import Message

HIGHEST_NUMBER = 120
ABSENT = "-"
"""What is answered about a rule that is not in the list."""

_ROWS = 4
_ASKED = 12


def make_drills(seed: int, count: int) -> list[Document]:
    """Return `count` drills; the same arguments give the same ones."""
    return [_drill(seeded("drill", seed, number)) for number in range(count)]


def _drill(rng: random.Random) -> Document:
    name = rng.choices(tuple(KINDS), weights=(1, 1, 1, 5))[0]
    prompt, reply = KINDS[name](rng)
    said = (Message(role="user", content=f"{name}: {prompt}"), Message(role="assistant", content=reply))
    return Document("drill", said)


def _repeat(rng: random.Random) -> tuple[str, str]:
    """Return a list of entities and the same list."""
    items = _items(rng)
    return " ".join(items), _listed(items)


def _find(rng: random.Random) -> tuple[str, str]:
    """Return numbered entities, asked for by number."""
    numbered, asked = _numbered(rng, _items(rng))
    return f"{_lines(numbered)}\n{' '.join(f'[{n}]' for n in asked)}", _listed([numbered[n] for n in asked])


def _number(rng: random.Random) -> tuple[str, str]:
    """Return numbered entities, whose numbers are asked for."""
    numbered, asked = _numbered(rng, _items(rng))
    return f"{_lines(numbered)}\n{' '.join(numbered[n] for n in asked)}", _listed([f"[{n}]" for n in asked])


def _rules(rng: random.Random) -> tuple[str, str]:
    """Return some of the house rules with any values, and what some calls need: number and value, or that none says."""
    options = {rule.id: rng.choice(rule.options) for rule in RULES}
    canonical = rng.random() < 0.5
    shown = [rule for rule in RULES if rng.random() < rng.choice((0.5, 0.9))]
    texts = {r.id: sentence(r, options[r.id], None if canonical else rng.choice(frames(r))) for r in shown}
    numbered, _ = _numbered(rng, rng.sample(list(texts), len(texts)))
    number_of = {rule_id: number for number, rule_id in numbered.items()}
    asked = rng.sample(RULES, _ASKED)
    known = [f"[{number_of[r.id]}] {options[r.id]}" if r.id in number_of else ABSENT for r in asked]
    lines = _lines({number: texts[rule_id] for number, rule_id in numbered.items()})
    answers = [f"{rule.call} {rule.thing}: {said}" for rule, said in zip(asked, known, strict=True)]
    return f"\n{lines}", "\n".join(answers)


KINDS: dict[str, Callable[[random.Random], tuple[str, str]]] = {
    "repeat": _repeat,
    "find": _find,
    "number": _number,
    "rules": _rules,
}


def _numbered(rng: random.Random, items: list[str]) -> tuple[dict[int, str], list[int]]:
    """Return `items` under ascending numbers with gaps, and the numbers in another order."""
    numbers = sorted(rng.sample(range(1, HIGHEST_NUMBER + 1), len(items)))
    return dict(zip(numbers, items, strict=True)), rng.sample(numbers, len(numbers))


def _lines(numbered: dict[int, str]) -> str:
    return "\n".join(f"[{number}] {text}" for number, text in numbered.items())


def _listed(items: list[str]) -> str:
    return f"({', '.join(items)})"


def _items(rng: random.Random) -> list[str]:
    """Return a mixed list of entities, written as code writes them."""
    names = draw_names(rng, _ROWS)
    pool = [f'"{text}"' for text in (*names.people, *names.subjects, *names.files, *names.senders)]
    pool += [*names.amounts, *names.phones, *(f'"{date}"' for date in names.dates)]
    return rng.sample(pool, rng.randint(6, 14))
