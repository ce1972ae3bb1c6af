"""Runs the tests of a skill in the sandbox: what it requires is defined, then the code that calls it and asserts.

A test that names a task runs in that task's world; one that names none runs where there are no apps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evolve.config.model import Config
from evolve.environments.check import SPLITS
from evolve.episode.skill_runtime.prelude import start
from evolve.gates.splits import splits_there
from evolve.loop.assembly import make_environment
from evolve.protocols import Action
from memory.records import Frozen, Record
from skills.record import SkillTest
from skills.sandbox.monty import shared


class Checked(Frozen):
    """What came of one test."""

    code: str
    task_id: str = ""
    error: str | None = None
    """None = passed."""


async def run_tests(closure: Sequence[Record[Any]], config: Config) -> tuple[Checked, ...]:
    """Return what came of each test of the last of `closure`: a skill after all that it requires.

    The configured environment is made only where a test names a task.
    """
    checked: list[Checked] = []
    for test in closure[-1].payload.tests if closure else ():
        error = await _in_world(closure, test, config) if test.task_id else _alone(closure, test)
        checked.append(Checked(code=test.code, task_id=test.task_id, error=error))
    return tuple(checked)


async def _in_world(closure: Sequence[Record[Any]], test: SkillTest, config: Config) -> str | None:
    environment = make_environment(config)
    there = splits_there(config, environment, dict.fromkeys((config.run.split, *SPLITS)))
    task = next((task for tasks in there.values() for task in tasks if task.id == test.task_id), None)
    if task is None:
        return f"environment {environment.name!r} has no task {test.task_id!r}"
    started = await start(environment, task, 0, closure)
    try:
        return started.error or (await started.episode.step(Action(text=test.code))).error
    finally:
        await started.episode.close()


def _alone(closure: Sequence[Record[Any]], test: SkillTest) -> str | None:
    session = shared().session({})
    try:
        for code in (*(record.payload.source for record in closure), test.code):
            result = session.run(code)
            if result.error is not None:
                return result.error
        return None
    finally:
        session.close()
