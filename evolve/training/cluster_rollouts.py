"""Members of groups for a trainer on a cluster: it says which chain and how to sample, its engines answer.

SkyRL asks for a whole batch (`evolve.training.skyrl`), verl for one member at a time (`evolve.training.verl`). Chains,
libraries, rewards and what is shown are those of every other training.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from statistics import fmean
from typing import Any, cast

from evolve.config.model import Config
from evolve.environments.task_files import load_tasks
from evolve.episode.rollout import RolloutConfig
from evolve.errors import ConfigError
from evolve.generations import workspace_registry as generations
from evolve.loop.assembly import is_there, make_environment, open_store
from evolve.protocols import Environment
from evolve.training.chain_tasks import chains
from evolve.training.rollouts import ChainSpec, Recall, Rollout, Sampling, roll, unknowing
from evolve.training.workspace_rollouts import acting_of, plan_of, recall_at
from memory.errors import BadInput
from memory.snapshots import address
from policies.cache import CachedPolicy
from policies.encoding import ChatEncoder
from policies.generations.engine import AdapterEngine
from policies.generations.token_policy import TokenPolicy
from policies.local.loading import load_encoder
from policies.protocols import Policy, Profile, ReplyStore

log = logging.getLogger(__name__)

CHAIN = "chain"
"""The column of a framework's dataset that names a chain."""
TOLD = ("temperature", "top_p", "max_tokens")
"""What a framework says of sampling and a rollout does."""


@dataclass(frozen=True)
class GroupMember:
    """Who is asked for: member `number` of the group that does a chain, in one step of the training."""

    chain_id: str
    number: int
    step: int


class ClusterRollouts:
    """Chains in their worlds, and how they are done. How many members a group has, the framework decides."""

    def __init__(
        self,
        settings: Sequence[ChainSpec],
        encoder: ChatEncoder,
        profile: Profile,
        acting: RolloutConfig,
        sampling: Sampling,
    ) -> None:
        """Take the chains that may be asked for. Raises `BadInput` for members that share a library."""
        if sampling.libraries != "own":
            raise BadInput(
                f"got libraries = {sampling.libraries!r}; a cluster does each member alone, expected 'own' libraries"
            )
        self._settings = {each.chain.id: each for each in settings}
        self._encoder, self._acting, self._sampling = encoder, acting, sampling
        self._profile: Profile = profile

    def of_split(self, split: str) -> tuple[ChainSpec, ...]:
        """Return the chains of a split's tasks. Raises `BadInput` where there are none."""
        found = tuple(each for each in self._settings.values() if each.chain.tasks[0].split == split)
        if not found:
            known = sorted({each.chain.tasks[0].split for each in self._settings.values()})
            raise BadInput(f"split {split!r} has no chains; expected one of {known}, or shorter chains (train.length)")
        return found

    def require(self, chain_ids: Sequence[str]) -> None:
        """Raise `BadInput` for chains that are not known, and for none."""
        unknown = sorted(set(chain_ids) - set(self._settings))
        if unknown or not chain_ids:
            got = f"chains {unknown}" if unknown else "none"
            raise BadInput(f"got {got}; expected chains of this configuration: train on the dataset that it makes")

    async def play(
        self, member: GroupMember, engine: AdapterEngine, told: Mapping[str, Any], replies: ReplyStore
    ) -> Rollout:
        """Return what became of a member on an engine, which is closed; `told` are the framework's sampling parameters.

        Its model calls are in `replies`. Raises what `roll` raises.
        """
        policy = TokenPolicy(engine, self._encoder, profile=self._profile)
        acting = replace(self._acting, **{name: told[name] for name in TOLD if told.get(name) is not None})
        setting = replace(self._settings[member.chain_id], first=member.number, rollouts=1)
        try:
            (done,) = await roll([setting], CachedPolicy(policy, replies), acting, self._sampling, member.step)
        finally:
            await policy.aclose()
        return done


def cluster_rollouts(config: Config) -> ClusterRollouts:
    """Return the chains of a configuration's train tasks and of its held-out ones, as `[train]` and `[policy]` say.

    Held-out ones (`run.dev_split`) are left out where they make no chains. What their agent is shown is what the
    workspace knows when the first of them is done. Raises `ConfigError`.
    """
    environment, plan = make_environment(config), plan_of(config)
    profile = generations.profile_of(config.policy)
    encoder = load_encoder(str(generations.model_directory(config.policy)))
    counting = TokenPolicy(cast(AdapterEngine, None), encoder, profile=profile)  # it is asked for nothing else
    recall = cache(lambda: _recall(config, environment, counting))

    def of(split: str) -> list[ChainSpec]:
        tasks = load_tasks(config, environment, split)
        made = chains(tasks, plan.length, config.run.seed, plan.by)
        return [ChainSpec(each, environment, lambda task: recall()(task)) for each in made]

    settings = of(config.run.split)
    with suppress(ConfigError, BadInput):
        settings += of(config.run.dev_split)
    return ClusterRollouts(settings, encoder, profile, acting_of(config, environment, profile), plan.sampling)


def _recall(config: Config, environment: Environment, policy: Policy) -> Recall:
    """Return what is shown for a task by the knowledge of now; the store stays open as long as the process lives."""
    if not config.playbook.enabled:
        return unknowing
    if not is_there(config):
        log.warning(
            "rollouts are shown no knowledge: there is no workspace in %s; let memory.workspace name a folder that "
            "every node reads, or set playbook.enabled = false",
            config.workspace,
        )
        return unknowing
    store = open_store(config, policy.count_tokens, owner=False)
    return recall_at(environment, config, store, policy, address(store.snapshot(config.memory.namespace)))


def reward_of(rollout: Rollout) -> float:
    """Return the mean reward of the tasks that were graded, 0 where none was."""
    pairs = zip(rollout.links, rollout.rewards, strict=True)
    return fmean([sum(parts.values()) for link, parts in pairs if link.trajectory.outcome is not None] or [0.0])
