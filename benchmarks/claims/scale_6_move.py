"""Claim scale_6: a workspace of 200,000 events moves to PostgreSQL and back, and is the same.

A workspace as after some years (records, runs, episodes, snapshots, one purge) is moved from its file to a server and
from there into another file, by the code of `evolve workspace move`. What is compared: the sha256 of all events and
texts, the tables that follow from them, and what recall answers. Control: the same comparison after one text, one event
or one row of a table was changed on the server must tell. The server is a PostgreSQL of this machine, without fsync.

    python -m benchmarks.claims.scale_6_move [--quick]        --quick: 3,000 events
"""

from __future__ import annotations

import tempfile
import time
from contextlib import closing
from pathlib import Path

from benchmarks.big_workspace import Size, build
from benchmarks.claim import Row, at_least, begin, exactly
from benchmarks.postgres_server import new_workspace
from evolve.config.model import Config
from evolve.loop.assembly import DATABASE, open_store
from evolve.workspace.relocation import SQLITE, move_workspace
from memory.doctor import examine
from memory.journal import Journal
from memory.moving import fingerprint
from memory.records import RecallQuery

FULL, QUICK = Size(records=20_000, runs=10_800), Size(records=300, runs=160)
QUERIES = 50
Answers = list[tuple[str, tuple[tuple[str, float], ...]]]
CHANGES = {
    "text": "UPDATE content SET body = replace(body, 'rule 7:', 'rule 8:')",
    "event": "INSERT INTO events (type, namespace, run_id, subject, meta, created_at)"
    " VALUES ('note', '', '', '', '{}', '')",
    "table": "UPDATE usage SET helpful = helpful + 1 WHERE record_id = (SELECT min(record_id) FROM usage)",
}
"""What is changed in the control, each in a transaction that is undone."""


def answers(config: Config) -> Answers:
    """Return what recall finds for some queries, with the parts of each score."""
    with open_store(config) as store:
        found = [
            store.recall(RecallQuery(text=f"item{at * 19 % 1013} must hold value before service{at % 97}", k=10))
            for at in range(QUERIES)
        ]
    return [(item.record.id, tuple(sorted(item.scores.items()))) for items in found for item in items]


def told(config: Config, sha256: str) -> int:
    """Return how many changes of the control the comparison tells."""
    with closing(Journal(config.workspace / DATABASE, database=config.memory.database)) as journal:
        return sum(_is_told(journal, statement, sha256) for statement in CHANGES.values())


def unchanged(config: Config, sha256: str) -> bool:
    """Tell whether the comparison sees a change where there is none."""
    with closing(Journal(config.workspace / DATABASE, database=config.memory.database)) as journal:
        return _is_told(journal, "SELECT 1", sha256)


def _is_told(journal: Journal, statement: str, sha256: str) -> bool:
    journal.engine.begin()
    try:
        journal.conn.execute(statement)
        return fingerprint(journal) != sha256 or bool(examine(journal))
    finally:
        journal.conn.execute("ROLLBACK")


def moved(config: Config, address: str) -> tuple[str, int, float]:
    """Move; return the sha256, the number of events, and the seconds."""
    begun = time.perf_counter()
    done = move_workspace(config, address)
    return done.sha256, done.events, time.perf_counter() - begun


def size(config: Config) -> float:
    """Return the megabytes that a database takes."""
    with open_store(config, read_only=True) as store:
        return store.journal.size() / 1e6


def main() -> None:
    """Build, move there, change and compare, move back."""
    run = begin("scale_6_move", __doc__)
    wanted = QUICK if run.quick else FULL
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        (home / "file").mkdir()
        file = build(home / "file", wanted)
        with open_store(file) as store:
            store.forget(store.records("default")[3].id, purge=True)
        address = new_workspace()
        there = file.model_copy(
            update={"root": home / "there", "memory": file.memory.model_copy(update={"database": address})}
        )
        back = file.model_copy(update={"root": home / "there"})
        sha256, events, to_server = moved(file, address)
        told_changes, told_none = told(there, sha256), unchanged(there, sha256)
        sha_back, events_back, to_file = moved(there, SQLITE)
        expected, on_server, in_file = answers(file), answers(there), answers(back)
        run.conclude(
            [
                Row("events moved", events, at_least(3_000 if run.quick else 200_000)),
                Row("events that did not come back", events - events_back, exactly(0), n=events),
                Row(
                    "the way back ends in another sha256 of events and texts", sha256 != sha_back, exactly(0), n=events
                ),
                Row("answers of recall that differ, server", _differ(expected, on_server), exactly(0), n=len(expected)),
                Row("answers of recall that differ, back", _differ(expected, in_file), exactly(0), n=len(expected)),
                Row(
                    "control: changes on the server that are told", told_changes, exactly(len(CHANGES)), n=len(CHANGES)
                ),
                Row("control: told of a workspace that was not changed", told_none, exactly(0)),
                Row("seconds to the server", to_server, n=events),
                Row("seconds back", to_file, n=events),
                Row("megabytes, file", size(file), n=events),
                Row("megabytes, server", size(there), n=events),
            ]
        )


def _differ(expected: Answers, found: Answers) -> int:
    return sum(a != b for a, b in zip(expected, found, strict=True)) if len(expected) == len(found) else len(expected)


if __name__ == "__main__":
    main()
