"""verl's loop of agents over our rollouts: one member of a chain's group in, its rows with what it was paid out.

verl makes a loop for each member, by the file that `actor_rollout_ref.rollout.agent.agent_loop_config_path` names, and
compares the members of a group itself. Needs no package of verl until it is run; it was tested against the fields of
verl 0.9.1, and not run on a cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from evolve.config.file import load_config
from evolve.config.model import Config
from evolve.training.batches import episodes_of, prepared
from evolve.training.cluster_rollouts import CHAIN, ClusterRollouts, GroupMember, cluster_rollouts, reward_of
from memory.errors import BadInput
from policies.recordings import Recordings
from policies.rl.tracker import BetaTracker
from policies.rl.verl_rows import Server, ServerEngine, agent_loop_outputs


class ChainLoop:
    """An agent loop of verl's V1 trainer. verl makes it with its own keywords and those of the loop's entry.

    `config_file` is an `evolve.toml`; the servers read as many tokens as `actor_rollout_ref.rollout` says.
    """

    def __init__(self, *, config_file: str, trainer_config: Any, server_manager: Server, **_: Any) -> None:
        rollout = trainer_config.config.actor_rollout_ref.rollout
        self._context = int(rollout.get("max_model_len") or rollout.prompt_length + rollout.response_length)
        self._rollouts, self._server = _rollouts(config_file), server_manager

    async def run(self, sampling_params: Mapping[str, Any], **asked: Any) -> list[Any]:
        """Return verl's `AgentLoopOutput` for each row of the member; none where it could not be graded.

        `asked` is a line of `verl_dataset` with what verl adds. Raises `BadInput` for another one, and what `roll`
        raises.
        """
        if missing := [name for name in (CHAIN, "uid", "session_id", "global_steps") if name not in asked]:
            raise BadInput(
                f"verl asked without {missing}; expected a line of `verl_dataset` and verl's V1 trainer: set "
                "trainer.use_v1 = true"
            )
        member = GroupMember(str(asked[CHAIN]), int(asked["session_id"]), int(asked["global_steps"]))
        self._rollouts.require([member.chain_id])
        engine = ServerEngine(self._server, self._context, f"{asked['uid']}_{member.number}", sampling_params)
        with TemporaryDirectory() as folder:
            replies = Recordings(Path(folder) / "replies.jsonl")
            done = await self._rollouts.play(member, engine, sampling_params, replies)
            batch = prepared(episodes_of([done], BetaTracker()), replies.get_reply)
        output: Any = import_module("verl.experimental.agent_loop.agent_loop").AgentLoopOutput
        return [output(**fields) for fields in agent_loop_outputs(batch.rows, reward_of(done), engine)]


def verl_dataset(config: Config, split: str = "train") -> list[dict[str, Any]]:
    """Return the lines of verl's dataset, one for each chain of a split's tasks; shown of a prompt is the first task.

    Raises `BadInput` for a split without chains, and `ConfigError`.
    """
    return [
        {
            "prompt": [{"role": "user", "content": each.chain.tasks[0].instruction}],
            "agent_name": "evolve",
            "data_source": each.environment.name,
            "reward_model": {"style": "rule", "ground_truth": ""},
            "extra_info": {"index": at},
            CHAIN: each.chain.id,
        }
        for at, each in enumerate(cluster_rollouts(config).of_split(split))
    ]


@lru_cache(maxsize=1)
def _rollouts(config_file: str) -> ClusterRollouts:
    """Return the chains of a file, made once in a process: verl makes a loop for each member."""
    return cluster_rollouts(load_config(Path(config_file)))
