"""More episodes than the sandbox has room for: they wait for each other, and all are done."""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter
from collections.abc import Sequence

import pytest

from evolve.environments.formula import Formula
from evolve.environments.office import episode as office_episode
from evolve.environments.office.environment import Office, OfficeConfig
from evolve.episode.rollout import Attempt, RolloutConfig, rollout
from evolve.parallel import all_of, slot
from memory.records import Trajectory
from policies.protocols import Message, Reply, SamplingParams
from policies.scripted import ScriptedPolicy
from skills.sandbox.monty import MontySandbox

ACTING = RolloutConfig(world="W", max_steps=3)
LIMIT, EPISODES = 2, 9


class Slow(ScriptedPolicy):
    """Lets the others act before it answers, so that episodes stand open at once."""

    def __init__(self) -> None:
        super().__init__(lambda messages, params: "x = 1" if len(messages) < 3 else "apps.task.done()")

    async def generate(self, messages: Sequence[Message], params: SamplingParams) -> Reply:
        for _ in range(20):
            await asyncio.sleep(0)
        return await super().generate(messages, params)


class Narrow(Office):
    """An office with room for few."""

    max_concurrency = LIMIT


async def done(office: Office, number: int, policy: ScriptedPolicy | None = None) -> Trajectory:
    plan = Attempt(id=f"e{number}", task=office.tasks("train")[number], seed=number)
    return await rollout(office, policy or Slow(), plan, ACTING)


async def test_many_more_episodes_than_there_is_room_for_are_all_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """The office holds two sessions at once: it does the gold solution while it grades."""
    pool = MontySandbox(max_sessions=2 * LIMIT)
    monkeypatch.setattr(office_episode, "shared", lambda: pool)
    office = Narrow(OfficeConfig(deployment=3))
    found = await asyncio.gather(*(done(office, number) for number in range(EPISODES)))
    pool.close()
    assert [[step.error for step in each.steps] for each in found] == [[None, None]] * EPISODES
    assert all(each.outcome for each in found)


async def test_an_episode_that_is_cut_off_gives_its_place_to_one_that_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, holding = MontySandbox(max_sessions=2 * LIMIT), asyncio.Event()
    monkeypatch.setattr(office_episode, "shared", lambda: pool)

    class Holding(ScriptedPolicy):
        async def generate(self, messages: Sequence[Message], params: SamplingParams) -> Reply:
            if len(messages) > 2:
                holding.set()
                await asyncio.Event().wait()
            return await super().generate(messages, params)

    office = Narrow(OfficeConfig(deployment=3))
    first = [asyncio.create_task(done(office, at, Holding(["x = 1"]))) for at in range(LIMIT)]
    await holding.wait()
    waiting = asyncio.create_task(done(office, LIMIT))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    first[0].cancel()
    assert (await waiting).outcome
    first[1].cancel()
    await asyncio.gather(*first, return_exceptions=True)
    pool.close()


@pytest.mark.parametrize(("limits", "most"), [((4, 4), [4]), ((4, 1), [4, 1])])
async def test_places_are_shared_by_worlds_of_one_name_and_number(limits: tuple[int, ...], most: list[int]) -> None:
    """Two worlds of one name at once; those of one number share their places, others have their own."""
    now, peak = Counter[int](), Counter[int]()

    async def hold(office: Office) -> None:
        limit = office.max_concurrency
        async with slot(office):
            now[limit] += 1
            peak[limit] = max(peak[limit], now[limit])
            for _ in range(20):
                await asyncio.sleep(0)
            now[limit] -= 1

    offices = [Office(OfficeConfig(deployment=3)) for _ in limits]
    for office, limit in zip(offices, limits, strict=True):
        office.max_concurrency = limit
    await all_of(hold(office) for office in offices for _ in range(8))
    assert [peak[limit] for limit in dict.fromkeys(limits)] == most


@pytest.mark.parametrize("world", [Office, Formula])
def test_the_worlds_that_run_code_leave_two_sessions_to_each_of_their_episodes(world: type[Office | Formula]) -> None:
    sessions = inspect.signature(MontySandbox).parameters["max_sessions"].default
    assert sessions >= 2 * world.max_concurrency >= 512, "the paper's batch of 384 is done in two goes at most"
