"""The journal's events about gates: their types, and the verdicts read back."""

from __future__ import annotations

from evolve.episode.trust import text_of
from memory.records import DeltaOp, Event, Op, Verdict
from memory.store import Store
from playbooks.similarity import exact_key

PROPOSAL = "proposal"
"""The changes that the curator proposed for a batch."""
VERDICT = "gate.verdict"
"""What one gate said about the ops of a batch: a `Verdict`."""
ALLOWANCE = "gate.allowance"
"""What the stream and the gates had spent when the gates of a batch began."""
WAITING = "gate.waiting"
"""Changes that wait until the gates may spend what it takes to judge them."""


def verdicts(store: Store, namespace: str) -> tuple[Verdict, ...]:
    """Return every journalled verdict of a namespace, in order, whatever its run."""
    return tuple(verdict for _, verdict in journalled(store, namespace=namespace))


def journalled(store: Store, *, run_id: str | None = None, namespace: str | None = None) -> list[tuple[Event, Verdict]]:
    """Return the verdicts of a run or a namespace with their events, in order; those whose text was purged left out."""
    found = store.events(type=VERDICT, run_id=run_id, namespace=namespace)
    return [(event, Verdict.model_validate(event.data)) for event in found if "gate" in event.data]


def told(store: Store, namespace: str) -> dict[str, str]:
    """Return op id -> what it says (`exact_key`), of every change that was proposed in a namespace."""
    found = store.events(type=PROPOSAL, namespace=namespace)
    ops = [op for event in found for op in event.data.get("ops", ()) if op["op"] != Op.TAG]
    return {op["op_id"]: exact_key(text_of(DeltaOp.model_validate(op))) for op in ops}
