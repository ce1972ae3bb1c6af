"""Rows for verl, a cluster trainer: our rollouts and rewards, its servers, weights and advantages.

verl 0.9.1 asks a loop of agents for one trajectory and takes an `AgentLoopOutput`, or a list of them where one
conversation broke into several rows or a chain has several tasks. It pays all rows of a trajectory what the last one is
paid and compares the members of a group itself, so a chain has one reward. Needs no package of verl.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from policies.errors import PolicyUnavailable
from policies.generations.engine import Sampled
from policies.protocols import SamplingParams
from policies.rl.framework_engine import FrameworkEngine
from policies.rl.rows import TrainRow

VERSIONS = ("min_global_steps", "max_global_steps")
"""Under which of verl's weights a trajectory began and ended; verl reads them of its extra fields."""


class Server(Protocol):
    """verl's `LLMServerClient`: token ids in, a `TokenOutput` out."""

    async def generate(self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any]) -> Any:
        """Return `token_ids`, `log_probs`, `stop_reason` and `extra_fields`; equal ids meet the same server."""
        ...


class ServerEngine(FrameworkEngine):
    """verl's rollout servers behind our contract of an engine, for one trajectory, whose calls stay on one server."""

    framework = "verl"

    def __init__(self, server: Server, context: int, request_id: str, told: Mapping[str, Any]) -> None:
        """Take the client of the servers, and what names the trajectory to them."""
        super().__init__(context, told)
        self._server, self._request_id = server, request_id
        self._weights: list[int] = []
        self._seconds = 0.0

    async def sample(self, prompt: Sequence[int], params: SamplingParams, version: str | None) -> Sampled:
        """Return one completion.

        Raises `PolicyRefused` for a version, `PolicyUnavailable` for a request that verl ended (it changes weights),
        and for an answer without logprobs.
        """
        asked = self.asked(params, version) | {"logprobs": True}
        started = time.perf_counter()
        found = await self._server.generate(self._request_id, prompt_ids=list(prompt), sampling_params=asked)
        self._seconds += time.perf_counter() - started
        if found.stop_reason == "aborted":
            raise PolicyUnavailable("verl's server ended the request before the reply was done; ask for it again")
        if found.log_probs is None or len(found.log_probs) != len(found.token_ids):
            raise PolicyUnavailable(
                "verl's server gave no log-probability for each token; set "
                "actor_rollout_ref.rollout.calculate_log_probs = true"
            )
        self._weights += [found.extra_fields[name] for name in VERSIONS if found.extra_fields.get(name) is not None]
        cut_off = len(found.token_ids) >= params.max_tokens
        return Sampled(tuple(found.token_ids), tuple(found.log_probs), "length" if cut_off else "stop")

    def extra_fields(self) -> dict[str, Any]:
        """Return what verl wants to know of the trajectory's weights."""
        ends = (min(self._weights), max(self._weights)) if self._weights else (None, None)
        return dict(zip(VERSIONS, ends, strict=True))

    @property
    def metrics(self) -> dict[str, float]:
        """What verl wants to know of the trajectory's time: seconds in which its servers were asked."""
        return {"generate_sequences": self._seconds}


def agent_loop_outputs(rows: Sequence[TrainRow], reward: float, engine: ServerEngine) -> list[dict[str, Any]]:
    """Return the fields of verl's `AgentLoopOutput` for each row of a trajectory that trains something, in order.

    Empty where none does: verl leaves such a trajectory out.
    """
    return [
        {
            "prompt_ids": list(row.prompt_ids),
            "response_ids": list(row.completion_ids),
            "response_mask": list(row.loss_mask),
            "response_logprobs": list(row.sampling_logprobs),
            "reward_score": reward,
            "num_turns": 2 * len(row.spans),
            "metrics": engine.metrics,
            "extra_fields": engine.extra_fields() | {"reward_extra_info": {}},
        }
        for row in rows
        if row.trained
    ]
