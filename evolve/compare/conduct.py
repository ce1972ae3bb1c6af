"""Carries out a plan: every life in a workspace of its own, the arms of a replicate in turns, and again after a kill.

First all arms of a replicate learn, batch by batch in turns; then all are judged, a group of tasks at a time. A life
that is done is not lived again; one that was killed or stopped goes on by `aresume`, which repeats no answered call.

Runs take turns (`Turns`), so that whatever changes on the machine meanwhile meets all of them alike.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from evolve.compare.arms import Arm
from evolve.compare.plan import LIFE, Plan, Replicate
from evolve.config.model import Config, ModelSection
from evolve.generations.workspace_registry import home
from evolve.loop import assembly as app
from evolve.loop.runs import DONE, RunRecord, exclusive
from evolve.loop.session import Parts, aresume, arun
from evolve.loop.state import Turn
from evolve.parallel import all_of
from evolve.progress import Observer
from memory.sqlite.database import copy_database
from policies.errors import BudgetExceeded
from policies.protocols import Policy
from policies.roles import Role

Watch = Callable[[Replicate, Arm], Observer]
"""Gives who watches a life."""


class Policies:
    """One policy for each section of `[policy]` and its roles, shared by all lives: weights are loaded once."""

    def __init__(self) -> None:
        self._made: dict[str, Policy] = {}

    def parts(self, config: Config) -> Parts:
        """Return the parts of a life."""
        acting = config.policy
        own: dict[Role, Policy] = {role: self._one(section, acting) for role, section in acting.roles.items()}
        return Parts(policy=self._one(acting, acting), roles=own)

    def _one(self, section: ModelSection, acting: ModelSection) -> Policy:
        if section.identity not in self._made:
            self._made[section.identity] = app.make_policy(section, home(section, acting, None))
        return self._made[section.identity]

    async def aclose(self) -> None:
        """Close all of them."""
        for policy in self._made.values():
            await policy.aclose()


@asynccontextmanager
async def shared_policies() -> AsyncGenerator[Callable[[Config], Parts]]:
    """Give what makes the parts of a life from its configuration, and close the policies afterwards."""
    policies = Policies()
    try:
        yield policies.parts
    finally:
        await policies.aclose()


@dataclass(frozen=True)
class _Life:
    """One arm in one replicate."""

    plan: Plan
    folder: Path
    replicate: Replicate
    arm: Arm
    observer: Observer

    def config(self, *, frozen: bool) -> Config:
        return self.plan.config(self.folder, self.arm, self.replicate, frozen=frozen)


async def conduct(plan: Plan, folder: Path, parts: Callable[[Config], Parts], watch: Watch) -> None:
    """Live what is missing, replicate by replicate; several processes may each conduct other replicates of one plan.

    Raises `BudgetExceeded` when a life's budget ran out, `JournalError` while another process works on a replicate, and
    what `arun` raises; what was done until then is kept.
    """
    async with _workers(plan):
        for replicate in plan.replicates:
            with exclusive(folder, replicate.name):
                lives = [_Life(plan, folder, replicate, arm, watch(replicate, arm)) for arm in plan.arms]
                await _in_turns([life for life in lives if life.arm.learns], parts, frozen=False)
                await _in_turns(lives, parts, frozen=True)


def _workers(plan: Plan) -> AbstractAsyncContextManager[object]:
    """Return what holds the workers of a cluster that all lives share, where one has its episodes there."""
    wanted = [arm.config["run"] for arm in plan.arms if arm.config["run"]["executor"] == "ray"]
    if not wanted:
        return nullcontext()
    from evolve.loop.executors import ray_worlds

    return ray_worlds.opened(wanted[0]["workers"])


async def _in_turns(lives: list[_Life], parts: Callable[[Config], Parts], *, frozen: bool) -> None:
    turns = Turns(life.arm.name for life in lives)
    await all_of(_live(life, turns, parts, frozen=frozen) for life in lives)


async def _live(life: _Life, turns: Turns, parts: Callable[[Config], Parts], *, frozen: bool) -> None:
    config = life.config(frozen=frozen)
    async with turns.of(life.arm.name) as turn:
        record = find_run(config, life.arm, frozen=frozen)
        if record is not None and record.status == DONE:
            return
        if life.arm.database and not app.is_there(config):
            config.workspace.mkdir(parents=True, exist_ok=True)
            copy_database(Path(life.arm.database), config.workspace / app.DATABASE)
        mine, observers = replace(parts(config), turn=turn), (life.observer,)
        if record is None:
            result = await arun(config, parts=mine, observers=observers)
        else:
            result = await aresume(config, record.run_id, parts=mine, observers=observers)
    if result.status != DONE:
        raise BudgetExceeded(f"{life.arm.name} in {life.replicate.name}: {result.reason}; raise it and compare again")


def find_run(config: Config, arm: Arm, *, frozen: bool) -> RunRecord | None:
    """Return the record of the run in which a life learned, or was judged; None before it began.

    A copied workspace brought other runs along: those without the tag of a life. Earlier versions gave none, so that of
    their lives those in a copy are not found.
    """
    if not app.is_there(config):
        return None
    with app.open_store(config, read_only=True) as store:
        records = [RunRecord.model_validate(data) for data in store.runs()]
    mine = [r for r in records if (r.mode == "frozen") == frozen]
    mine = [r for r in mine if r.config["run"].get("snapshot") == config.run.snapshot]
    if arm.database:
        mine = [r for r in mine if any(tag.startswith(LIFE) for tag in r.tags)]
    return mine[-1] if mine else None


class Turns:
    """One run works at a time; at each `turn()` it hands on to the next in order and waits until it is asked again."""

    def __init__(self, names: Iterable[str]) -> None:
        self._order = deque(names)
        self._asked = {name: asyncio.Event() for name in self._order}
        self._ask()

    @asynccontextmanager
    async def of(self, name: str) -> AsyncGenerator[Turn]:
        """Wait for the first turn of a run, give what it awaits between its batches, and let it leave at the end."""
        try:
            await self._asked[name].wait()
            yield partial(self._next, name)
        finally:
            self._order.remove(name)
            self._ask()

    async def _next(self, name: str) -> None:
        self._asked[name].clear()
        self._order.rotate(-1)
        self._ask()
        await self._asked[name].wait()

    def _ask(self) -> None:
        if self._order:
            self._asked[self._order[0]].set()
