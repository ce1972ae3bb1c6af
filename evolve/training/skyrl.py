"""SkyRL's generator over our rollouts: a batch of chains in, rows with our advantages out.

SkyRL asks for each chain as often as its group has members and trains on what comes back; chains, libraries, rewards
and advantages are those of every other training (`policies.rl.skyrl_rows` says how the rows are read). Every member
gets a row: one that could not be graded gets one that trains nothing, and is counted. Needs no package of SkyRL; it
was tested against its contract and not run on a cluster.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from evolve.config.model import Config
from evolve.environments.task_files import load_tasks
from evolve.episode.rollout import RolloutConfig
from evolve.generations import workspace_registry as generations
from evolve.loop.assembly import make_environment
from evolve.training.batches import Prepared, episodes_of, prepared
from evolve.training.chain_tasks import chains
from evolve.training.rollouts import ChainSpec, Rollout, Sampling, roll
from evolve.training.workspace_rollouts import acting_of, plan_of
from memory.errors import BadInput
from policies.cache import CachedPolicy
from policies.generations.token_policy import TokenPolicy
from policies.local.loading import load_encoder
from policies.protocols import Policy
from policies.recordings import Recordings
from policies.rl.protocols import AdvantageEstimator, Array
from policies.rl.rows import TrainRow
from policies.rl.skyrl_rows import ClientEngine, generator_output
from policies.rl.tracker import BetaTracker

CHAIN = "chain"
"""The column of SkyRL's dataset that names a chain."""


class ChainGenerator:
    """A `GeneratorInterface` of SkyRL. `policy` acts on its engines: a `TokenPolicy` over a `ClientEngine`."""

    def __init__(
        self,
        settings: Sequence[ChainSpec],
        policy: Policy,
        advantages: AdvantageEstimator,
        acting: RolloutConfig,
        sampling: Sampling,
    ) -> None:
        """Take the chains that may be asked for, each in its world. How many members a group has, SkyRL decides."""
        self._settings = {each.chain.id: each for each in settings}
        self._policy, self._advantages, self._acting, self._sampling = policy, advantages, acting, sampling

    def dataset(self) -> list[dict[str, Any]]:
        """Return the lines of SkyRL's dataset, one for each chain; what it shows of a prompt is the first task."""
        return [
            {
                "prompt": [{"role": "user", "content": each.chain.tasks[0].instruction}],
                "env_class": "evolve",
                CHAIN: name,
            }
            for name, each in self._settings.items()
        ]

    async def generate(self, input_batch: Mapping[str, Any], disable_tqdm: bool = False) -> dict[str, Any]:
        """Return SkyRL's `GeneratorOutput` for its `GeneratorInput`, in its order.

        The n-th mention of a chain is member n of its group; a batch of another global step is sampled anew. Raises
        `BadInput` for a chain that is not known, and what `roll` raises.
        """
        asked = [str(extras.get(CHAIN, "")) for extras in input_batch.get("env_extras") or ()]
        unknown = sorted(set(asked) - set(self._settings))
        if unknown or not asked:
            got = f"chains {unknown}" if unknown else "a batch without env_extras"
            raise BadInput(f"got {got}; expected chains of this generator: give SkyRL its `dataset()` to train on")
        members = Counter(asked)
        settings = [replace(self._settings[name], rollouts=count) for name, count in members.items()]
        metadata, told = input_batch.get("batch_metadata"), input_batch.get("sampling_params") or {}
        acting = replace(self._acting, temperature=float(told.get("temperature", self._acting.temperature)))
        step = int(getattr(metadata, "global_step", 0) or 0)
        with TemporaryDirectory() as folder:
            replies = Recordings(Path(folder) / "replies.jsonl")
            policy = CachedPolicy(self._policy, replies, scope=str(step))
            rollouts = await roll(settings, policy, acting, self._sampling, step)
            batch = prepared(episodes_of(rollouts, BetaTracker()), replies.get_reply)
        found = _of_members(rollouts, *self._advantaged(batch))
        numbers = {name: iter(range(count)) for name, count in members.items()}
        output = generator_output([found[name, next(numbers[name])] for name in asked])
        output["rollout_metrics"] |= {f"evolve/{name}": float(count) for name, count in batch.counts.items()}
        return output

    def _advantaged(self, batch: Prepared) -> tuple[list[TrainRow], list[Array]]:
        if not batch.rows:
            return [], []
        return batch.advantages(self._advantages(batch.episodes), np.ones(len(batch.episodes.rewards), dtype=bool))


def skyrl_generator(client: Any, config: Config, *, context: int = 2048) -> ChainGenerator:
    """Return the generator over the train tasks of a configuration, as `[train]` and `[policy]` say.

    `client` is SkyRL's inference engine client, of a model that reads `context` tokens. Raises `ConfigError`.
    """
    encoder = load_encoder(str(generations.model_directory(config.policy)))
    policy = TokenPolicy(ClientEngine(client, context=context), encoder, profile=generations.profile_of(config.policy))
    environment, plan = make_environment(config), plan_of(config)
    tasks = load_tasks(config, environment, config.run.split)
    settings = [ChainSpec(chain, environment) for chain in chains(tasks, plan.length, config.run.seed, plan.by)]
    acting = acting_of(config, environment, policy)
    return ChainGenerator(settings, policy, config.train.member("advantages"), acting, plan.sampling)


def _of_members(
    rollouts: Sequence[Rollout], rows: Sequence[TrainRow], advantages: Sequence[Array]
) -> dict[tuple[str, int], tuple[list[TrainRow], list[Array]]]:
    """Return (chain, member) -> its rows and their advantages; a member without any gets a row that trains nothing."""
    found: dict[tuple[str, int], tuple[list[TrainRow], list[Array]]] = {
        (each.chain_id, each.member): ([], []) for each in rollouts
    }
    for row, own in zip(rows, advantages, strict=True):
        mine = found[row.chain_id, row.rollout]
        mine[0].append(row)
        mine[1].append(own)
    for (chain_id, member), mine in found.items():
        if not mine[0]:
            mine[0].append(_blank(chain_id, member))
            mine[1].append(np.zeros(0))
    return found


def _blank(chain_id: str, member: int) -> TrainRow:
    return TrainRow(
        trajectory_id="",
        chain_id=chain_id,
        rollout=member,
        prompt_ids=(0,),
        completion_ids=(0,),
        sampling_logprobs=(0.0,),
        spans=(),
    )
