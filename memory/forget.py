"""Forgetting: a tombstone hides a record or a task's episodes for good; a purge also erases their text.

The journal keeps ids and hashes, so a rebuild still gives the same state afterwards. A purge follows the text: every
stored body that repeats a forgotten text verbatim goes too (journalled replies, trajectories, other records), and so
do the records that are made of it. What is not covered: paraphrases, copies outside the database, and backups made
before; those are named in the result.

A tombstone holds ids, hashes and the reason. What was forgotten is not written again, by whomever, unless the op asks
for it (`DeltaOp.allow_forgotten`); texts are compared by hash, without regard to case and blank space.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from memory.content import digest
from memory.errors import BadInput, JournalError, NotFound
from memory.journal import Journal
from memory.kinds import parse_payload
from memory.projection import Entry

MIN_TEXT = 16
"""Shorter texts are erased where they stand, but not searched for in other bodies: they would match by chance."""


@dataclass(frozen=True)
class Forgotten:
    """What is gone. `descendants` were made from a forgotten record, say something else, and were kept."""

    records: tuple[str, ...]
    bodies: int = 0
    descendants: tuple[str, ...] = ()
    backups: tuple[Path, ...] = ()
    """Copies of the database that still hold the text: migration backups, and scratch copies of a killed run."""


@dataclass(frozen=True)
class Tombstone:
    """What is left of a forgotten record."""

    record_id: str
    reason: str


@dataclass
class _Sweep:
    """Record ids and body hashes found so far."""

    records: dict[str, None] = field(default_factory=lambda: {})
    hashes: dict[str, None] = field(default_factory=lambda: {})


def forget(
    journal: Journal, record_id: str | None, task_id: str | None, *, purge: bool, actor: str, reason: str = ""
) -> Forgotten:
    """Forget one record, or a task with its episodes and every record drawn from it. Raises `NotFound`, `BadInput`.

    A reason that repeats the text is erased with it.
    """
    if (record_id is None) == (task_id is None):
        raise BadInput(f"got record_id={record_id!r} and task_id={task_id!r}; expected exactly one of them")
    with journal.transaction():
        sweep = _start(journal, record_id, task_id)
        why = journal.put({"reason": reason}) if reason else None
        if purge:
            _follow(journal, sweep)
        for key in sweep.records:
            _forget_record(journal, key, actor, why)
        meta = {"what": "task" if task_id else "content", "hashes": list(sweep.hashes) if purge else [], "actor": actor}
        journal.write(Entry("forgotten", task_id or record_id or "", meta=meta))
        if purge:
            journal.conn.executemany("DELETE FROM content WHERE hash = ?", [(key,) for key in sweep.hashes])
        descendants = tuple(_descendants(journal, sweep.records))
    if purge:
        scrub(journal)
    home, name = journal.path.parent, journal.path.name
    copies = (*home.glob(f"{name}.*.backup"), *home.glob(f"scratch-*/{name}")) if purge else ()
    return Forgotten(tuple(sweep.records), len(sweep.hashes) if purge else 0, descendants, tuple(sorted(copies)))


def tombstone(journal: Journal, text: str) -> Tombstone | None:
    """Return the tombstone of a record that said this, in any namespace and any version; else None."""
    rows = journal.query(
        "SELECT e.subject, c.body FROM events e LEFT JOIN content c ON c.hash = e.content,"
        " json_each(e.meta, '$.texts') t WHERE e.type = 'forgotten' AND t.value = ? ORDER BY e.seq DESC LIMIT 1",
        (_text_hash(text),),
    )
    if not rows:
        return None
    return Tombstone(rows[0][0], json.loads(rows[0][1])["reason"] if rows[0][1] else "")


def _text_hash(text: str) -> str:
    return digest(" ".join(text.split()).rstrip(".").casefold())


def scrub(journal: Journal) -> None:
    """Overwrite what deleted rows left on disk. Raises `JournalError` while another process reads; repeat it then."""
    with journal.lock:
        with journal.transaction() as conn:
            conn.execute("INSERT INTO record_text (record_text) VALUES ('rebuild')")
            conn.execute("INSERT INTO record_text (record_text) VALUES ('optimize')")
        journal.query("VACUUM")
        if journal.query("PRAGMA wal_checkpoint(TRUNCATE)")[0][0]:
            raise JournalError(
                f"{journal.path}: the text is gone from every table, but a process that is reading keeps old pages on "
                "disk. Close the other processes of this workspace and forget the same once more"
            )


def _start(journal: Journal, record_id: str | None, task_id: str | None) -> _Sweep:
    sweep = _Sweep()
    if record_id is not None:
        if not journal.query("SELECT 1 FROM records WHERE id = ?", (record_id,)):
            raise NotFound(f"no record {record_id!r}; list records with `evolve playbook list`")
        sweep.records[record_id] = None
        return sweep
    rows = journal.query("SELECT record_id FROM record_tasks WHERE task_id = ? ORDER BY record_id", (task_id,))
    sweep.records.update(dict.fromkeys(row[0] for row in rows))
    for table in ("trajectories", "reflections", "replies"):
        rows = journal.query(f"SELECT hash FROM {table} WHERE task_id = ?", (task_id,))
        sweep.hashes.update(dict.fromkeys(row[0] for row in rows))
    if not sweep.records and not sweep.hashes:
        raise NotFound(f"nothing is stored about task {task_id!r}; list episodes with `evolve logs list`")
    return sweep


def _follow(journal: Journal, sweep: _Sweep) -> None:
    """Extend the sweep until no kept body repeats a text of a forgotten record."""
    done: set[str] = set()
    while fresh := [key for key in sweep.records if key not in done]:
        done.update(fresh)
        wanted = (json.dumps(fresh),)
        own = journal.query(
            "SELECT content_hash FROM versions WHERE record_id IN (SELECT value FROM json_each(?)) UNION"
            " SELECT content FROM events WHERE content IS NOT NULL AND subject IN (SELECT value FROM json_each(?))",
            wanted * 2,
        )
        sweep.hashes.update(dict.fromkeys(row[0] for row in own))
        for text in _texts(journal, fresh):
            rows = journal.query("SELECT hash FROM content WHERE instr(body, ?)", (text,))
            sweep.hashes.update(dict.fromkeys(row[0] for row in rows))
        holders = journal.query(
            "SELECT DISTINCT record_id FROM versions WHERE content_hash IN (SELECT value FROM json_each(?))",
            (json.dumps(list(sweep.hashes)),),
        )
        sweep.records.update(dict.fromkeys(row[0] for row in holders))


def _texts(journal: Journal, records: Iterable[str]) -> set[str]:
    """Return the texts of every version of `records`, as they stand inside JSON bodies."""
    rows = journal.query(
        "SELECT DISTINCT c.body FROM versions v JOIN content c ON c.hash = v.content_hash"
        " WHERE v.record_id IN (SELECT value FROM json_each(?))",
        (json.dumps(list(records)),),
    )
    texts: set[str] = set()
    for (body,) in rows:
        payload = parse_payload(body)
        shown = f"{payload.text()}\n{payload.key()}"
        leaves = {leaf for leaf in _leaves(json.loads(body)["payload"]) if leaf in shown}
        texts |= {json.dumps(leaf, ensure_ascii=False)[1:-1] for leaf in leaves if len(leaf) >= MIN_TEXT}
    return texts


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item)


def _forget_record(journal: Journal, record_id: str, actor: str, why: str | None) -> None:
    conn = journal.conn
    row, version, namespace, done = conn.execute(
        "SELECT row, version, namespace, forgotten FROM records WHERE id = ?", (record_id,)
    ).fetchone()
    if done:
        return
    before = conn.execute("SELECT version FROM namespaces WHERE namespace = ?", (namespace,)).fetchone()[0]
    bodies = conn.execute(
        "SELECT v.content_hash, c.body FROM versions v JOIN content c ON c.hash = v.content_hash WHERE v.record_id = ?"
        " ORDER BY v.version",
        (record_id,),
    ).fetchall()
    meta = {
        "what": "record",
        "ns_version": before + 1,
        "actor": actor,
        "hashes": list(dict.fromkeys(key for key, _ in bodies)),
        "texts": list(dict.fromkeys(_text_hash(parse_payload(body).text()) for _, body in bodies)),
    }
    journal.write(Entry("forgotten", record_id, namespace, meta=meta, content=why))
    conn.execute(
        "DELETE FROM embedding_cache WHERE sha256 IN (SELECT sha256 FROM embeddings WHERE record_id = ?)", (record_id,)
    )
    conn.execute("DELETE FROM embeddings WHERE record_id = ?", (record_id,))
    conn.execute("DELETE FROM record_text WHERE rowid = ?", (row,))
    conn.execute("INSERT INTO outbox (record_id, version, action) VALUES (?, ?, 'remove')", (record_id, version))


def _descendants(journal: Journal, records: Iterable[str]) -> list[str]:
    gone = list(records)
    rows = journal.query(
        "WITH RECURSIVE made (id) AS (SELECT value FROM json_each(?) UNION SELECT r.id FROM made JOIN records r"
        " ON EXISTS (SELECT 1 FROM json_each(r.supersedes) s WHERE s.value = made.id))"
        " SELECT m.id FROM made m JOIN records r ON r.id = m.id WHERE NOT r.forgotten",
        (json.dumps(gone),),
    )
    return [row[0] for row in rows if row[0] not in set(gone)]
