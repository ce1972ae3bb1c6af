"""RLTF's second attempts: said after criticism, learned as if there had been none."""

from __future__ import annotations

from collections.abc import Sequence

from memory.errors import BadInput
from policies.rl.cutting import cut, unscored
from policies.rl.protocols import Retry
from policies.rl.rows import TrainRow

__all__ = ["rltf"]
EXPERIMENTAL = True


def rltf(retries: Sequence[Retry]) -> tuple[TrainRow, ...]:
    """Return for each retry (from step 0) the first attempt, and the second one after the prompt of the first.

    `guidance` covers the first attempt and its criticism in the prompt of the second; without them it is the prompt of
    the first. Both are of one group: revision 0 and 1 for the advantage `rltf_sd`, in this order. How likely the second
    attempt was after that prompt is not known (`nan`): train on it with a loss that has no ratio.
    Assumption: as of `rltf_sd`. That the critic is trained on its own words too (feedback modelling) is left out.
    Source: RLTF, arXiv 2602.02482, from summaries of it. Raises `BadInput` for a retry from a later step, and
    where the prompts differ by more than the guidance.
    """
    found: list[TrainRow] = []
    for each in retries:
        if each.step:
            raise BadInput(f"got a retry from step {each.step}; rltf expects attempts from the beginning, step 0")
        second = cut(each.retry, *each.guidance)
        if second.prompt_ids != each.base.prompt_ids or len(second.spans) < len(each.retry.spans):
            raise BadInput(
                f"{each.retry.trajectory_id!r} without its guidance {each.guidance} does not begin with the prompt of "
                f"{each.base.trajectory_id!r}; give the tokens of first attempt and criticism, no more and no fewer"
            )
        found += [each.base, unscored(second).model_copy(update={"group": each.base.group})]
    return tuple(found)
