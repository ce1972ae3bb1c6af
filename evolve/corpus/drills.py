"""Exercises in copying: lists to be repeated, entries to be found by number, numbers to be found by entry.

A small model learns to copy late, and everything it does here is copying: names and amounts into code, rules into
lessons, numbers into citations. Drills teach that alone, densely, before and beside the real roles.
"""

from __future__ import annotations

import random

from evolve.corpus.pack import Document
from evolve.environments.office.names import draw_names
from evolve.environments.office.rules import seeded
from policies.protocols import Message

_ROWS = 4


def make_drills(seed: int, count: int) -> list[Document]:
    """Return `count` drills; the same arguments give the same ones."""
    return [_drill(seeded("drill", seed, number)) for number in range(count)]


def _drill(rng: random.Random) -> Document:
    items = _items(rng)
    kind = rng.choice(("repeat", "find", "number"))
    if kind == "repeat":
        prompt, reply = " ".join(items), "(" + ", ".join(items) + ")"
    else:
        numbers = sorted(rng.sample(range(1, 121), len(items)))
        listed = dict(zip(numbers, items, strict=True))
        asked = rng.sample(numbers, len(numbers))
        rules = "\n".join(f"[{number}] {item}" for number, item in listed.items())
        questions = [f"[{n}]" for n in asked] if kind == "find" else [listed[n] for n in asked]
        answers = [listed[n] for n in asked] if kind == "find" else [f"[{n}]" for n in asked]
        prompt, reply = f"{rules}\n{' '.join(questions)}", "(" + ", ".join(answers) + ")"
    said = (Message(role="user", content=f"{kind}: {prompt}"), Message(role="assistant", content=reply))
    return Document("drill", said)


def _items(rng: random.Random) -> list[str]:
    """Return a mixed list of entities, written as code writes them."""
    names = draw_names(rng, _ROWS)
    pool = [f'"{text}"' for text in (*names.people, *names.subjects, *names.files, *names.senders)]
    pool += [*names.amounts, *names.phones, *(f'"{date}"' for date in names.dates)]
    return rng.sample(pool, rng.randint(6, 14))
