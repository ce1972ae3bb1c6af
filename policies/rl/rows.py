"""Rows for a trainer: token ids as they were sampled, which of them the policy wrote, and how likely it thought them.

Token in, token out: nothing here was ever text (retokenised text is other tokens: a known way to lose a run). Turns of
one episode become one row as long as each prompt goes on from the one before; where it does not (the template rewrote
the past, a compaction), a new row begins, and the trainer counts how often.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan

from pydantic import Field, model_validator

from memory.records import Frozen


class Turn(Frozen):
    """One model call, as the engine saw it."""

    step: int
    """Index of the episode's step that the reply began."""
    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    """Natural-log probability of each of `token_ids` under the policy that sampled it."""
    policy_version: str
    truncated: bool = False
    """The token limit cut it off."""

    @property
    def broken(self) -> bool:
        """Whether the engine could not say how likely a token was: what it sampled then came of broken numbers."""
        return any(map(isnan, self.logprobs))

    @model_validator(mode="after")
    def _one_logprob_a_token(self) -> Turn:
        if len(self.logprobs) != len(self.token_ids):
            raise ValueError(f"got {len(self.token_ids)} token ids and {len(self.logprobs)} log-probabilities")
        return self


class Span(Frozen):
    """Tokens of a row that the policy wrote in one turn: `completion_ids[start:stop]`."""

    start: int
    stop: int
    step: int
    policy_version: str
    truncated: bool = False
    """The token limit cut the turn off."""


class TrainRow(Frozen):
    """One sequence to train on. `group` names the rows whose rewards are compared: for a chain, (chain, position)."""

    trajectory_id: str
    task_id: str = ""
    group: str = ""
    chain_id: str = ""
    position: int = 0
    rollout: int = 0
    rewards: dict[str, float] = Field(default_factory=dict)
    """Parts of the reward by name: `outcome`, `skill`."""
    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]
    sampling_logprobs: tuple[float, ...]
    """One a completion token, from when it was sampled. The world's say nothing; nan where nobody knows: a server gave
    none, what was before was rewritten, or the row was tokenised anew."""
    spans: tuple[Span, ...]
    """What the policy wrote and is trained on, in order."""
    skipped: tuple[Span, ...] = ()
    """What else the policy wrote. All else is the world's: it is never trained on as said by the policy."""
    expert: bool = False
    """Another model wrote it, and it was tokenised anew: for `sft` alone."""
    reused: bool = False
    """It was sampled for an earlier batch, by weights that are gone: its ratios are to those."""

    @model_validator(mode="after")
    def _consistent(self) -> TrainRow:
        if len(self.sampling_logprobs) != len(self.completion_ids):
            given = len(self.completion_ids), len(self.sampling_logprobs)
            raise ValueError(f"got {given[0]} completion ids and {given[1]} log-probabilities")
        edges = [edge for span in self.spans for edge in (span.start, span.stop)]
        if edges != sorted(edges) or (edges and (edges[0] < 0 or edges[-1] > len(self.completion_ids))):
            raise ValueError(f"spans must be in order and within {len(self.completion_ids)} tokens, got {edges}")
        return self

    @property
    def reward(self) -> float:
        """The sum of its parts."""
        return sum(self.rewards.values())

    @property
    def loss_mask(self) -> tuple[int, ...]:
        """1 for each completion token that the policy wrote, else 0."""
        mask = [0] * len(self.completion_ids)
        for span in self.spans:
            mask[span.start : span.stop] = [1] * (span.stop - span.start)
        return tuple(mask)

    @property
    def trained(self) -> int:
        """How many tokens the policy wrote."""
        return sum(span.stop - span.start for span in self.spans)


def rows_of(turns: Sequence[Turn], row: TrainRow) -> tuple[TrainRow, ...]:
    """Return the rows of one episode: copies of `row` with its turns' tokens; several where a prompt broke off.

    A turn that is `broken` is what later ones go on from, and is not trained on: it has no span.
    """
    found: list[TrainRow] = []
    for turn in turns:
        known = (*found[-1].prompt_ids, *found[-1].completion_ids) if found else ()
        if found and turn.prompt_ids[: len(known)] == known:
            found[-1] = _extended(found[-1], turn, turn.prompt_ids[len(known) :])
        else:
            empty = {"prompt_ids": turn.prompt_ids, "completion_ids": (), "sampling_logprobs": (), "spans": ()}
            found.append(_extended(row.model_copy(update=empty), turn, ()))
    return tuple(found)


def _extended(row: TrainRow, turn: Turn, between: tuple[int, ...]) -> TrainRow:
    """Return a row with what the world wrote since, and then the turn's tokens."""
    start, broken = len(row.completion_ids) + len(between), turn.broken
    span = Span(
        start=start,
        stop=start + len(turn.token_ids),
        step=turn.step,
        policy_version=turn.policy_version,
        truncated=turn.truncated,
    )
    return row.model_copy(
        update={
            "completion_ids": (*row.completion_ids, *between, *turn.token_ids),
            "sampling_logprobs": (
                *row.sampling_logprobs,
                *(0.0 for _ in between),
                *((0.0,) * len(turn.logprobs) if broken else turn.logprobs),
            ),
            "spans": row.spans if broken else (*row.spans, span),
            "skipped": (*row.skipped, span) if broken else row.skipped,
        }
    )
