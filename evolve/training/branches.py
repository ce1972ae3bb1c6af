"""Branching: a part of a group's rollouts goes on from turns of the others, where the policy was unsure what to say.

The others, the bases, are done first. A branch is a fresh episode, brought to the turn as a retry is (`state_replay`):
what was said before is said again, the turn itself and the rest are sampled anew. What no turn was branched for is
filled with whole rollouts. All are compared as one group and trained on whole, so what branches share with their base
gets the mean of their advantages, and is computed once (`policies.rl.packing`).
Source: ARPO, arXiv 2507.19849, with soft advantages. Deviations: it decides while it rolls out, first come, first
served, and branches may be branched; here all turns of the bases are known, those that are most unsure come first, and
what a turn's entropy is, is estimated by the tokens that were sampled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

import numpy as np

from evolve.config.training import TrainSection
from evolve.episode.skill_runtime.chains import Link
from evolve.errors import ConfigError
from evolve.parallel import all_of
from evolve.seeds import id_for, seed_for
from evolve.training.rollouts import ChainSpec, Rollout, Sampling, rewarded, roll
from evolve.training.state_replay import Anew, Calls, Dropped, anew
from evolve.training.turns import Replies, turn_of, turns_of
from policies.rl.protocols import BranchDecision
from policies.rl.rows import Turn

FIRST = 20
"""Tokens of a turn whose probabilities tell how unsure the policy was."""
TRIED, SAME, FILLED = "branches", "branches_same", "branches_filled"
"""Turns branched from, branches whose turn came out as their base's, and whole rollouts in place of branches."""
DROPPED = ("diverged", "not_graded")
"""Why a turn has no branch: the world answered the same steps otherwise, or the branch was not graded."""


def branching_of(section: TrainSection) -> Branching | None:
    """Return what branches rollouts, None where `[train]` wants none. Raises `ConfigError` where they do not fit it."""
    if not section.branching.branches:
        return None
    asked = f"got train.branching.branches = {section.branching.branches} with"
    if section.skills or section.length != 1:
        raise ConfigError(
            f"{asked} skills = {section.skills}, length = {section.length}; branches are of single tasks: set "
            "train.skills = false and train.length = 1, as `evolve train grpo` does"
        )
    if section.retries or section.candidates:
        raise ConfigError(
            f"{asked} retries = {section.retries!r}, candidates = {section.candidates}; a group is shared out in one "
            'way: set train.retries = "" and train.candidates = 0, or train.branching.branches = 0'
        )
    if section.branching.branches >= section.rollouts:
        raise ConfigError(
            f"{asked} rollouts = {section.rollouts}; branches are a part of them, and need one to branch: give fewer"
        )
    return Branching(section.member("branching"), section.branching.branches)


@dataclass(frozen=True)
class Place:
    """A turn that may be branched from."""

    base: Rollout
    turns: tuple[Turn, ...]
    """Those of the base up to this one."""
    rise: float
    """By how much its entropy is above that of the first, nats a token."""


@dataclass(frozen=True)
class Branch:
    """A rollout that was branched from another."""

    rollout: Rollout
    same: bool
    """Its turn came out token for token as its base's."""


@dataclass(frozen=True)
class Grown:
    """What branching adds to bases."""

    filled: tuple[Rollout, ...] = ()
    """Whole rollouts: samples of the policy as bases are."""
    branches: tuple[Rollout, ...] = ()
    """No such samples: they share what bases said, and begin where it was unsure."""
    counts: dict[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True)
class Branching:
    """Branches: which turns may be branched from, and how many of a group's rollouts are to be branches."""

    decide: BranchDecision
    branches: int

    async def grown(
        self, bases: Sequence[Rollout], settings: Sequence[ChainSpec], calls: Calls, sampling: Sampling, iteration: int
    ) -> Grown:
        """Return what makes the groups of some bases whole. Raises what `roll` raises."""
        groups: dict[str, list[Rollout]] = {each.group: [] for each in settings}
        for rollout in bases:
            groups[rollout.group].append(rollout)
        tried = [
            each for group in await all_of(self._tried(groups[s.group], s, calls) for s in settings) for each in group
        ]
        done = [each for each in tried if isinstance(each, Branch)]
        sizes = Counter(each.rollout.group for each in done)
        missing = [
            replace(each, first=len(groups[each.group]) + self.branches, rollouts=self.branches - sizes[each.group])
            for each in settings
            if sizes[each.group] < self.branches
        ]
        filled = await roll(missing, calls.policy, calls.acting, sampling, iteration)
        counts = {TRIED: len(tried), SAME: sum(each.same for each in done), FILLED: len(filled)}
        counts |= {f"{TRIED}_{why}": tried.count(why) for why in DROPPED}
        return Grown(filled, tuple(each.rollout for each in done), counts)

    async def _tried(self, bases: Sequence[Rollout], setting: ChainSpec, calls: Calls) -> list[Branch | str]:
        """Return the branches of a group, for each turn branched from one, or why there is none."""
        chosen = places(bases, self.decide, self.branches, calls.replies)
        return await all_of(_branch(place, len(bases) + at, setting, calls) for at, place in enumerate(chosen))


def places(bases: Sequence[Rollout], decide: BranchDecision, most: int, replies: Replies) -> list[Place]:
    """Return at most so many turns of a group to branch from, those that are most unsure first.

    A base that was not graded, or is not known token by token, offers none; nor is a first turn ever branched from:
    that would be a whole rollout.
    """
    found: list[Place] = []
    for base in bases:
        trajectory = base.links[0].trajectory
        turns = (turns_of(trajectory, replies) if trajectory.outcome is not None else None) or ()
        if len(turns) < 2:
            continue
        rises = np.array([entropy(turn) - entropy(turns[0]) for turn in turns[1:]], dtype=np.float64)
        draws = np.array([seed_for(trajectory.seed, "branch", turn.step) for turn in turns[1:]]) / 2**31
        may = decide(rises, draws)
        found += [Place(base, turns[: at + 2], float(rises[at])) for at in np.flatnonzero(may).tolist()]
    return sorted(found, key=lambda place: -place.rise)[:most]


def entropy(turn: Turn) -> float:
    """Return how unsure the policy was in a turn, nats a token: minus the mean log-probability of its first tokens.

    As these were sampled it is right on average, without the probabilities of what was not said, which are not kept.
    """
    return -fmean(turn.logprobs[:FIRST]) if turn.logprobs else 0.0


async def _branch(place: Place, member: int, setting: ChainSpec, calls: Calls) -> Branch | str:
    """Return a branch, or why there is none."""
    base, step = place.base.links[0].trajectory, place.turns[-1].step
    try:
        made = await anew(base, place.turns, setting, calls, Anew(id_for("br", base.id, step), f"branch/{step}"))
    except Dropped as dropped:
        return str(dropped)
    links = (Link(made),)
    rollout = replace(place.base, member=member, links=links, rewards=rewarded(links))
    fresh = turn_of(made.steps[step].reply_key, calls.replies)
    return Branch(rollout, fresh is not None and fresh.token_ids == place.turns[-1].token_ids)
