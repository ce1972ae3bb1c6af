"""The scripted floor and ceiling of the office: what an agent without memory and one with the oracle playbook reach."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from benchmarks.claim import Row, at_least, at_most
from evolve.environments.office.environment import Office, OfficeConfig
from evolve.environments.office.solver import Knowledge, next_action
from memory.records import Task

MAX_STEPS = 20


def solve(office: Office, task: Task, rules: Sequence[str]) -> bool:
    """Return whether the scripted solver that is shown `rules` solves the task."""
    lines = [f"- {text} [{number}]" for number, text in enumerate(rules, 1)]
    episode = office.start(task)
    observations: list[str] = []
    for _ in range(MAX_STEPS):
        result = episode.run(next_action(office.goal(task), Knowledge.read(lines), observations))
        observations.append(result.observation)
        if result.done:
            break
    success = asyncio.run(episode.grade()).success
    episode.discard()
    return success


def scripted_rates(deployments: Iterable[int]) -> list[Row]:
    """Return the scripted solver's success on test_normal without memory and with the oracle playbook."""
    cold: list[bool] = []
    best: list[bool] = []
    for deployment in deployments:
        office = Office(OfficeConfig(deployment=deployment))
        for task in office.tasks("test_normal"):
            cold.append(solve(office, task, ()))
            best.append(solve(office, task, office.oracle))
    return [
        Row("scripted solver without memory, %", 100 * sum(cold) / len(cold), at_most(40), n=len(cold)),
        Row("scripted solver with the oracle playbook, %", 100 * sum(best) / len(best), at_least(95), n=len(best)),
    ]
