"""First node of a batch: fixes what its episodes will be shown, before any of them starts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evolve.episode.injection import choose_core, recall_for, sought
from evolve.loop.batch import Batch
from evolve.loop.nodes.expose import RECALL, Lots, hide, turn
from evolve.loop.state import RunContext, State, batch_of
from memory.records import Injection
from playbooks.core import Core, core_records, due
from playbooks.view import RecordView


async def recall(state: State, context: RunContext) -> dict[str, Any]:
    """Choose the core at a compaction point and recall for every task of the batch; journal what will be injected.

    What chance hides (`evolve.loop.nodes.expose`) is in no prompt. Repeating it after a crash keeps the first choice.
    """
    config, stream, index = context.config, context.stream, batch_of(state)
    if context.turn:
        await context.turn()
    batch = context.batch(index)
    core = Core(ids=tuple(state.get("core", ())), tasks=state.get("core_at"))
    if logged := batch.events(RECALL):
        return _update(index, logged[0].data)
    shown: dict[str, list[dict[str, Any]]] = {}
    lots: dict[str, Lots] = {}
    if config.playbook.enabled:
        done = stream.done(index)
        if due(core, done, every=config.playbook.compact_every):
            core = choose_core(config, context.store.view(context.namespace), context.policy, done)
        records = core_records(core, RecordView(context.store.load(core.ids)))
        now = turn(context)
        for task in stream.batch(index):
            wanted = sought(task, context.environment)
            chosen = recall_for(context.store, config, wanted, records, context.policy)
            left, lots[task.id] = hide(chosen, task, now, context)
            shown[task.id] = [injection.model_dump(mode="json") for injection in left]
    data = {"core": list(core.ids), "core_at": core.tasks, "shown": shown, "lots": lots}
    return _update(index, batch.append(RECALL, data).data)


def _update(index: int, data: Mapping[str, Any]) -> dict[str, Any]:
    return {"batch": index, "core": data["core"], "core_at": data["core_at"], "episodes": None, "reflections": []}


def recalled(batch: Batch, task_id: str) -> tuple[Injection, ...]:
    """Return what was chosen for a task, in the order it was chosen."""
    (event,) = batch.events(RECALL)
    return tuple(Injection.model_validate(item) for item in event.data["shown"].get(task_id, ()))
