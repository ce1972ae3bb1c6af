"""The latest held-out evaluations that stand beside a run: how its policy does with what is known, and without."""

from __future__ import annotations

from datetime import datetime

from evolve.episode.arms import MAIN, NO_MEMORY
from evolve.loop.evaluate import EvalReport
from evolve.loop.history import list_runs
from evolve.loop.runs import EVAL, RunRecord
from memory.records import Frozen
from memory.runlist import RunFilter
from memory.store import Store

LOOKED = 50
"""Evaluations that are looked through, the latest."""


class HeldOut(Frozen):
    """One arm of one split, of the latest evaluation that has it."""

    run_id: str
    """The evaluation's."""
    started: datetime
    parent: str | None
    """The run that ended with the knowledge it evaluated."""
    report: EvalReport


def held_out(store: Store, record: RunRecord) -> tuple[HeldOut, ...]:
    """Return the latest evaluations of a run's policy in its environment, each split with memory before without."""
    found: dict[tuple[str, str], HeldOut] = {}
    rows, _ = list_runs(store, RunFilter(kinds=(EVAL,)), limit=LOOKED)
    same = (record.policy, record.policy_version, record.environment)
    for row in rows:
        if (row.policy, row.policy_version, row.environment) != same:
            continue
        for event in store.events(type="evaluation", run_id=row.run_id):
            if event.data.get("arm") in (MAIN, NO_MEMORY):
                report = EvalReport.model_validate(event.data)
                each = HeldOut(run_id=row.run_id, started=row.started, parent=row.parent, report=report)
                found.setdefault((report.split, report.arm), each)
    return tuple(found[key] for key in sorted(found))
