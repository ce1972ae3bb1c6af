"""An office in which episodes of some tasks wait at their first step until they are let go."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from evolve.environments.office.environment import Office, OfficeConfig
from evolve.environments.office.episode import OfficeEpisode
from evolve.protocols import Action, StepResult
from memory.records import Outcome, Task


class Held(Office):
    """`held`: ids of the tasks that wait until they are not; `steps`: how many are done before the process ends."""

    def __init__(self, config: OfficeConfig, held: Collection[str] = ()) -> None:
        super().__init__(config)
        self.held = held
        self.under_way = self.waiting = 0
        self.steps = 10**6

    async def let_go(self) -> None:
        """Hold nothing any more, once all that is under way waits."""
        while not 0 < self.under_way == self.waiting:
            await asyncio.sleep(0.005)
        self.held = ()

    def start(self, task: Task, seed: int = 0) -> HeldEpisode:  # type: ignore[override]
        self.under_way += 1
        return HeldEpisode(super().start(task, seed), self, task.id)


class HeldEpisode:
    """One of its episodes."""

    def __init__(self, inner: OfficeEpisode, office: Held, task: str) -> None:
        self.inner, self.office, self.task = inner, office, task

    async def step(self, action: Action) -> StepResult:
        self.office.steps -= 1
        if self.office.steps < 0:
            raise Killed
        self.office.waiting += 1
        try:
            while self.task in self.office.held:
                await asyncio.sleep(0.005)
        finally:
            self.office.waiting -= 1
        return await self.inner.step(action)

    async def grade(self) -> Outcome:
        return await self.inner.grade()

    async def close(self) -> None:
        await self.inner.close()
        self.office.under_way -= 1


class Killed(BaseException):
    """The process ends here."""
