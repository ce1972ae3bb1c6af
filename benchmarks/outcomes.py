"""Outcome of a run, without what only names or times it: two runs with equal outcomes learned and did the same."""

from __future__ import annotations

from typing import Any

from evolve.config.model import Config
from evolve.loop.assembly import open_store
from memory.store import Store


def outcome(store: Store) -> dict[str, Any]:
    """Return episodes (by task and arm) and records, with numbers in place of ids; a trial's candidates have none."""
    numbers = {record.id: record.number for record in store.records("default")}
    episodes = sorted(
        (
            t.task.id,
            t.arm,
            t.success,
            t.seed,
            [(step.action, step.observation) for step in t.steps],
            [
                (numbers.get(shown.record_id), shown.version, shown.rank, shown.scores, shown.core)
                for shown in t.injected
            ],
        )
        for t in store.trajectories()
    )
    knowledge = [
        (r.number, r.label, r.payload.text(), r.status, r.version, r.usage.model_dump(), r.provenance.task_ids)
        for r in store.records("default")
    ]
    return {"episodes": episodes, "knowledge": knowledge}


def outcome_of(config: Config) -> dict[str, Any]:
    """Return the outcome of the one run in a workspace."""
    with open_store(config, read_only=True) as store:
        return outcome(store)
