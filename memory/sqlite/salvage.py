"""Saves what can still be read of a damaged workspace database into a new one. The damaged file is only read.

Rows are read in ever smaller ranges around the damage, texts one by one, and a text counts only under its own hash. The
journal that is left is replayed by the code that live commits use; an event that no longer follows from those before it
is left out. A record whose present text is lost is left as forgotten.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from memory.content import digest
from memory.database_engine import Connection
from memory.doctor import rebuild_text
from memory.errors import BadInput, JournalError, NotFound
from memory.journal import Journal
from memory.projection import Entry, apply
from memory.records import Frozen
from memory.sqlite.sql import sqlite3

Row = tuple[int, str, str, str, str, str, str | None, str]
"""(seq, type, namespace, run id, subject, meta, content hash, time) of an event."""


class Salvaged(Frozen):
    """What was saved, and what was lost."""

    path: str
    events: int
    events_lost: int
    """Lines of the journal that could not be read, or that did not follow from what could."""
    texts: int
    texts_lost: int
    records: int
    records_lost: int
    episodes: int
    episodes_lost: int


def salvage(source: Path, target: Path) -> Salvaged:
    """Write what can be read of `source` into a new database `target`, without vectors: reindex it then.

    Raises `NotFound` without a source, `BadInput` where `target` exists, `JournalError` where nothing can be read.
    """
    if not source.is_file() or not source.stat().st_size:
        raise NotFound(f"no database at {str(source)!r} to save anything from; restore a backup")
    if target.exists():
        raise BadInput(f"{str(target)!r} exists already; name a new file")
    with TemporaryDirectory(dir=target.parent, prefix="salvage-") as folder:
        copy, new = Path(folder) / "damaged" / source.name, Path(folder) / "new" / target.name
        for place in (copy.parent, new.parent):  # a new database stands in a folder where no lost one can have been
            place.mkdir()
        for end in ("", "-wal"):
            if (part := source.with_name(source.name + end)).is_file():
                shutil.copyfile(part, copy.with_name(copy.name + end))
        with closing(sqlite3.connect(copy)) as damaged, closing(Journal(new)) as journal:
            saved = _save(damaged, journal, source)
        new.replace(target)
        return saved.model_copy(update={"path": str(target)})


def _save(damaged: sqlite3.Connection, journal: Journal, source: Path) -> Salvaged:
    last = _last(damaged, source)
    rows = [row for row in _range(damaged, 1, last) if _sound(row)]
    if not rows:
        raise JournalError(f"{source}: no line of its journal can be read; restore a backup")
    cut = {
        key: made for row in rows if row[1] == "forgotten" for key, made in json.loads(row[5]).get("cut", {}).items()
    }
    purged = {key for row in rows if row[1] == "forgotten" for key in json.loads(row[5]).get("hashes", ())}
    wanted = dict.fromkeys(key for row in rows for key in _named(row))
    bodies = {key: body for key in wanted if (body := _body(damaged, key, cut.get(key, key))) is not None}
    lost = [key for key in wanted if key not in bodies and key not in purged]
    with journal.transaction() as conn:
        conn.executemany("INSERT INTO content VALUES (?, ?)", bodies.items())
        kept = sum(_replayed(conn, row) for row in rows)
        gone = _let_go(journal, lost)
        rebuild_text(journal)
    tables = {name: journal.query(f"SELECT count(*) FROM {name}")[0][0] for name in ("records", "trajectories")}
    count = {kind: _subjects(rows, kind) for kind in ("knowledge", "trajectory")}
    return Salvaged(
        path=str(journal.path),
        events=kept,
        events_lost=last - kept,
        texts=len(bodies),
        texts_lost=len(lost),
        records=tables["records"] - gone,
        records_lost=max(0, count["knowledge"] - tables["records"]) + gone,
        episodes=tables["trajectories"],
        episodes_lost=max(0, count["trajectory"] - tables["trajectories"]),
    )


def _last(damaged: sqlite3.Connection, source: Path) -> int:
    """Return the number of the last event that there was."""
    for sql in ("SELECT seq FROM sqlite_sequence WHERE name = 'events'", "SELECT max(seq) FROM events"):
        try:
            found = damaged.execute(sql).fetchone()
        except sqlite3.DatabaseError:
            continue
        if found and found[0]:
            return int(found[0])
    raise JournalError(f"{source}: nothing of it can be read; restore a backup")


def _range(damaged: sqlite3.Connection, first: int, last: int) -> Iterator[Row]:
    """Yield the events that can be read, halving a range that cannot."""
    sql = (
        "SELECT seq, type, namespace, run_id, subject, meta, content, created_at FROM events"
        " WHERE seq BETWEEN ? AND ? ORDER BY seq"
    )
    try:
        rows = damaged.execute(sql, (first, last)).fetchall()
    except (sqlite3.DatabaseError, UnicodeDecodeError):
        if first < last:
            middle = (first + last) // 2
            yield from _range(damaged, first, middle)
            yield from _range(damaged, middle + 1, last)
        return
    yield from rows


def _sound(row: Row) -> bool:
    """Tell whether an event is what the journal writes: damage that SQLite does not see gives odd values."""
    try:
        return isinstance(json.loads(row[5]), dict) and {type(value) for value in row[1:6]} == {str}
    except (TypeError, ValueError):
        return False


def _named(row: Row) -> Iterator[str]:
    """Yield the hashes of the texts that an event names."""
    meta = json.loads(row[5])
    found = [row[6], meta.get("content_hash"), *meta.get("figures", {}).values()]
    yield from (key for key in found if isinstance(key, str))


def _body(damaged: sqlite3.Connection, key: str, made: str) -> str | None:
    """Return the text under a hash; None when it cannot be read, or is not the one that was stored."""
    try:
        found = damaged.execute("SELECT body FROM content WHERE hash = ?", (key,)).fetchone()
    except (sqlite3.DatabaseError, UnicodeDecodeError):
        return None
    body: object = found[0] if found else None
    return body if isinstance(body, str) and digest(body) == made else None


def _replayed(conn: Connection, row: Row) -> bool:
    """Append an event under its own number; return False, and leave it out, when it does not follow."""
    seq, kind, namespace, run_id, subject, meta, content, created_at = row
    conn.execute("SAVEPOINT event")
    try:
        conn.execute("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
        apply(conn, seq, Entry(kind, subject, namespace, run_id, json.loads(meta), content), created_at)
    except (sqlite3.DatabaseError, LookupError, TypeError, ValueError):
        conn.execute("ROLLBACK TO event")
        conn.execute("RELEASE event")
        return False
    conn.execute("RELEASE event")
    return True


def _let_go(journal: Journal, lost: list[str]) -> int:
    """Journal that the lost texts are gone, and forget the records that said them last; return how many."""
    if not lost:
        return 0
    journal.write(Entry("forgotten", meta={"what": "content", "hashes": lost, "actor": "salvage"}))
    rows: list[tuple[Any, ...]] = journal.query(
        "SELECT r.id, r.namespace, n.version FROM records r JOIN namespaces n ON n.namespace = r.namespace"
        " WHERE NOT r.forgotten AND r.content_hash NOT IN (SELECT hash FROM content)"
    )
    for record_id, namespace, version in rows:
        meta = {"what": "record", "ns_version": version + 1, "actor": "salvage", "hashes": [], "texts": []}
        journal.write(Entry("forgotten", record_id, namespace, meta=meta))
    return len(rows)


def _subjects(rows: list[Row], kind: str) -> int:
    """Return how many different records, or episodes, the events that could be read speak of."""
    return len({row[4] for row in rows if row[1].startswith(kind) and row[1] not in ("knowledge.commit",)})
