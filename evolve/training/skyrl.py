"""SkyRL's generator over our rollouts: a batch of chains in, rows with rewards and our advantages out.

SkyRL asks for each chain as often as its group has members, and trains or scores what comes back; chains, libraries,
rewards and advantages are those of every other training (`policies.rl.skyrl_rows` says how the rows are read). Every
member gets a row: one that could not be graded gets one that trains nothing, and is counted. Needs no package of SkyRL;
it was tested against the evaluator and the trainer's batches of SkyRL 0.4, and not run on a cluster.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from evolve.config.model import Config
from evolve.parallel import all_of
from evolve.training.batches import Prepared, episodes_of, prepared
from evolve.training.cluster_rollouts import CHAIN, ClusterRollouts, GroupMember, cluster_rollouts, reward_of
from evolve.training.rollouts import Rollout
from policies.generations.engine import AdapterEngine
from policies.recordings import Recordings
from policies.rl.protocols import AdvantageEstimator, Array
from policies.rl.rows import TrainRow
from policies.rl.skyrl_rows import Answer, ClientEngine, generator_output
from policies.rl.tracker import BetaTracker

EngineOf = Callable[[str, Mapping[str, Any]], AdapterEngine]
"""(name of a session, SkyRL's sampling parameters) -> the engine that answers it."""


class ChainGenerator:
    """A `GeneratorInterface` of SkyRL. `engine_of` gives each trajectory its engine: a `ClientEngine`."""

    def __init__(self, rollouts: ClusterRollouts, engine_of: EngineOf, advantages: AdvantageEstimator) -> None:
        self._rollouts, self._engine_of, self._advantages = rollouts, engine_of, advantages

    def dataset(self, split: str = "train") -> list[dict[str, Any]]:
        """Return the lines of SkyRL's dataset, one for each chain; what it shows of a prompt is the first task.

        Raises `BadInput` for a split without chains.
        """
        return [
            {
                "prompt": [{"role": "user", "content": each.chain.tasks[0].instruction}],
                "env_class": "evolve",
                "data_source": each.environment.name,
                CHAIN: each.chain.id,
            }
            for each in self._rollouts.of_split(split)
        ]

    async def generate(self, input_batch: Mapping[str, Any], disable_tqdm: bool = False) -> dict[str, Any]:
        """Return SkyRL's `GeneratorOutput` for its `GeneratorInput`, in its order and under its trajectory ids.

        The n-th mention of a chain is member n of its group; a batch of another global step is sampled anew. Raises
        `BadInput` for a chain that is not known, and what `roll` raises.
        """
        members, ids = self._asked(input_batch), input_batch["trajectory_ids"]
        told = input_batch.get("sampling_params") or {}
        with TemporaryDirectory() as folder:
            replies = Recordings(Path(folder) / "replies.jsonl")
            rollouts = await all_of(
                self._rollouts.play(member, self._engine_of(own.to_string(), told), told, replies)
                for member, own in zip(members, ids, strict=True)
            )
            batch = prepared(episodes_of(rollouts, BetaTracker()), replies.get_reply)
        rows = _of_members(rollouts, *self._advantaged(batch))
        output = generator_output(
            [
                Answer(own, *rows[member.chain_id, member.number], reward_of(done))
                for own, member, done in zip(ids, members, rollouts, strict=True)
            ]
        )
        output["rollout_metrics"] |= {f"evolve/{name}": float(found) for name, found in batch.counts.items()}
        return output

    def _asked(self, input_batch: Mapping[str, Any]) -> list[GroupMember]:
        asked = [str(extras.get(CHAIN, "")) for extras in input_batch.get("env_extras") or ()]
        self._rollouts.require(asked)
        numbers = defaultdict[str, "count[int]"](count)
        step = int(getattr(input_batch.get("batch_metadata"), "global_step", None) or 0)
        return [GroupMember(chain_id, next(numbers[chain_id]), step) for chain_id in asked]

    def _advantaged(self, batch: Prepared) -> tuple[list[TrainRow], list[Array]]:
        if not batch.rows:
            return [], []
        return batch.advantages(self._advantages(batch.episodes), np.ones(len(batch.episodes.rewards), dtype=bool))


def skyrl_generator(client: Any, config: Config, *, context: int = 2048, model: str | None = None) -> ChainGenerator:
    """Return the generator over the tasks of a configuration, as `[train]` and `[policy]` say.

    `client` is SkyRL's inference engine client, of a model that reads `context` tokens; `model` is what the client
    knows it by (`resolve_policy_model_name`), needed where SkyRL trains an adapter. Raises `ConfigError`.
    """

    def engine_of(session: str, told: Mapping[str, Any]) -> ClientEngine:
        return ClientEngine(client, context, session, told, model)

    return ChainGenerator(cluster_rollouts(config), engine_of, config.train.member("advantages"))


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
