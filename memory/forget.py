"""Forgetting: a tombstone hides a record or a task's episodes for good; a purge also erases their text.

The journal keeps ids and hashes, so a rebuild still gives the same state afterwards. Of a forgotten task's episodes the
figures stay (task, arm, outcome, number of steps, usage), so that a report says what it said before.

A purge follows the text of the forgotten records, and of the task: a record that repeats it is forgotten too; out of
every other stored body (episodes of other tasks, replies, events) the text alone is cut, and the rest stays. What the
episodes of several tasks say, such as an instruction that all of them share, tells of none of them and is left, unless
it is all that a forgotten record says. What is not covered: paraphrases, copies outside the database, and backups made
before; those are named in the result.

A tombstone holds ids, hashes and the reason. What was forgotten is not written again, by whomever, unless the op asks
for it (`DeltaOp.allow_forgotten`); texts are compared by hash, without regard to case and blank space.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from memory.content import canonical, clean_body, digest
from memory.erasing import figures_of, spellings, without
from memory.errors import BadInput, NotFound
from memory.journal import Journal
from memory.kinds import parse_payload
from memory.projection import Entry

MIN_TEXT = 16
"""Shorter texts are erased where they stand, but not searched for in other bodies: they would match by chance."""
_COPIES = ("scratch", "moving", "salvage")
"""Beginnings of folders in which a process that was killed leaves a copy."""
_OF_TASKS = ("trajectory", "reflection", "reply")
"""Events whose body belongs to the task that their meta names."""


@dataclass(frozen=True)
class Forgotten:
    """What is gone, or would be. `descendants` were made from a forgotten record, say something else, and were kept."""

    records: tuple[str, ...]
    episodes: dict[str, int]
    """Arm -> episodes of the task, reduced to their figures."""
    runs: tuple[str, ...]
    """Runs whose episodes are concerned, by the task or by a quoted text. Their figures stay."""
    bodies: int = 0
    """Stored texts erased whole."""
    quoted: dict[str, int] = field(default_factory=lambda: {})
    """Kind of event -> texts from which what was forgotten was cut out; the rest of them stays."""
    descendants: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    """Of the records: a task is forgotten in each namespace that learned from it."""
    backups: tuple[Path, ...] = ()
    """Copies of the database that still hold the text: migration backups, scratch copies of a killed run, and what
    `evolve workspace move` left."""


@dataclass(frozen=True)
class Tombstone:
    """What is left of a forgotten record."""

    record_id: str
    reason: str


@dataclass
class _Sweep:
    """What was found so far."""

    records: dict[str, None] = field(default_factory=lambda: {})
    episodes: dict[str, tuple[str, str, str]] = field(default_factory=lambda: {})
    """Episode id -> (arm, run id, body) of the forgotten task."""
    hashes: dict[str, None] = field(default_factory=lambda: {})
    """Bodies to erase whole."""
    texts: set[str] = field(default_factory=lambda: set[str]())
    """Texts to cut out of other bodies."""
    cut: dict[str, str] = field(default_factory=lambda: {})
    """Hash of a body that stays -> the body without the texts."""


def preview(journal: Journal, record_id: str | None, task_id: str | None, *, purge: bool) -> Forgotten:
    """Return what `forget` would do. Changes nothing; raises as `forget`."""
    with journal.lock:
        return _told(journal, _sweep(journal, record_id, task_id, purge), purge)


def forget(
    journal: Journal, record_id: str | None, task_id: str | None, *, purge: bool, actor: str, reason: str = ""
) -> Forgotten:
    """Forget one record, or a task with its episodes and every record drawn from it. Raises `NotFound`, `BadInput`.

    A reason that repeats the text is erased with it.
    """
    body = clean_body({"reason": reason}) if reason else ""
    with journal.transaction() as conn:
        why = journal.put_body(body) if body else None
        sweep = _sweep(journal, record_id, task_id, purge)
        told = _told(journal, sweep, purge)
        for key in sweep.records:
            _forget_record(journal, key, actor, why)
        figures = {key: journal.put_body(figures_of(body)) for key, (_, _, body) in sweep.episodes.items()}
        gone = [key for key in sweep.hashes if key not in figures.values()]
        meta: dict[str, Any] = {"what": "task" if task_id else "content", "hashes": gone, "actor": actor}
        meta["cut"] = {key: digest(body) for key, body in sweep.cut.items()}
        meta |= {"figures": figures} if task_id else {}
        journal.write(Entry("forgotten", task_id or record_id or "", meta=meta))
        if purge:  # it holds instructions that were recalled for, and refused texts
            conn.execute("DELETE FROM embedding_cache")
        conn.executemany("DELETE FROM content WHERE hash = ?", [(key,) for key in gone])
        conn.executemany("UPDATE content SET body = ? WHERE hash = ?", [(body, key) for key, body in sweep.cut.items()])
    if purge:
        scrub(journal)
    return told


def cut_bodies(journal: Journal) -> dict[str, str]:
    """Return hash -> sha256 of what stands there now, for every body from which a purge cut a text."""
    found: dict[str, str] = {}
    for (meta,) in journal.query("SELECT meta FROM events WHERE type = 'forgotten' ORDER BY seq"):
        found |= json.loads(meta).get("cut", {})
    return found


def _sweep(journal: Journal, record_id: str | None, task_id: str | None, purge: bool) -> _Sweep:
    if (record_id is None) == (task_id is None):
        raise BadInput(f"got record_id={record_id!r} and task_id={task_id!r}; expected exactly one of them")
    sweep = _of_record(journal, record_id) if record_id is not None else _of_task(journal, task_id or "")
    if purge:
        _follow(journal, sweep)
    else:
        sweep.hashes.clear()
    return sweep


def _told(journal: Journal, sweep: _Sweep, purge: bool) -> Forgotten:
    wanted = (json.dumps(list(sweep.cut)),)
    quoted = journal.query(
        "SELECT type, run_id, content FROM events WHERE content IN (SELECT value FROM json_each(?))", wanted
    )
    runs = {run for _, run, _ in sweep.episodes.values()} | {run for kind, run, _ in quoted if kind == "trajectory"}
    among = (json.dumps(list(sweep.records)),)
    namespaces = journal.query(
        "SELECT DISTINCT namespace FROM records WHERE id IN (SELECT value FROM json_each(?)) ORDER BY 1", among
    )
    home, name = journal.path.parent, journal.path.name
    patterns = [f"{name}.*.backup", f"{name}.before-*", *(f"{place}-*/**/{name}" for place in _COPIES)]
    patterns += [name] if journal.database else []
    copies = [copy for pattern in patterns if purge for copy in home.glob(pattern)]
    return Forgotten(
        records=tuple(sweep.records),
        episodes=dict(Counter(arm for arm, _, _ in sweep.episodes.values())),
        runs=tuple(sorted(filter(None, runs))),
        bodies=len(sweep.hashes),
        quoted=dict(Counter(kind for kind, _ in {(kind, key) for kind, _, key in quoted})),
        descendants=tuple(_descendants(journal, sweep.records)),
        namespaces=tuple(name for (name,) in namespaces),
        backups=tuple(sorted(copies)),
    )


def tombstones(journal: Journal, texts: Sequence[str]) -> dict[str, Tombstone]:
    """Return text -> the last tombstone of a record that said it, in any namespace and version, where there is one."""
    if not texts:  # a commit that only counts asks nothing
        return {}
    hashes = {text: _text_hash(text) for text in texts}
    rows = journal.query(
        "SELECT t.value, e.subject, c.body FROM events e LEFT JOIN content c ON c.hash = e.content,"
        " json_each(e.meta, '$.texts') t WHERE e.type = 'forgotten'"
        " AND t.value IN (SELECT value FROM json_each(?)) ORDER BY e.seq",
        (json.dumps(list(hashes.values())),),
    )
    found = {key: Tombstone(subject, json.loads(body)["reason"] if body else "") for key, subject, body in rows}
    return {text: found[key] for text, key in hashes.items() if key in found}


def _text_hash(text: str) -> str:
    return digest(" ".join(text.split()).rstrip(".").casefold())


def scrub(journal: Journal) -> None:
    """Overwrite what deleted rows left on disk. Raises `JournalError` while another process reads; repeat it then."""
    with journal.lock, journal.engine.errors():
        journal.engine.scrub()


def _of_record(journal: Journal, record_id: str) -> _Sweep:
    if not journal.query("SELECT 1 FROM records WHERE id = ?", (record_id,)):
        raise NotFound(f"no record {record_id!r}; list records with `evolve playbook list`")
    return _Sweep(records={record_id: None})


def _of_task(journal: Journal, task_id: str) -> _Sweep:
    """Return a task's records, episodes and bodies: also those that were forgotten before, for a purge to erase."""
    sweep = _Sweep()
    rows = journal.query("SELECT record_id FROM record_tasks WHERE task_id = ? ORDER BY record_id", (task_id,))
    sweep.records.update(dict.fromkeys(row[0] for row in rows))
    rows = journal.query(
        "SELECT t.id, t.arm, t.run_id, c.body FROM trajectories t JOIN content c ON c.hash = t.hash"
        " WHERE t.task_id = ? ORDER BY t.seq",
        (task_id,),
    )
    sweep.episodes.update({key: (arm, run, body) for key, arm, run, body in rows})
    of_tasks = ", ".join("?" * len(_OF_TASKS))
    bodies = journal.query(
        "SELECT e.content, c.body FROM events e JOIN content c ON c.hash = e.content"
        f" WHERE e.type IN ({of_tasks}) AND e.meta ->> 'task_id' = ?",
        (*_OF_TASKS, task_id),
    )
    keys = json.dumps([key for key, _ in bodies])
    among = "IN (SELECT value FROM json_each(?))"
    shared = journal.query(  # a body is stored once, whoever says it
        f"SELECT content FROM events WHERE content {among} AND type NOT IN ({of_tasks})"
        f" UNION SELECT hash FROM trajectories WHERE hash {among} AND task_id <> ?"
        f" UNION SELECT hash FROM reflections WHERE hash {among} AND task_id <> ?"
        f" UNION SELECT hash FROM replies WHERE hash {among} AND task_id <> ?",
        (keys, *_OF_TASKS, keys, task_id, keys, task_id, keys, task_id),
    )
    sweep.hashes.update(dict.fromkeys(key for key, _ in bodies if (key,) not in shared))
    sweep.texts.update(filter(_long, (_instruction(body) for _, body in bodies)))
    if not (sweep.records or bodies or sweep.episodes):
        raise NotFound(f"nothing is stored about task {task_id!r}; list episodes with `evolve logs list`")
    return sweep


def _instruction(body: str) -> str:
    task = json.loads(body).get("task")
    return task["instruction"] if isinstance(task, dict) else ""


def _follow(journal: Journal, sweep: _Sweep) -> None:
    """Extend the sweep until no kept record repeats a text of what is forgotten; cut the texts out of other bodies."""
    done: set[str] = set()
    sweep.texts -= _shared(journal, sweep.texts)
    quoting = _holding(journal, sweep.texts)
    sweep.records.update(dict.fromkeys(_saying(journal, quoting)))
    while fresh := [key for key in sweep.records if key not in done]:
        done.update(fresh)
        wanted = (json.dumps(fresh),)
        own = journal.query(
            "SELECT content_hash FROM versions WHERE record_id IN (SELECT value FROM json_each(?))", wanted
        )
        sweep.hashes.update(dict.fromkeys(row[0] for row in own))
        texts = _texts(journal, fresh)
        sweep.texts |= texts
        held = _holding(journal, texts)
        quoting |= held
        sweep.records.update(dict.fromkeys(_saying(journal, [*sweep.hashes, *held])))
    sweep.hashes.update(dict.fromkeys(_about(journal, sweep.records)))
    there = journal.query(
        "SELECT hash FROM content WHERE hash IN (SELECT value FROM json_each(?)) ORDER BY hash",
        (json.dumps(list(sweep.hashes)),),
    )
    sweep.hashes = dict.fromkeys(row[0] for row in there)
    for key in sorted(quoting - sweep.hashes.keys()):
        made = without(journal.query("SELECT body FROM content WHERE hash = ?", (key,))[0][0], sweep.texts)
        if made is None:
            sweep.hashes[key] = None
        else:
            sweep.cut[key] = made


def _about(journal: Journal, records: Iterable[str]) -> list[str]:
    """Return the hashes of the bodies of events about `records`, without those that another record's events have too.

    A body is stored once, whoever says the same: many changes may be made for one reason.
    """
    wanted = json.dumps(list(records))
    rows = journal.query(
        "SELECT content FROM events WHERE content IS NOT NULL AND subject IN (SELECT value FROM json_each(?))"
        " EXCEPT SELECT e.content FROM events e JOIN records r ON r.id = e.subject"
        " WHERE e.subject NOT IN (SELECT value FROM json_each(?))",
        (wanted, wanted),
    )
    return [row[0] for row in rows]


def _holding(journal: Journal, texts: Iterable[str]) -> set[str]:
    """Return the hashes of the bodies in which one of the texts stands."""
    wanted = json.dumps([form for text in texts for form in dict.fromkeys(spellings(text))], ensure_ascii=False)
    rows = journal.query(
        "SELECT hash FROM content WHERE EXISTS (SELECT 1 FROM json_each(?) j WHERE instr(body, j.value) > 0)", (wanted,)
    )
    return {row[0] for row in rows}


def _saying(journal: Journal, hashes: Iterable[str]) -> list[str]:
    """Return the records of which a version is one of the bodies."""
    rows = journal.query(
        "SELECT DISTINCT record_id FROM versions WHERE content_hash IN (SELECT value FROM json_each(?)) ORDER BY 1",
        (json.dumps(list(hashes)),),
    )
    return [row[0] for row in rows]


def _shared(journal: Journal, texts: Iterable[str]) -> set[str]:
    """Return those of the texts that episodes of more than one task hold, each as one whole string."""
    forms = {canonical(text): text for text in texts}
    rows = journal.query(
        "SELECT j.value FROM events e JOIN content c ON c.hash = e.content"
        " CROSS JOIN json_each(?) j ON instr(c.body, j.value) > 0"
        " WHERE e.type = 'trajectory' GROUP BY j.value HAVING count(DISTINCT e.meta ->> 'task_id') > 1",
        (canonical(list(forms)),),
    )
    return {forms[form] for (form,) in rows}


def _texts(journal: Journal, records: Iterable[str]) -> set[str]:
    """Return what every version of `records` says, without the parts of it that several tasks share."""
    rows = journal.query(
        "SELECT DISTINCT c.body FROM versions v JOIN content c ON c.hash = v.content_hash"
        " WHERE v.record_id IN (SELECT value FROM json_each(?))",
        (json.dumps(list(records)),),
    )
    texts: set[str] = set()
    whole: set[str] = set()
    for (body,) in rows:
        shown = parse_payload(body).text()
        whole.add(shown)
        texts.update(leaf for leaf in _leaves(json.loads(body)["payload"]) if _long(leaf) and leaf in shown)
    return texts - (_shared(journal, texts) - whole)


def _long(text: str) -> bool:
    return len(text) >= MIN_TEXT


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
        "SELECT r.row, r.version, r.namespace, r.forgotten FROM records r WHERE r.id = ?", (record_id,)
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
    journal.words.remove(row)
    conn.execute("INSERT INTO outbox (record_id, version, action) VALUES (?, ?, 'remove')", (record_id, version))


def _descendants(journal: Journal, records: Iterable[str]) -> list[str]:
    gone = list(records)
    rows = journal.query(
        "WITH RECURSIVE made (id) AS (SELECT r.id FROM json_each(?) j JOIN records r ON r.id = j.value"
        " UNION SELECT r.id FROM made JOIN records r"
        " ON EXISTS (SELECT 1 FROM json_each(r.supersedes) s WHERE s.value = made.id))"
        " SELECT m.id FROM made m JOIN records r ON r.id = m.id WHERE r.forgotten = 0",
        (json.dumps(gone),),
    )
    return [row[0] for row in rows if row[0] not in set(gone)]
