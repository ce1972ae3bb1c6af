"""Rows for SkyRL, the cluster trainer: our rollouts and advantages, its engines and weights. Needs no package of SkyRL.

SkyRL hands a generator the whole batch and takes rows back (`GeneratorOutput` of SkyRL 0.4), so chains stay whole. Its
curves and its evaluation read the last row of a trajectory; there stands what the member was paid. Where a trajectory
has several rows its trainer gives all of them the advantage of the last, whatever the estimator, which is wrong for a
chain that is paid task by task; so our advantages travel beside the rewards, and `GivenAdvantages`, put before its
trainer, trains on them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from memory.errors import BadInput
from policies.errors import PolicyUnavailable
from policies.generations.engine import Sampled
from policies.protocols import SamplingParams
from policies.rl.framework_engine import FrameworkEngine
from policies.rl.protocols import Array
from policies.rl.rows import TrainRow

ADVANTAGES = "advantages"
"""Our column of a `GeneratorOutput`."""
GIVEN = "given_advantages"
"""Our column of SkyRL's training batch."""


class Client(Protocol):
    """SkyRL's `InferenceEngineInterface`: token ids in, token ids out."""

    async def generate(self, input_batch: Mapping[str, Any], model: str | None = None) -> Mapping[str, Any]:
        """Return `response_ids`, `stop_reasons` and `response_logprobs` of `prompt_token_ids`, in their order."""
        ...

    async def finish_session(self, session_id: str) -> None:
        """Let go of the server that a session was kept on."""
        ...


class ClientEngine(FrameworkEngine):
    """SkyRL's engines behind our contract of an engine, for one session: closing the engine ends the session."""

    framework = "SkyRL"

    def __init__(
        self, client: Client, context: int, session: str, told: Mapping[str, Any], model: str | None = None
    ) -> None:
        """Take the client, `session` (what SkyRL's router keeps on one server) and the name that the client knows the
        policy by: None where SkyRL trains all weights, else that of its adapter."""
        super().__init__(context, told)
        self._client, self._session, self._model = client, session, model

    async def sample(self, prompt: Sequence[int], params: SamplingParams, version: str | None) -> Sampled:
        """Return one completion. Raises `PolicyRefused` for a version, `PolicyUnavailable` without logprobs."""
        batch = {
            "prompt_token_ids": [list(prompt)],
            "session_ids": [self._session],
            "sampling_params": self.asked(params, version) | {"logprobs": 0},
        }
        found = await self._client.generate(batch, model=self._model)
        (ids,), logprobs = found["response_ids"], found.get("response_logprobs")
        if not logprobs or logprobs[0] is None:
            raise PolicyUnavailable(
                "SkyRL's engine gave no log-probabilities; set generator.sampling_params.logprobs = 0"
            )
        return Sampled(tuple(ids), tuple(logprobs[0]), finish_reason=found["stop_reasons"][0])

    async def aclose(self) -> None:
        """End the session."""
        await self._client.finish_session(self._session)


@dataclass(frozen=True)
class Answer:
    """One trajectory of a batch."""

    id: Any
    """SkyRL's `TrajectoryID`, as it asked."""
    rows: Sequence[TrainRow]
    advantages: Sequence[Array]
    """For each row the advantage of every turn [spans of the row], which all tokens of the turn get."""
    reward: float
    """What the trajectory was paid."""


def generator_output(answers: Sequence[Answer]) -> dict[str, Any]:
    """Return SkyRL's `GeneratorOutput` for the trajectories of a batch, in the order it asked for them.

    Raises `BadInput` for one without rows: SkyRL expects at least one for each prompt.
    """
    empty = [at for at, answer in enumerate(answers) if not answer.rows]
    if empty:
        raise BadInput(
            f"members {empty} of the batch have no rows; SkyRL expects one for each prompt: keep failed ones"
        )
    lines = [
        (answer, row, own, number == len(answer.rows))
        for answer in answers
        for number, (row, own) in enumerate(zip(answer.rows, answer.advantages, strict=True), start=1)
    ]
    return {
        "prompt_token_ids": [list(row.prompt_ids) for _, row, _, _ in lines],
        "response_ids": [list(row.completion_ids) for _, row, _, _ in lines],
        "loss_masks": [list(row.loss_mask) for _, row, _, _ in lines],
        "rewards": [_at_the_end(row, answer.reward if last else 0.0) for answer, row, _, last in lines],
        ADVANTAGES: [spread(row, own) for _, row, own, _ in lines],
        "rollout_logprobs": [list(row.sampling_logprobs) for _, row, _, _ in lines],
        "stop_reasons": ["stop"] * len(lines),
        "trajectory_ids": [answer.id for answer, _, _, _ in lines],
        "is_last_step": [last for _, _, _, last in lines],
        "rollout_metrics": {},
    }


def _at_the_end(row: TrainRow, reward: float) -> list[float]:
    return [0.0] * (len(row.completion_ids) - 1) + [reward]


def spread(row: TrainRow, advantages: Array) -> list[float]:
    """Return the advantage of each completion token: that of its turn, 0 where the world wrote it."""
    if len(advantages) != len(row.spans):
        raise BadInput(f"got {len(advantages)} advantages for a row of {len(row.spans)} turns; expected one a turn")
    found = [0.0] * len(row.completion_ids)
    for span, advantage in zip(row.spans, advantages, strict=True):
        found[span.start : span.stop] = [float(advantage)] * (span.stop - span.start)
    return found


class GivenAdvantages:
    """Put it before SkyRL's trainer, `class Ours(GivenAdvantages, RayPPOTrainer)`: it trains on our advantages."""

    def convert_to_training_input(self, generator_output: Any, uids: list[str]) -> Any:
        """Let SkyRL make its batch, and lay our advantages beside it, right-aligned as its rewards.

        Raises `BadInput` where they were lost on the way.
        """
        own = generator_output.get(ADVANTAGES)
        if own is None:
            raise BadInput(
                "got a batch without advantages; expected that of our generator: use it, and leave "
                "generator.merge_stepwise_output = false (turns are merged already)"
            )
        convert: Any = getattr(super(), "convert_to_training_input")  # noqa: B009  (SkyRL's, of the class behind)
        batch = convert(generator_output, uids)
        count, width = batch["rewards"].shape
        padding = [[0.0] * width] * (count - len(own))
        aligned = [[0.0] * (width - len(each)) + each for each in own]
        batch[GIVEN] = batch["rewards"].new_tensor([*aligned, *padding])
        return batch

    def compute_advantages_and_returns(self, data: Any) -> Any:
        """Let SkyRL's trainer log what it logs of rewards, then take our advantages."""
        given = data.pop(GIVEN)
        compute: Any = getattr(super(), "compute_advantages_and_returns")  # noqa: B009  (as above)
        done = compute(data)
        done["advantages"] = done["returns"] = given
        return done
