"""Groups of rollouts: each chain done n times under one policy, every member with a library of skills of its own.

Rewards are skill-integrated (SAGE, arXiv 2512.17102): a skill that was made in one task and used in a later one of the
chain is paid for where both succeed. `paper` counts a use as SAGE does, by the name that was called; `strict`, the
default, wants a skill that does something (`skills.usage`), since a count of names can be gamed; `none` pays for
success alone.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from evolve.injection import Shown
from evolve.parallel import all_of
from evolve.protocols import Environment
from evolve.rollout import Acting, Attempt
from evolve.seeds import id_for, seed_for
from evolve.skilled.chains import Link, chain
from evolve.training.chains import Chain
from memory.records import Frozen, Task
from policies.protocols import Policy
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
    seed: int = 0


@dataclass(frozen=True)
class Setting:
    """A chain in its world, with the knowledge that its agent is shown in each task."""

    chain: Chain
    environment: Environment
    recall: Recall = unknowing
    rollouts: int | None = None
    """Members of its group; None = as `Sampling` says."""


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


async def roll(
    settings: Sequence[Setting], policy: Policy, acting: Acting, sampling: Sampling, iteration: int
) -> tuple[Rollout, ...]:
    """Return the rollouts of each chain, in order. All run at once; raises what `rollout` raises."""
    members = ((each, member) for each in settings for member in range(each.rollouts or sampling.rollouts))
    return tuple(await all_of(_member(each, m, policy, acting, sampling, iteration) for each, m in members))


async def _member(
    setting: Setting, member: int, policy: Policy, acting: Acting, sampling: Sampling, iteration: int
) -> Rollout:
    name = (sampling.seed, iteration, setting.chain.id, member)
    attempts = [
        Attempt(
            id=id_for("ro", *name, position),
            task=task,
            seed=seed_for(*name, position),
            core=shown.core,
            recalled=shown.recalled,
            injected=shown.injected,
        )
        for position, (task, shown) in enumerate((task, setting.recall(task)) for task in setting.chain.tasks)
    ]
    how = Choosing() if sampling.skills else Choosing(k=0)
    links = await chain(setting.environment, policy, attempts, acting, Library(), how)
    strict, paper = used(links, "strict"), used(links, "paper")
    counted = paper if sampling.counting == "paper" else strict
    paid = sampling.skills and sampling.counting != "none"
    rewards = rewarded(links, counted if paid else np.zeros_like(counted))
    return Rollout(
        chain_id=setting.chain.id,
        member=member,
        links=links,
        rewards=rewards,
        used=tuple(bool(column.any()) for column in counted.T),
        claimed=tuple(bool(column.any()) for column in paper.T),
    )


def rewarded(links: Sequence[Link], used: np.ndarray[Any, np.dtype[np.bool_]]) -> tuple[dict[str, float], ...]:
    """Return for each task of a chain `outcome` and `skill`, the parts of its reward."""
    success = np.array([float(link.trajectory.success) for link in links])
    whole = skill_integrated(success, used)
    return tuple({"outcome": float(own), "skill": float(both - own)} for own, both in zip(success, whole, strict=True))


def used(links: Sequence[Link], counting: Literal["strict", "paper"]) -> np.ndarray[Any, np.dtype[np.bool_]]:
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
