"""Looking after a workspace: check it and mend its index, and what its gates decided."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from evolve.config.model import Config
from evolve.gates.decision_ledger import GateDecision, entries
from evolve.gates.gate_events import VERDICT
from evolve.loop.assembly import open_store
from evolve.loop.report import find_record
from evolve.loop.runs import RunRecord
from evolve.workspace.plain_rows import Rows
from memory.doctor import Finding
from memory.errors import IndexLocked
from memory.store import Store

LOCKED = "locked"
"""Code of the finding that another process owns the vector index."""


def doctor(config: Config, *, rebuild: bool = False) -> Rows[Finding]:
    """Check database and vector index, and mend the index; with `rebuild` make the tables again from the journal.

    While another process owns the index, it is not looked at, and that is a finding.
    """
    with _whole(config, write=rebuild) as (store, locked):
        store.index.flush()
        return Rows([*locked, *store.doctor(rebuild=rebuild)])


@contextmanager
def _whole(config: Config, *, write: bool) -> Generator[tuple[Store, list[Finding]]]:
    """Open the workspace with its vector index; while another process owns that, without it."""
    locked: list[Finding] = []
    try:
        store = open_store(config)
    except IndexLocked as error:
        locked.append(Finding(level="info", code=LOCKED, message=f"the vector index was not looked at: {error}"))
        store = open_store(config, read_only=not write, owner=False)
    with store:
        yield store, locked


def gate_log(store: Store, run_id: str | None = None, *, gate: str = "", rejected: bool = False) -> Rows[GateDecision]:
    """Return what each gate said about each change of a run (none named: the latest), in order.

    Raises `NotFound` for an unknown run.
    """
    said = entries(store, judged_run(store, run_id).run_id)
    return Rows(each for each in said if gate in ("", each.gate) and (not rejected or each.answer == "rejected"))


def judged_run(store: Store, run_id: str | None) -> RunRecord:
    """Return the record of a run, or of a training that measured texts. Raises `NotFound`."""
    if run_id and store.get_run(run_id) is None and store.events(type=VERDICT, run_id=run_id, limit=1):
        return RunRecord(run_id=run_id)
    return find_record(store, run_id)
