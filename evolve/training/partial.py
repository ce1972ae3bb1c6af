"""Partial rollouts: more groups are begun than are trained on, and what is not done goes on in the next iteration.

Source: APRIL, arXiv 2509.18521. An iteration ends with as many groups as `chains` says; the others are cut off where
they stand, and go on first in the next one: the replies that they were given are replayed, then the new weights answer.

What is done first is short, so a batch leans to short episodes. Over a training nothing does: no group is dropped, all
are only put off, at most `staleness` iterations (then they are waited for), and the last iteration begins no more than
it trains on. The figures of one iteration (success, tokens written) are those of its batch and lean as it does.

Two departures from APRIL. What is kept is whole replies: one that is cut off in the middle is asked for anew, and
counted. And there are no rollouts beside the updates: engine and trainer take turns in one process, so that all there
is to gain is the tail of each batch, where few episodes keep an engine busy that could do many.

Which groups are done first depends on time. It is noted before anything is learned from them, so that an iteration
which was killed after that takes the same ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from evolve.episode.instrumentation import WatchedPolicy
from evolve.episode.rollout import RolloutConfig
from evolve.training import ledger
from evolve.training.replies import Kept
from evolve.training.rollouts import ChainSpec, Rollout, Sampling, roll
from memory.errors import BadInput
from memory.records import Frozen
from policies.protocols import Message, Policy, Reply, SamplingParams
from policies.rl.protocols import Array
from policies.rl.rows import TrainRow
from policies.wrapped import WrappedPolicy

FILE = "partial.jsonl"
"""Of a training's folder: what each iteration chose, and what it left to the next."""


class Group(Frozen):
    """A group that was begun; its iteration and its chain say all that is needed to do it again."""

    id: str
    """Of its chain, and of the text that it measures, where it measures one."""
    born: int
    """The iteration that began it: its seeds come from that."""
    rollouts: int


class Choice(Frozen):
    """What an iteration trains on, and what it leaves."""

    iteration: int
    done: tuple[str, ...]
    """Ids of groups, in the order in which they were begun."""
    carried: tuple[Group, ...] = ()
    stale: int = 0
    """Groups that could not be put off once more."""
    cut_turns: int = 0
    """Model calls that were given up; what they had sampled is lost."""

    @property
    def figures(self) -> dict[str, float]:
        """What the metrics tell of it."""
        left = len(self.carried)
        return {
            "groups_begun": float(len(self.done) + left),
            "groups_carried": float(left),
            "groups_stale": float(self.stale),
            "cut_turns": float(self.cut_turns),
        }


class Begun(NamedTuple):
    """A group with what it takes to do it."""

    group: Group
    setting: ChainSpec


@dataclass(frozen=True)
class Rolling:
    """Who rolls out in an iteration, how, and where replies are kept."""

    policy: Policy
    acting: RolloutConfig
    sampling: Sampling
    kept: Kept
    staleness: int

    def replaying(self, born: int, policy: Policy | None = None) -> Policy:
        """Return who answers groups that were begun in an iteration: what was kept for them, then the policy."""
        return self.kept.replaying(policy or WatchedPolicy(self.policy), f"{self.sampling.seed}/{born}", born)


def choices(folder: Path) -> dict[int, Choice]:
    """Return by iteration what was chosen so far."""
    found = (Choice.model_validate(line) for line in ledger.lines(folder / FILE))
    return {each.iteration: each for each in found}


def carried(folder: Path, iteration: int) -> tuple[Group, ...]:
    """Return what the iteration before left to this one, the oldest first."""
    before = choices(folder).get(iteration - 1)
    return before.carried if before else ()


def resumed(groups: Sequence[Group], chains_of: Callable[[int], Sequence[ChainSpec]]) -> list[Begun]:
    """Return carried groups with their settings; `chains_of` gives those that an iteration was drawn from.

    Raises `BadInput` where a group's chain is not among them any more.
    """
    known = {born: {each.chain.id: each for each in chains_of(born)} for born in {each.born for each in groups}}
    lost = [each.id for each in groups if each.id not in known[each.born]]
    if lost:
        raise BadInput(
            f"chains {', '.join(lost)} were begun and are not drawn any more: the tasks of the environment changed; "
            "bring them back, or begin a new training"
        )
    return [Begun(each, replace(known[each.born][each.id], rollouts=each.rollouts)) for each in groups]


def begun(settings: Sequence[ChainSpec], sampling: Sampling, iteration: int) -> list[Begun]:
    """Return the groups that an iteration begins."""
    sizes = [each.rollouts or sampling.rollouts for each in settings]
    groups = [Group(id=each.group, born=iteration, rollouts=n) for each, n in zip(settings, sizes, strict=True)]
    return [Begun(*both) for both in zip(groups, settings, strict=True)]


async def gathered(
    started: Sequence[Begun], needed: int, rolling: Rolling, iteration: int, chosen: Choice | None = None
) -> tuple[Choice, tuple[Rollout, ...]]:
    """Roll out until `needed` groups are done, and all that are stale; return the choice, and its rollouts in order.

    Of those that are done the oldest are taken, then the first. All others are cut off and their tasks ended before
    this returns. `chosen`: what was chosen when this iteration was done before; then only that is done. Raises what
    `roll` raises.
    """
    wanted = [each for each in started if chosen is None or each.group.id in chosen.done]
    stale = {each.group.id for each in wanted if iteration - each.group.born >= rolling.staleness}
    calls = _Calls(WatchedPolicy(rolling.policy))
    tasks = {each.group.id: asyncio.ensure_future(_done(each, calls, rolling)) for each in wanted}
    need = min(needed, len(wanted)) if chosen is None else len(wanted)
    try:
        order = await _until(tasks, need, stale)
    finally:
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)
    born = {each.group.id: each.group.born for each in wanted}
    taken = set(sorted(order, key=lambda name: (born[name], order.index(name)))[: max(need, len(stale))])
    choice = chosen or Choice(
        iteration=iteration,
        done=tuple(name for name in tasks if name in taken),
        carried=tuple(each.group for each in wanted if each.group.id not in taken),
        stale=len(stale),
        cut_turns=calls.cut,
    )
    return choice, tuple(rollout for name in choice.done for rollout in tasks[name].result())


async def _done(each: Begun, policy: Policy, rolling: Rolling) -> tuple[Rollout, ...]:
    """Do a whole group with the seeds that it was begun with."""
    own = rolling.replaying(each.group.born, policy)
    return await roll([each.setting], own, rolling.acting, rolling.sampling, each.group.born)


async def _until(tasks: Mapping[str, asyncio.Future[Any]], needed: int, stale: set[str]) -> list[str]:
    """Wait for so many, all of `stale` among them; return the names of those that are done, the first ones first.

    Raises the first error.
    """
    order: list[str] = []
    while len(order) < needed or not stale <= set(order):
        await asyncio.wait([tasks[name] for name in tasks if name not in order], return_when=asyncio.FIRST_COMPLETED)
        fresh = [name for name, task in tasks.items() if name not in order and task.done()]
        for name in fresh:
            tasks[name].result()
        order += fresh
    return order


class _Calls(WrappedPolicy):
    """Counts the calls that were cut off."""

    cut = 0

    async def generate(self, messages: Sequence[Message], params: SamplingParams) -> Reply:
        try:
            return await super().generate(messages, params)
        except asyncio.CancelledError:
            self.cut += 1
            raise


def off_policy_share(rows: Sequence[TrainRow], version: str) -> float:
    """Return the share of the rows' trained tokens that other weights than `version` sampled; 0 where there are none.

    By versions, not by iterations: weights that did not change meanwhile are the same policy.
    """
    sizes = [(span.stop - span.start, span.policy_version) for row in rows for span in row.spans]
    return sum(n for n, by in sizes if by != version) / max(sum(n for n, _ in sizes), 1)


def masked(rows: Sequence[TrainRow], advantages: Sequence[Array], version: str) -> list[Array]:
    """Return the advantages, 0 for turns that other weights than `version` sampled.

    What slime calls `mask_offpolicy_in_partial_rollout`. Their tokens still count where losses become one number, so
    that the step is smaller by their share; their episodes still count in the mean of their group.
    """
    return [
        own * [span.policy_version == version for span in row.spans] for row, own in zip(rows, advantages, strict=True)
    ]
