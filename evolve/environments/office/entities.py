"""Entities of a task: people, subjects, titles, dates and amounts, from wide pools so that they must be copied."""

from __future__ import annotations

import random
from dataclasses import dataclass

# fmt: off
_HEADS = (
    "Ba", "Be", "Bo", "Da", "De", "Do", "Fa", "Fe", "Ga", "Go", "Ha", "He", "Ja", "Jo", "Ka", "Ke", "Ko", "La",
    "Le", "Lo", "Ma", "Me", "Mo", "Na", "Ne", "Pa", "Pe", "Ra", "Re", "Ro", "Sa", "Se", "Ta", "Te", "To", "Va",
)
_TAILS = (
    "bel", "dan", "den", "dor", "fin", "gar", "kar", "kel", "lan", "lin", "lor", "mar", "mi", "nel", "nor", "ra",
    "rin", "ris", "rot", "san", "sel", "ta", "tan", "tor", "va", "ven", "vin", "zor",
)
_FIRST = (
    "blue", "red", "green", "grey", "quick", "early", "final", "draft", "north", "south", "summer", "winter",
    "annual", "weekly", "public", "secret", "small", "great", "old", "new", "spare", "second", "joint", "open",
)
_SECOND = (
    "report", "budget", "invoice", "lease", "survey", "contract", "ledger", "visit", "audit", "review", "launch",
    "parade", "dinner", "lunch", "picnic", "march", "lecture", "seminar", "manual", "poster", "memo", "sketch",
    "outline", "summary", "roster", "menu",
)
# fmt: on


@dataclass(frozen=True)
class Names:
    """What one task's world is filled with; index 0 to 3 of each list are the ones its intents use."""

    people: tuple[str, ...]
    subjects: tuple[str, ...]
    senders: tuple[str, ...]
    titles: tuple[str, ...]
    dates: tuple[str, ...]
    files: tuple[str, ...]
    chores: tuple[str, ...]
    new_dates: tuple[str, ...]
    amounts: tuple[str, ...]
    phones: tuple[str, ...]


def _people(rng: random.Random, count: int) -> list[str]:
    chosen: set[str] = set()
    while len(chosen) < count:
        chosen.add(rng.choice(_HEADS) + rng.choice(_TAILS))
    return rng.sample(sorted(chosen), count)


def _phrases(rng: random.Random, count: int) -> list[str]:
    chosen: set[str] = set()
    while len(chosen) < count:
        chosen.add(f"{rng.choice(_FIRST)} {rng.choice(_SECOND)}")
    return rng.sample(sorted(chosen), count)


def _date(rng: random.Random) -> str:
    return f"2026-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}"


def draw_names(rng: random.Random, rows: int = 6) -> Names:
    """Return the entities of one task: `rows` of each sort, all phrases different from each other."""
    people = _people(rng, 2 * rows)
    phrases = _phrases(rng, 4 * rows)
    return Names(
        people=tuple(people[:rows]),
        senders=tuple(people[rows:]),
        subjects=tuple(phrases[:rows]),
        titles=tuple(phrases[rows : 2 * rows]),
        files=tuple(phrases[2 * rows : 3 * rows]),
        chores=tuple(phrases[3 * rows :]),
        dates=tuple(_date(rng) for _ in range(rows)),
        new_dates=tuple(_date(rng) for _ in range(rows)),
        amounts=tuple(f"{rng.randint(2, 99)}.{rng.randint(1, 99):02d}" for _ in range(rows)),
        phones=tuple(f"{rng.randint(1000, 9999)}" for _ in range(rows)),
    )
