"""Chains hold siblings of one scenario, or tasks alike in words; each is drawn from the seed alone."""

from __future__ import annotations

import pytest

from evolve.training.chain_tasks import chains
from memory.errors import BadInput
from memory.records import Task

WORDS = {"pay": "pay the bill of a friend", "mail": "send a long letter home", "file": "find files"}
TASKS = [
    Task(id=f"{name}_{at}", instruction=f"{words} number {at}", scenario=name)
    for name, words in WORDS.items()
    for at in (1, 2, 3)
]


def test_a_chain_by_scenario_holds_other_siblings_of_one_scenario() -> None:
    found = chains(TASKS, 2, seed=1)
    assert sorted({task.scenario for task in chain.tasks}.pop() for chain in found) == ["file", "mail", "pay"]
    assert all(len({task.scenario for task in chain.tasks}) == 1 for chain in found)
    assert all(len({task.id for task in chain.tasks}) == 2 for chain in found)


def test_a_chain_by_similarity_needs_no_scenarios() -> None:
    plain = [task.model_copy(update={"scenario": ""}) for task in TASKS]
    found = chains(plain, 3, seed=1, by="similarity")
    assert sorted(sorted(task.id for task in chain.tasks) for chain in found) == [
        [f"{name}_{at}" for at in (1, 2, 3)] for name in ("file", "mail", "pay")
    ]


def test_the_seed_decides_alone() -> None:
    assert chains(TASKS, 2, seed=3) == chains(TASKS, 2, seed=3)
    assert len({tuple(chain.id for chain in chains(TASKS, 2, seed=seed)) for seed in range(20)}) == 20


def test_tasks_that_make_no_chain_are_refused_with_what_to_do() -> None:
    with pytest.raises(BadInput, match="shorten the chains, or make them by similarity"):
        chains(TASKS, 4, seed=0)
