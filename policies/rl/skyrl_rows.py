"""Rows for SkyRL, the cluster trainer: our rollouts and advantages, its engines and weights. Needs no package of SkyRL.

SkyRL hands a generator the whole batch and takes rows back (`GeneratorOutput` of SkyRL 0.3), so chains stay whole.
Where a trajectory has several rows its trainer gives all of them the advantage of the last, whatever the estimator,
which is wrong for a chain that is paid task by task; so our advantages travel as rewards of single tokens, and
`GivenAdvantages`, put before its trainer, leaves them as they are. Tested on recorded rows; not run on a cluster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from memory.errors import BadInput
from policies.errors import PolicyRefused, PolicyUnavailable
from policies.generations.engine import Sampled
from policies.protocols import SamplingParams
from policies.rl.protocols import Array
from policies.rl.rows import TrainRow


@dataclass(frozen=True)
class RowId:
    """Whose row it is, as SkyRL names trajectories: `instance_id` is the group, `repetition_id` the member."""

    instance_id: str
    repetition_id: int

    def to_string(self) -> str:
        """Return both as one name."""
        return f"{self.instance_id}_{self.repetition_id}"


class Client(Protocol):
    """SkyRL's `InferenceEngineClient`: token ids in, token ids out."""

    async def generate(self, input_batch: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return `response_ids`, `stop_reasons` and `response_logprobs` of `prompt_token_ids`, in their order."""
        ...


class ClientEngine:
    """SkyRL's engines behind our contract of an engine (`policies.generations.engine.AdapterEngine`).

    SkyRL moves the weights, so a version can be neither loaded nor named here.
    """

    def __init__(self, client: Client, context: int) -> None:
        """Take the client, and how many tokens prompt and completion may have together."""
        self._client, self._context = client, context

    async def sample(self, prompt: Sequence[int], params: SamplingParams, version: str | None) -> Sampled:
        """Return one completion. Raises `PolicyRefused` for a version, `PolicyUnavailable` without logprobs."""
        if version is not None:
            raise PolicyRefused(f"got version {version!r}; SkyRL's engines serve the weights it trains, expected none")
        asked: dict[str, Any] = {"temperature": params.temperature, "max_tokens": params.max_tokens, "logprobs": 0}
        if params.seed is not None:
            asked["seed"] = params.seed
        if params.stop:
            asked["stop"] = list(params.stop)
        found = await self._client.generate({"prompt_token_ids": [list(prompt)], "sampling_params": asked})
        (ids,), logprobs = found["response_ids"], found.get("response_logprobs")
        if not logprobs or logprobs[0] is None:
            raise PolicyUnavailable(
                "SkyRL's engine gave no log-probabilities; set generator.sampling_params.logprobs = 0"
            )
        return Sampled(tuple(ids), tuple(logprobs[0]), finish_reason=found["stop_reasons"][0])

    async def context(self) -> int:
        """Return how many tokens prompt and completion may have together."""
        return self._context

    async def load(self, version: str, path: Path) -> None:
        """Raise `PolicyRefused`."""
        raise PolicyRefused(f"got adapter {str(path)!r}; SkyRL syncs its own weights to its engines, load nothing")

    async def unload(self, version: str) -> None:
        """Raise `PolicyRefused`."""
        raise PolicyRefused(f"got version {version!r}; SkyRL's engines serve no versions of ours")

    async def loaded(self) -> frozenset[str]:
        """Return none."""
        return frozenset()

    async def aclose(self) -> None:
        """Leave the client to SkyRL."""


def generator_output(members: Sequence[tuple[Sequence[TrainRow], Sequence[Array]]]) -> dict[str, Any]:
    """Return SkyRL's `GeneratorOutput` for the members of a batch, in the order it asked for them.

    A member is the rows of one chain and, for each, the advantage of every turn [spans of the row], which all tokens of
    the turn get. Raises `BadInput` for a member without rows:
    SkyRL expects at least one for each prompt.
    """
    empty = [at for at, (rows, _) in enumerate(members) if not rows]
    if empty:
        raise BadInput(
            f"members {empty} of the batch have no rows; SkyRL expects one for each prompt: keep failed ones"
        )
    pairs = [(at, row, own) for at, (rows, all_of) in enumerate(members) for row, own in zip(rows, all_of, strict=True)]
    last = {at: number for number, (at, _, _) in enumerate(pairs)}
    return {
        "prompt_token_ids": [list(row.prompt_ids) for _, row, _ in pairs],
        "response_ids": [list(row.completion_ids) for _, row, _ in pairs],
        "loss_masks": [list(row.loss_mask) for _, row, _ in pairs],
        "rewards": [spread(row, own) for _, row, own in pairs],
        "rollout_logprobs": [list(row.sampling_logprobs) for _, row, _ in pairs],
        "stop_reasons": ["stop"] * len(pairs),
        "trajectory_ids": [RowId(row.chain_id or row.group, row.rollout) for _, row, _ in pairs],
        "is_last_step": [number == last[at] for number, (at, _, _) in enumerate(pairs)],
        "rollout_metrics": {"evolve/reward": sum(row.reward for _, row, _ in pairs) / len(pairs)},
    }


def spread(row: TrainRow, advantages: Array) -> list[float]:
    """Return the advantage of each completion token: that of its turn, 0 where the world wrote it."""
    if len(advantages) != len(row.spans):
        raise BadInput(f"got {len(advantages)} advantages for a row of {len(row.spans)} turns; expected one a turn")
    found = [0.0] * len(row.completion_ids)
    for span, advantage in zip(row.spans, advantages, strict=True):
        found[span.start : span.stop] = [float(advantage)] * (span.stop - span.start)
    return found


class GivenAdvantages:
    """Put it before SkyRL's trainer, `class Ours(GivenAdvantages, RayPPOTrainer)`: rewards are advantages already."""

    def compute_advantages_and_returns(self, data: Any) -> Any:
        """Let SkyRL's trainer log what it logs, then take the rewards where the policy wrote, for its advantages."""
        compute: Any = getattr(super(), "compute_advantages_and_returns")  # noqa: B009  (SkyRL's, of the class behind)
        done = compute(data)
        done["advantages"] = done["returns"] = done["rewards"] * done["response_mask"]
        return done
