"""A session of somebody else's agent as a run of the journal: an `Agent`, a LangChain agent, an MCP client, a store.

It begins with the first thing that is done in it, so one in which nothing happens leaves no trace, and ends when it is
closed. One that is never closed (a client that vanished, a killed process) stays `running` in its record;
`evolve.loop.history` calls it stale once the journal has heard nothing of it for a while.
"""

from __future__ import annotations

import time

from evolve.config.model import Config
from evolve.loop.runs import DONE, STOPPED, RunRecord, mark_run, save_run
from memory.snapshots import address
from memory.store import Store


class Session:
    """One session. May be used from several threads."""

    def __init__(self, store: Store, record: RunRecord, namespace: str = "") -> None:
        """Take the open store and what is known beforehand; `namespace` is frozen at both ends, empty = none."""
        self._store, self._record, self._namespace = store, record, namespace
        self._began: float | None = None

    def begin(self, client: str = "") -> None:
        """Journal that it began, once, with the knowledge at its beginning: what a rollback can go back to."""
        with self._store.lock:
            if self._began is not None:
                return
            self._began = time.monotonic()
            self._record = self._record.model_copy(update={"client": client or self._record.client})
            save_run(self._store, self._record)
            if self._namespace:
                self.freeze("start")

    def freeze(self, mark: str) -> str:
        """Freeze what is known now and mark the session with it; return the snapshot's address."""
        snapshot = self._store.snapshot(self._namespace)
        return mark_run(self._store, self._record.run_id, f"{self._record.run_id}/{mark}", snapshot)

    def end(self, error: BaseException | None = None) -> None:
        """Journal that it ended, and with which knowledge; nothing where it never began."""
        with self._store.lock:
            if self._began is None:
                return
            ended = {
                "status": STOPPED if error else DONE,
                "reason": f"{type(error).__name__}: {error}" if error else "",
                "seconds": time.monotonic() - self._began,
                "snapshot_id": address(self._store.snapshot(self._namespace)) if self._namespace else None,
            }
            self._record, self._began = self._record.model_copy(update=ended), None
            save_run(self._store, self._record)


def session_record(run_id: str, kind: str, config: Config) -> RunRecord:
    """Return the record of a session that begins under a configuration."""
    return RunRecord(
        run_id=run_id,
        kind=kind,
        name=config.run.name,
        tags=config.run.tags,
        mode=kind,
        config=config.model_dump(mode="json", exclude={"root"}),
        config_hash=config.digest,
    )
