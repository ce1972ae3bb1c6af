"""Changes that no gate could judge yet: neither dropped nor shown, they are judged with the next batch's proposals.

What still waits when a run is done is taken up by the next run in the namespace: its first batch is asked about it.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from evolve.gates.coverage import Covered
from evolve.gates.exemplars import Exemplars
from evolve.gates.gate_events import WAITING
from evolve.gates.held_out import HeldOut
from evolve.gates.stack import RUNS_TASKS
from evolve.gates.utility import Utility
from evolve.loop.batch import Batch
from evolve.loop.runs import DONE
from evolve.loop.state import RunContext
from evolve.progress import Notice
from memory.erasing import ERASED_PAYLOAD
from memory.records import DeltaOp, Event, Frozen, Task
from memory.store import Store


class Waiting(Frozen):
    """One change that waits."""

    op: DeltaOp
    passed: tuple[str, ...] = ()
    """Gates that ran tasks for it and let it through: they are not asked again."""
    reason: str = ""


def carried(batch: Batch, context: RunContext) -> tuple[Waiting, ...]:
    """Return what waited when a batch began: all that the batch before it in this run left."""
    return batch.once(WAITING, partial(_carried, batch.index, context))


def _carried(batch: int, context: RunContext) -> tuple[Waiting, ...]:
    if batch:
        earlier = context.store.events(type=WAITING, subject=context.stream.key(batch - 1), limit=1)
    else:  # the last batch of the pass before, or what the run took up
        events = context.store.events(type=WAITING, run_id=context.stream.run_id)
        earlier = [event for event in events if not event.subject.startswith(context.stream.key(""))]
    return _items(earlier[-1]) if earlier else ()


def _items(event: Event) -> tuple[Waiting, ...]:
    """Return what an event says waits; a change whose text was forgotten since does not."""
    items = (Waiting.model_validate(item) for item in event.data.get("waiting", ()))
    return tuple(item for item in items if item.op.payload != ERASED_PAYLOAD)


def keep(batch: Batch, waiting: tuple[Waiting, ...], context: RunContext) -> None:
    """Journal what waits after a batch, once; also that nothing does any more."""
    if (waiting or carried(batch, context)) and not batch.events(WAITING):
        batch.append(WAITING, _data(waiting))


def take_up(context: RunContext) -> None:
    """Make what finished runs of this environment left waiting the first that this run's gates are asked about; once.

    Left where it is: everything, by a run whose gates run no tasks and could only wave it through, and what was written
    from tasks that `held_out` or `utility` would ask. What a stopped run left is judged when that run is resumed.
    """
    if not context.config.playbook.enabled or not RUNS_TASKS & {gate.name for gate in context.gates}:
        return
    found = left_over(context.store, context.namespace, context.environment.name)
    items = tuple(item for item in found if not tainted(item.op, context))
    subject = f"{context.stream.run_id}/taken"
    if items and not context.store.events(type=WAITING, subject=subject, limit=1):
        event = Event(type=WAITING, namespace=context.namespace, run_id=context.stream.run_id, subject=subject)
        context.store.append(event.model_copy(update={"data": _data(items)}))
        text = f"{len(items)} changes that an earlier run left waiting are judged with the first batch"
        context.observers.notify(Notice(run_id=context.stream.run_id, text=text))


def left_over(store: Store, namespace: str, environment: str) -> tuple[Waiting, ...]:
    """Return what waits and belongs to no run that could still judge it, oldest first."""
    done = {run["run_id"] for run in store.runs() if (run["status"], run["environment"]) == (DONE, environment)}
    held: dict[str, tuple[str, Waiting]] = {}
    for event in store.events(type=WAITING, namespace=namespace):
        items = _items(event)
        held = {key: (run_id, item) for key, (run_id, item) in held.items() if run_id != event.run_id}
        held |= {item.op.op_id: (event.run_id, item) for item in items}
    return tuple(item for run_id, item in held.values() if run_id in done)


def tainted(op: DeltaOp, context: RunContext) -> bool:
    """Tell whether a gate of the select split, which needs tasks that a change was not written from, would run such."""
    gates = [gate.measures if isinstance(gate, Covered) else gate for gate in context.gates]
    asked = {
        _scenario(task) for gate in gates if isinstance(gate, Exemplars | HeldOut | Utility) for task in gate.tasks
    }
    found = map(context.store.trajectory, op.provenance.trajectory_ids)
    return not asked.isdisjoint(_scenario(episode.task) for episode in found if episode is not None)


def _scenario(task: Task) -> str:
    return task.scenario or task.id


def _data(waiting: tuple[Waiting, ...]) -> dict[str, Any]:
    return {"waiting": [item.model_dump(mode="json") for item in waiting]}
