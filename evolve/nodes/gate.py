"""Lets every gate decide about the proposal, in the configured order, and journals each verdict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evolve.gates.review import ReviewGate
from evolve.nodes.curate import proposed
from evolve.nodes.episodes import batch_episodes
from evolve.state import Deps, State
from memory.records import DeltaOp, Event, Op, Verdict

VERDICT = "gate.verdict"
_CREATES = frozenset({Op.ADD, Op.MERGE, Op.SUPERSEDE})


async def gate(state: State, deps: Deps) -> dict[str, Any]:
    """Journal one verdict per gate; a later gate sees what the earlier ones accepted."""
    batch = state.get("batch", 0)
    known = {verdict.gate for verdict in verdicts(batch, deps)}
    for member in deps.gates:
        ops = passed(batch, deps)
        if not ops or member.name in known:
            continue
        view = deps.store.view(deps.namespace)
        verdict = await member.judge(ops, view, batch_episodes(state, deps))
        subject, data = deps.stream.key(batch), verdict.model_dump(mode="json")
        event = Event(type=VERDICT, namespace=deps.namespace, run_id=deps.stream.run_id, subject=subject, data=data)
        deps.store.append(event)
    return {}


def verdicts(batch: int, deps: Deps) -> tuple[Verdict, ...]:
    """Return the journalled verdicts of a batch, in the order they were given."""
    events = deps.store.events(type=VERDICT, subject=deps.stream.key(batch))
    return tuple(Verdict.model_validate(event.data) for event in events)


def passed(batch: int, deps: Deps) -> tuple[DeltaOp, ...]:
    """Return the proposed ops that every verdict so far accepted; what they create has the last verdict's status."""
    return _through(proposed(batch, deps), verdicts(batch, deps))


def waiting(batch: int, deps: Deps) -> tuple[DeltaOp, ...]:
    """Return the proposed ops that nothing but a person's answer stands in the way of."""
    given = verdicts(batch, deps)
    held = {op_id for verdict in given if verdict.gate == ReviewGate.name for op_id in verdict.rejected}
    measured = [verdict for verdict in given if verdict.gate != ReviewGate.name]
    return tuple(op for op in _through(proposed(batch, deps), measured) if op.op_id in held)


def _through(ops: tuple[DeltaOp, ...], given: Sequence[Verdict]) -> tuple[DeltaOp, ...]:
    for verdict in given:
        accepted = set(verdict.accepted)
        ops = tuple(
            op.model_copy(update={"status": verdict.status}) if op.op in _CREATES else op
            for op in ops
            if op.op_id in accepted
        )
    return ops
