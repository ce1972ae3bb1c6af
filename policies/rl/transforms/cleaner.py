"""CLEANER: a failed turn is overwritten by the one that repaired it, as if it had been said at once."""

from __future__ import annotations

from collections.abc import Sequence

from memory.errors import BadInput
from policies.rl.cutting import cut, unscored
from policies.rl.protocols import Retry
from policies.rl.rows import TrainRow

__all__ = ["cleaner"]
EXPERIMENTAL = True


def cleaner(retries: Sequence[Retry]) -> tuple[TrainRow, ...]:
    """Return for each retry its row without the failed turns and their errors, which its `guidance` covers.

    `retry` is the whole episode: what was said up to `step`, the failure from there, then the repair and the rest;
    `guidance` reaches from the failure's first token to the repair's. `base`, the episode up to the failure, is not
    trained on. What is said after the cut was sampled after another past, so its log-probabilities are not known
    (`nan`): the trainer takes its own in their place and counts them (`unscored`).
    Assumption: the error taught the agent nothing that it could not have known, so the repair is what it should say.
    Source: CLEANER, arXiv 2601.15141. Deviations: always the whole turn, where the released code keeps a failure that
    differs by less than half and overwrites its call alone; with which chance to do it (.7 there) is the caller's.
    Raises `BadInput` for guidance without a failed turn, without a turn after it, or that cuts through one.
    """
    return tuple(_cleaned(each.retry, *each.guidance) for each in retries)


def _cleaned(row: TrainRow, start: int, stop: int) -> TrainRow:
    clean = cut(row, start, stop)
    at = start - len(row.prompt_ids)
    failed, repaired = len(row.spans) - len(clean.spans), any(span.start >= at for span in clean.spans)
    if at < 0 or not failed or not repaired:
        raise BadInput(
            f"got {start, stop} of {row.trajectory_id!r} with {failed} turns in it; expected at least one, failed, and "
            "the turn that repaired it behind: from the first token of the one to the first of the other"
        )
    return unscored(clean, at)
