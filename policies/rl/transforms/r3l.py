"""R3L's retries: an episode is done again from the step that went wrong, and credit begins where the two part."""

from __future__ import annotations

from collections.abc import Sequence

from memory.errors import BadInput
from policies.rl.cutting import cut
from policies.rl.protocols import Retry
from policies.rl.rows import TrainRow

__all__ = ["r3l"]


def r3l(retries: Sequence[Retry]) -> tuple[TrainRow, ...]:
    """Return for the i-th retry, from step k: base, retry, guided retry, and the reflection where there is one.

        base     spans of steps >= k,                      group g,           reward r
        retry    the same, the guidance's tokens cut out,  group g,           reward r'
        guided   spans of steps >= k, guidance kept,       group g/retry/i,   reward u
        reflection, whole,                                 group g/reflect/i, reward u

    with u = 1 where r' > r, or r' = r in fewer turns, else 0. What was replayed is trained on in none of them.
    Assumption: up to step k both are one episode, so that the difference of their rewards was made from there on; and
    the template writes the guidance as tokens of its own, so that cutting them leaves what an unguided agent reads.
    The log-probabilities stay those of sampling with guidance: train on this with a loss that has no ratio, or correct.
    Source: R3L, arXiv 2601.03715, with the rules of the released code; its base and retries are one group there too.
    Deviation: the base's group keeps its name. Raises `BadInput` where a retry does not repeat its base up to step k.
    """
    found: list[TrainRow] = []
    for at, each in enumerate(retries):
        _require_replayed(each)
        base, guided = _pivotal(each.base, each.step), _pivotal(each.retry, each.step)
        group, better = each.base.group, {"retry": float(_better(each))}
        own = {"trajectory_id": f"{guided.trajectory_id}/guided", "group": f"{group}/retry/{at}", "rewards": better}
        found += [base, _unguided(guided, *each.guidance).model_copy(update={"group": group})]
        found.append(guided.model_copy(update=own))
        if each.reflection is not None:
            told = {"group": f"{group}/reflect/{at}", "rewards": better}
            found.append(each.reflection.model_copy(update=told))
    return tuple(found)


def _pivotal(row: TrainRow, step: int) -> TrainRow:
    replayed = [span for span in row.spans if span.step < step]
    kept = tuple(span for span in row.spans if span.step >= step)
    return row.model_copy(update={"spans": kept, "skipped": (*row.skipped, *replayed)})


def _better(each: Retry) -> bool:
    shorter = len(each.retry.spans) < len(each.base.spans)
    return each.retry.reward > each.base.reward or (each.retry.reward == each.base.reward and shorter)


def _unguided(row: TrainRow, start: int, stop: int) -> TrainRow:
    """Return a row without its guidance, tokens [start, stop) of prompt and completion, which the world wrote."""
    without = cut(row, start, stop)
    if len(without.spans) < len(row.spans):
        raise BadInput(f"got guidance at {start, stop}, where {row.trajectory_id!r} has tokens of the policy itself")
    return without


def _require_replayed(each: Retry) -> None:
    """Raise `BadInput` unless both go on from step k, and the retry repeats what the base said before it."""
    for row in (each.base, each.retry):
        if not any(span.step >= each.step for span in row.spans):
            raise BadInput(f"got a retry from step {each.step}; expected a step that {row.trajectory_id!r} reached")
    one, other = (
        [row.completion_ids[span.start : span.stop] for span in row.spans if span.step < each.step]
        for row in (each.base, each.retry)
    )
    if one != other:
        raise BadInput(
            f"{each.retry.trajectory_id!r} does not repeat {each.base.trajectory_id!r} up to step {each.step}; replay "
            "what was said there, token by token"
        )
