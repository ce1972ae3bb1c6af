"""Chains of tasks: siblings of one scenario, or tasks whose words are alike where there are no scenarios.

SAGE (arXiv 2512.17102) draws two of the three siblings of a scenario; chains by the similarity of queries did as well
there, so labels are not needed.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from typing import Literal

from evolve.seeds import id_for
from memory.errors import BadInput
from memory.records import Frozen, Task

By = Literal["scenario", "similarity"]


class Chain(Frozen):
    """Tasks that one agent does one after another with one library of skills."""

    id: str
    tasks: tuple[Task, ...]


def chains(tasks: Sequence[Task], length: int, seed: int, by: By = "scenario") -> tuple[Chain, ...]:
    """Return one chain of `length` tasks for each scenario (or task and its nearest ones) that has so many, shuffled.

    Raises `BadInput` where there is none.
    """
    rng = random.Random(seed)
    groups = _scenarios(tasks) if by == "scenario" else _neighbours(tasks, length)
    found: list[Chain] = []
    for group in groups:
        if len(group) >= length:
            drawn = rng.sample(group, length)
            found.append(Chain(id=id_for("ch", seed, *(task.id for task in drawn)), tasks=tuple(drawn)))
    if not found:
        raise BadInput(
            f"no {by} has {length} of the {len(tasks)} tasks given; shorten the chains, or make them by "
            f"{'similarity' if by == 'scenario' else 'scenario'}"
        )
    rng.shuffle(found)
    return tuple(found)


def _scenarios(tasks: Sequence[Task]) -> list[list[Task]]:
    groups: dict[str, list[Task]] = defaultdict(list)
    for task in tasks:
        groups[task.scenario or task.id].append(task)
    return list(groups.values())


def _neighbours(tasks: Sequence[Task], length: int) -> list[list[Task]]:
    """Return for each task itself and those most like it in words; tasks already in a group are taken once."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    words = TfidfVectorizer(ngram_range=(1, 2)).fit_transform(task.instruction for task in tasks)
    alike = (words @ words.T).toarray()
    free = dict(enumerate(tasks))
    groups: list[list[Task]] = []
    while len(free) >= length:
        first = next(iter(free))
        near = sorted(free, key=lambda at: (at != first, -alike[first, at], at))[:length]
        groups.append([free.pop(at) for at in near])
    return groups
