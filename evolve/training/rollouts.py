"""Groups of rollouts: each chain done n times under one policy, every member with a library of skills of its own.

Rewards are skill-integrated (SAGE, arXiv 2512.17102): a skill that was made in one task and used in a later one of the
chain is paid for where both succeed. `paper` counts a use as SAGE does, by the name that was called; `strict`, the
default, wants a skill that does something (`skills.usage`), since a count of names can be gamed; `none` pays for
success alone. An episode that a reply without code ended (`train.require_code`) is paid -1.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from evolve.episode.injection import Shown
from evolve.episode.rollout import Attempt, RolloutConfig
from evolve.episode.skill_runtime.chains import Link, chain, take
from evolve.parallel import all_of
from evolve.protocols import Environment
from evolve.seeds import id_for, seed_for
from evolve.training.chain_tasks import Chain
from memory.records import Frozen, StopReason, Task
from policies.protocols import Policy
from policies.rl.protocols import Flags
from policies.rl.rewards.sage import skill_integrated
from skills.library import Library
from skills.names import called, parsed
from skills.retrieval import Choosing
from skills.usage import uses

Counting = Literal["strict", "paper", "none"]
Recall = Callable[[Task], Shown]
"""What is shown for a task: always the same in one training."""


def unknowing(task: Task) -> Shown:
    """Show nothing."""
    return Shown()


class Sampling(Frozen):
    """How a batch is rolled out."""

    rollouts: int = 8
    """Members of a group."""
    counting: Counting = "strict"
    skills: bool = True
    """Off: tasks of a chain share nothing, and success alone is paid."""
    libraries: Literal["own", "one"] = "own"
    """`one`, an ablation of SAGE: after the first task all members of a group go on with the first one's functions."""
    seed: int = 0


@dataclass(frozen=True)
class ChainSpec:
    """A chain in its world, with the knowledge that its agent is shown in each task."""

    chain: Chain
    environment: Environment
    recall: Recall = unknowing
    rollouts: int | None = None
    """Members of its group; None = as `Sampling` says."""
    candidate: str = ""
    """Id of a record under test that `recall` shows on top of what is known; empty = none."""
    first: int = 0
    """Number of its first member; those before it are done otherwise."""

    @property
    def group(self) -> str:
        """Who is compared: the members that do the chain under this knowledge."""
        return f"{self.chain.id}/{self.candidate}" if self.candidate else self.chain.id


@dataclass(frozen=True)
class Rollout:
    """One member of a group: what became of each task of the chain, and what each was paid, in parts."""

    chain_id: str
    member: int
    links: tuple[Link, ...]
    rewards: tuple[dict[str, float], ...]
    used: tuple[bool, ...]
    """Whether a skill made earlier in the chain was used, by the count that pays (`none`: by the strict one)."""
    claimed: tuple[bool, ...]
    """The same by names alone: what is claimed and not used is how the count would be gamed."""
    candidate: str
    """Id of the record under test that it was shown."""
    group: str
    """`ChainSpec.group` of those it is compared with."""


async def roll(
    settings: Sequence[ChainSpec], policy: Policy, acting: RolloutConfig, sampling: Sampling, iteration: int
) -> tuple[Rollout, ...]:
    """Return the rollouts of each chain, in order. All run at once; raises what `rollout` raises."""
    groups = await all_of(_group(each, policy, acting, sampling, iteration) for each in settings)
    return tuple(rollout for group in groups for rollout in group)


async def _group(
    setting: ChainSpec, policy: Policy, acting: RolloutConfig, sampling: Sampling, iteration: int
) -> list[Rollout]:
    members = range(setting.first, setting.first + (setting.rollouts or sampling.rollouts))
    attempts = [_attempts(setting, (sampling.seed, iteration, setting.chain.id, member)) for member in members]
    how = Choosing() if sampling.skills else Choosing(k=0)

    async def done(own: Sequence[Attempt], base: Library) -> tuple[Link, ...]:
        return await chain(setting.environment, policy, own, acting, base, how)

    if sampling.libraries == "own":
        found = await all_of(done(own, Library()) for own in attempts)
        return [_rollout(setting, member, links, sampling) for member, links in zip(members, found, strict=True)]
    firsts = await all_of(done(own[:1], Library()) for own in attempts)
    library = Library().overlay()
    for link in firsts[0]:
        take(library, link.trajectory, link.shown, acting.same_name)
    rests = await all_of(done(own[1:], library) for own in attempts)
    links = [(*first, *rest) for first, rest in zip(firsts, rests, strict=True)]
    return [
        _rollout(setting, member, each, sampling, author=member == setting.first)
        for member, each in zip(members, links, strict=True)
    ]


def _attempts(setting: ChainSpec, name: tuple[int, int, str, int]) -> list[Attempt]:
    return [
        Attempt(
            id=id_for("ro", *name, position, *filter(None, [setting.candidate])),
            task=task,
            seed=seed_for(*name, position),
            core=shown.core,
            recalled=shown.recalled,
            injected=shown.injected,
            exemplars=shown.exemplars,
        )
        for position, (task, shown) in enumerate((task, setting.recall(task)) for task in setting.chain.tasks)
    ]


def _rollout(
    setting: ChainSpec, member: int, links: tuple[Link, ...], sampling: Sampling, author: bool = True
) -> Rollout:
    """Return what became of a member; where it is not the author of the functions, it is not paid for writing them."""
    strict, paper = used(links, "strict"), used(links, "paper")
    counted = paper if sampling.counting == "paper" else strict
    paid = sampling.skills and sampling.counting != "none"
    rewards = rewarded(links, counted if paid else None)
    return Rollout(
        chain_id=setting.chain.id,
        member=member,
        links=links,
        rewards=rewards if author else (rewards[0] | {"skill": 0.0}, *rewards[1:]),
        used=tuple(bool(column.any()) for column in counted.T),
        claimed=tuple(bool(column.any()) for column in paper.T),
        candidate=setting.candidate,
        group=setting.group,
    )


def rewarded(links: Sequence[Link], used: Flags | None = None) -> tuple[dict[str, float], ...]:
    """Return for each task of a chain the parts of its reward: `outcome` and `skill`, and `format` where that failed.

    `used` [m, m] is what `used` returns; None = nothing was used.
    """
    used = np.zeros((len(links), len(links)), dtype=np.bool_) if used is None else used
    malformed = np.array([link.trajectory.stop is StopReason.FORMAT for link in links])
    success = np.array([float(link.trajectory.success) for link in links])
    whole = skill_integrated(success, used, malformed=malformed)
    return tuple(
        {"outcome": 0.0, "skill": 0.0, "format": float(both)}
        if failed
        else {"outcome": float(own), "skill": float(both - own)}
        for own, both, failed in zip(success, whole, malformed, strict=True)
    )


def used(links: Sequence[Link], counting: Literal["strict", "paper"]) -> Flags:
    """Return [m, m]: True at [k, j] where task j used a skill that was made in task k < j."""
    made = {link.trajectory.task.id: at for at, link in enumerate(links)}
    found = np.zeros((len(links), len(links)), dtype=bool)
    for at, link in enumerate(links):
        origin = {record.id: made[task] for record in link.shown for task in record.provenance.task_ids if task in made}
        for record_id in _paper(link) if counting == "paper" else _strict(link):
            if origin.get(record_id, at) < at:
                found[origin[record_id], at] = True
    return found


def _strict(link: Link) -> set[str]:
    return {use.record_id for use in uses(link.trajectory, link.shown) if use.strict}


def _paper(link: Link) -> set[str]:
    """Return the shown skills whose names are called in code that does not define them anew."""
    trees = [tree for step in link.trajectory.steps if (tree := parsed(step.action)) is not None]
    names = {name for tree in trees for name in called(tree)}
    own = {node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    return {record.id for record in link.shown if record.payload.name in names - own}
