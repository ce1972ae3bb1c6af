"""The review queue as rows: learned changes that wait for a person, and what the person decides."""

from __future__ import annotations

from collections.abc import Sequence

from evolve.gates import review_queue
from evolve.workspace.editing import OPERATOR
from evolve.workspace.plain_rows import Rows
from memory.records import Commit, Frozen
from memory.store import Store


class ProposalRow(Frozen):
    """A learned change that waits for a person, or waited."""

    number: int
    """Its name."""
    op: str
    """What it does: ADD, EDIT ..."""
    content: str
    """What the record would say."""
    decision: str
    """`waiting`, `accepted`, `rejected` or `repeated`."""


def proposals(store: Store, namespace: str, *, everything: bool = False) -> Rows[ProposalRow]:
    """Return the queue, oldest first; with `everything` also what was decided."""
    return Rows(
        ProposalRow(
            number=each.seq,
            op=each.op.op.value,
            content=review_queue.says(each.op),
            decision=each.decision or "waiting",
        )
        for each in review_queue.proposals(store, namespace, decided=everything)
    )


def waiting(store: Store, names: Sequence[str]) -> list[str]:
    """Return the names of proposals that are decided together, each proposal once. Raises as `accept`."""
    return list({review_queue.waiting(store, name).op.op_id: name for name in names}.values())


def accept(store: Store, name: str, content: str | None = None, reason: str = "", *, actor: str = OPERATOR) -> Commit:
    """Apply a proposal, with `content` in other words. Raises `NotFound`, and `BadInput` when it was decided before."""
    payload = None if content is None else review_queue.edited(review_queue.find(store, name).op, content)
    return review_queue.accept(store, name, actor=actor, payload=payload, reason=reason)


def reject(store: Store, name: str, reason: str = "", *, actor: str = OPERATOR) -> None:
    """Turn a proposal down. Raises as `accept`."""
    review_queue.reject(store, name, actor=actor, reason=reason)


def defer(store: Store, name: str, reason: str = "", *, actor: str = OPERATOR) -> None:
    """Put a proposal off: it waits on, after all others. Raises as `accept`."""
    review_queue.defer(store, name, actor=actor, reason=reason)
