"""Which generation answers, which ones there are, and how it came to that: `policies.db` and the adapters beside it.

Exactly one generation is live. `promote` and `rollback` move that in one transaction, each with its entries in an
append-only history; a process killed in between leaves what was before. The order of c.3 in the reference (canary
before promotion) is held here: only what passed its canary can go live.

Tables of `policies.db`: the generations, and an append-only list of everything that happened to them.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from memory.base import now
from memory.errors import NotFound
from memory.sqlite.database import clear_errors, open_database
from memory.sqlite.schema import run_script
from memory.sqlite.sql import Database, Migrations, sqlite3
from policies.generations.adapters import fingerprint, inspect_weights
from policies.generations.base_model import Base
from policies.generations.errors import AdapterRefused, WrongState
from policies.generations.generation_records import Change, Generation, State
from policies.generations.storage import FOLDER, numbering, version_name, write_adapter

DATABASE = "policies.db"
COLUMNS = (
    "number, version, adapter, sha256, model, weights, tokenizer, parent, metrics, config, state, before, created_at"
)
INSERT = f"INSERT INTO generations ({COLUMNS}) VALUES ({', '.join('?' * 13)})"


class Registry:
    """The generations of one workspace's policy. Threads may share it; each process opens its own."""

    def __init__(self, folder: Path, base: Base | None = None, *, read_only: bool = False) -> None:
        """Open the registry in `folder` (`.evolve/policies`), made when missing and `base` is given: as generation 0.

        Raises `NotFound` where there is none, `WrongState` when it was begun for another base.
        """
        self.folder = folder.resolve()
        path = self.folder / DATABASE
        if base is None and not path.exists():
            raise NotFound(f"no generations in {str(folder)!r}; publish an adapter first: training does that")
        if not read_only:
            self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = threading.RLock()
        self._conn = open_database(path, read_only=read_only, migrations=MIGRATIONS)
        try:
            if base is not None:
                self._begin(base, read_only=read_only)
        except BaseException:
            self.close()
            raise

    @property
    def base(self) -> Base:
        """The model that all generations adapt."""
        return self.get(version_name(0)).base

    def generations(self) -> tuple[Generation, ...]:
        """Return all of them, in order."""
        return tuple(self._generation(row) for row in self._rows(f"SELECT {COLUMNS} FROM generations ORDER BY number"))

    def get(self, version: str) -> Generation:
        """Return one generation by name or number. Raises `NotFound` and says which there are."""
        name = version_name(int(version)) if version.isdigit() else version
        rows = self._rows(f"SELECT {COLUMNS} FROM generations WHERE version = ?", name)
        if not rows:
            known = ", ".join(row[0] for row in self._rows("SELECT version FROM generations ORDER BY number"))
            raise NotFound(f"no generation {version!r}; there are {known}")
        return self._generation(rows[0])

    def live(self) -> Generation:
        """Return the generation that answers new requests."""
        return self._generation(self._rows(f"SELECT {COLUMNS} FROM generations WHERE state = 'live'")[0])

    def previous(self) -> Generation | None:
        """Return where a rollback would go, None when the live one replaced nothing."""
        before = self.live().before
        return None if before is None else self.get(before)

    def history(self, version: str | None = None) -> tuple[Change, ...]:
        """Return what happened, in order, to one generation or to all."""
        rows = self._rows(
            "SELECT seq, type, version, state, reason, data, created_at FROM events"
            " WHERE ? IS NULL OR version = ? ORDER BY seq",
            version,
            version,
        )
        return tuple(_change(row) for row in rows)

    def publish(
        self,
        source: Path,
        *,
        base: Base,
        parent: str | None = None,
        metrics: Mapping[str, Any] | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> Generation:
        """Copy an adapter's directory to its place and register it as a candidate.

        `base`: what it was trained on. Raises `AdapterRefused` for another base than the registry's and for what may
        not be served; then nothing is left behind. `parent`: default the live one.
        """
        if not base.same(self.base):
            raise AdapterRefused(
                f"adapter {str(source)!r} was trained on weights {base.weights[:12]} and tokenizer "
                f"{base.tokenizer[:12]}, expected {self.base.weights[:12]} and {self.base.tokenizer[:12]} "
                f"({self.base.model!r}); train on that base, or begin another workspace"
            )
        origin = self.live() if parent is None else self.get(parent)
        adapter = inspect_weights(source, Path(self.base.model))
        with numbering(self.folder, self.generations()[-1].number) as number:
            place = write_adapter(self.folder, number, source, base)
            name = version_name(number)
            row = (number, name, place.name, adapter.sha256, base.model, base.weights, base.tokenizer, origin.version)
            with self._transaction() as conn:
                conn.execute(INSERT, (*row, _json(metrics), _json(config), "candidate", None, now().isoformat()))
                self._event(name, "published", "candidate", f"trained from {origin.version}")
        return self.get(name)

    def accept(self, version: str, report: Mapping[str, Any]) -> None:
        """Record that a generation passed its canary: it may be promoted. Its files must still be what they were."""
        with self._transaction():
            generation = self.get(version)
            self._require_files(generation)
            state: State = "live" if generation.state == "live" else "canary"
            self._move(generation.version, state)
            self._event(generation.version, "accepted", state, "passed its canary", report)

    def refuse(self, version: str, reason: str, report: Mapping[str, Any] | None = None) -> None:
        """Record why a generation was not let live; one that had passed earlier must pass again."""
        with self._transaction():
            generation = self.get(version)
            state: State = "candidate" if generation.state == "canary" else generation.state
            self._move(generation.version, state)
            self._event(generation.version, "refused", state, reason, report)

    def measure(self, version: str, metrics: Mapping[str, Any]) -> Generation:
        """Add metrics to a generation, for `evolve policy diff` and for gates."""
        with self._transaction() as conn:
            generation = self.get(version)
            merged = _json({**generation.metrics, **metrics})
            conn.execute("UPDATE generations SET metrics = ? WHERE version = ?", (merged, generation.version))
            self._event(generation.version, "measured", generation.state, "", metrics)
        return self.get(version)

    def promote(self, version: str, reason: str = "") -> Generation:
        """Let a generation answer from now on. Raises `WrongState` unless it passed its canary; the base needs none."""
        with self._transaction() as conn:
            generation, live = self.get(version), self.live()
            if generation.state == "live":
                raise WrongState(f"{generation.version} is live already; nothing to promote")
            if generation.state != "canary" and generation.adapter is not None:
                raise WrongState(
                    f"{generation.version} is {generation.state}, expected one that passed its canary; run "
                    f"`evolve policy canary {generation.version}`"
                )
            self._require_files(generation)
            self._swap(live.version, generation.version)
            conn.execute("UPDATE generations SET before = ? WHERE version = ?", (live.version, generation.version))
            self._event(live.version, "retired", "retired", f"replaced by {generation.version}")
            self._event(generation.version, "promoted", "live", reason, {"before": live.version})
        return self.get(version)

    def rollback(self, reason: str = "") -> Generation:
        """Let the generation before the live one answer again, and return it. Raises `WrongState` where none was."""
        with self._transaction():
            live, previous = self.live(), self.previous()
            if previous is None:
                raise WrongState(f"{live.version} is live and replaced nothing; there is nothing to roll back to")
            self._require_files(previous)
            self._swap(live.version, previous.version)
            self._event(live.version, "rolled_back", "retired", reason, {"to": previous.version})
            self._event(previous.version, "restored", "live", f"{live.version} was rolled back")
        return self.get(previous.version)

    def close(self) -> None:
        """Close the database; closing twice is allowed."""
        with self._lock:
            self._conn.close()

    def __enter__(self) -> Registry:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _begin(self, base: Base, *, read_only: bool) -> None:
        """Make generation 0, or see that it is this base."""
        if not read_only:
            with self._transaction() as conn:
                if not self._rows("SELECT 1 FROM generations"):
                    known = (0, version_name(0), None, "", base.model, base.weights, base.tokenizer, None)
                    conn.execute(INSERT, (*known, "{}", "{}", "live", None, now().isoformat()))
                    self._event(version_name(0), "published", "live", "the base model")
        if not self.base.same(base):
            known = self.base
            raise WrongState(
                f"the generations in {str(self.folder)!r} adapt {known.model!r} (weights {known.weights[:12]}, "
                f"tokenizer {known.tokenizer[:12]}), got {base.model!r} ({base.weights[:12]}, {base.tokenizer[:12]}); "
                "configure that base again, or begin another workspace"
            )

    def _require_files(self, generation: Generation) -> None:
        if generation.adapter is None:
            return
        try:
            found = fingerprint(generation.adapter)
        except OSError as error:
            raise WrongState(
                f"{generation.version}: its adapter cannot be read ({error}); restore that file"
            ) from error
        if found != generation.sha256:
            raise WrongState(
                f"{generation.version}: its adapter in {str(generation.adapter)!r} has sha256 {found[:12]}, expected "
                f"{generation.sha256[:12]}; adapters are never changed: restore the files, or publish it anew"
            )

    def _swap(self, live: str, new: str) -> None:
        """Move the alias: the old one first, since there can be only one."""
        self._move(live, "retired")
        self._move(new, "live")

    def _move(self, version: str, state: State) -> None:
        self._conn.execute("UPDATE generations SET state = ? WHERE version = ?", (state, version))

    def _event(self, version: str, kind: str, state: State, reason: str, data: Mapping[str, Any] | None = None) -> None:
        self._conn.execute(
            "INSERT INTO events (type, version, state, reason, data, created_at) VALUES (?, ?, ?, ?, ?, ?)",
            (kind, version, state, reason, _json(data), now().isoformat()),
        )

    @contextmanager
    def _transaction(self) -> Generator[sqlite3.Connection]:
        with self._lock, clear_errors(str(self.folder / DATABASE)):
            self._conn.execute("BEGIN IMMEDIATE")
            try:
                yield self._conn
                self._conn.execute("COMMIT")
            except BaseException:
                if self._conn.in_transaction:
                    self._conn.execute("ROLLBACK")
                raise

    def _rows(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        with self._lock, clear_errors(str(self.folder / DATABASE)):
            return self._conn.execute(sql, parameters).fetchall()

    def _generation(self, row: tuple[Any, ...]) -> Generation:
        number, version, adapter, sha256, model, weights, tokenizer, parent, metrics, config, *rest = row
        state, before, created_at = rest
        return Generation(
            number=number,
            version=version,
            adapter=None if adapter is None else self.folder / FOLDER / adapter,
            sha256=sha256,
            base=Base(model=model, weights=weights, tokenizer=tokenizer),
            parent=parent,
            metrics=json.loads(metrics),
            config=json.loads(config),
            state=state,
            before=before,
            created_at=created_at,
        )


def _change(row: tuple[Any, ...]) -> Change:
    seq, kind, version, state, reason, data, created_at = row
    return Change(
        seq=seq,
        type=kind,
        version=version,
        state=state,
        reason=reason,
        data=json.loads(data),
        created_at=created_at,
    )


def _json(value: Mapping[str, Any] | None) -> str:
    return json.dumps(value or {}, sort_keys=True, default=str)


MIGRATIONS = Migrations("evolve.policies")

TABLES = """
CREATE TABLE generations (
    number INTEGER PRIMARY KEY,
    version TEXT NOT NULL UNIQUE,
    adapter TEXT,                -- folder below the registry's; none = the base model itself
    sha256 TEXT NOT NULL,        -- of the adapter
    model TEXT NOT NULL,
    weights TEXT NOT NULL,       -- hashes of the base
    tokenizer TEXT NOT NULL,
    parent TEXT REFERENCES generations (version),
    metrics TEXT NOT NULL,
    config TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('candidate', 'canary', 'live', 'retired')),
    before TEXT REFERENCES generations (version),    -- what was live when it was promoted
    created_at TEXT NOT NULL
);
CREATE UNIQUE INDEX one_live ON generations (state) WHERE state = 'live';
CREATE TABLE events (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    type TEXT NOT NULL,
    version TEXT NOT NULL,
    state TEXT NOT NULL,         -- afterwards
    reason TEXT NOT NULL,
    data TEXT NOT NULL,
    created_at TEXT NOT NULL
);
CREATE INDEX events_version ON events (version);
CREATE TRIGGER events_no_update BEFORE UPDATE ON events BEGIN SELECT RAISE(ABORT, 'the events are append-only'); END;
CREATE TRIGGER events_no_delete BEFORE DELETE ON events BEGIN SELECT RAISE(ABORT, 'the events are append-only'); END;
"""


@MIGRATIONS()
def m001_generations(db: Database) -> None:
    """Schema version 1."""
    run_script(db, TABLES)
