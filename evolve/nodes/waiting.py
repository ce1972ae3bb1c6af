"""Changes that no gate could judge yet: neither dropped nor shown, they are judged with the next batch's proposals."""

from __future__ import annotations

from evolve.state import Deps
from memory.records import DeltaOp, Event, Frozen

WAITING = "gate.waiting"


class Waiting(Frozen):
    """One change that waits."""

    op: DeltaOp
    passed: tuple[str, ...] = ()
    """Gates that ran tasks for it and let it through: they are not asked again."""
    reason: str = ""


def carried(batch: int, deps: Deps) -> tuple[Waiting, ...]:
    """Return what waited when a batch began: all that the batch before it in this run left."""
    if batch:
        earlier = deps.store.events(type=WAITING, subject=deps.stream.key(batch - 1), limit=1)
    else:  # the last batch of the pass before
        events = deps.store.events(type=WAITING, run_id=deps.stream.run_id)
        earlier = [event for event in events if not event.subject.startswith(deps.stream.key(""))]
    return tuple(Waiting.model_validate(item) for item in earlier[-1].data["waiting"]) if earlier else ()


def keep(batch: int, waiting: tuple[Waiting, ...], deps: Deps) -> None:
    """Journal what waits after a batch, once; also that nothing does any more."""
    subject = deps.stream.key(batch)
    if deps.store.events(type=WAITING, subject=subject, limit=1) or not (waiting or carried(batch, deps)):
        return
    data = {"waiting": [item.model_dump(mode="json") for item in waiting]}
    event = Event(type=WAITING, namespace=deps.namespace, run_id=deps.stream.run_id, subject=subject, data=data)
    deps.store.append(event)
