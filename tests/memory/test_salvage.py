"""What can be read of a damaged database is saved into a new one, the rest is counted, the old file is not touched."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from memory.embedders.hashing import HashingEmbedder
from memory.errors import BadInput, JournalError, NotFound
from memory.records import DeltaOp, Op, RecallQuery, Reflection, Step, Task, Trajectory
from memory.sqlite.salvage import Salvaged, salvage
from memory.sqlite.sql import sqlite3
from memory.store import Store

Add = Callable[..., DeltaOp]
PAGE = 4096


@pytest.fixture
def full(path: Path, add: Add) -> Path:
    """A workspace of some size."""
    with Store.open(path, embedder=HashingEmbedder(), index="exact") as store:
        for at in range(40):
            ops = [add(f"lesson {at}-{n} of the house: {'x' * 60}", f"t{at}") for n in range(3)]
            first = store.commit("default", ops, actor="t", run_id="r").results[0].record_id
            edit = {"content": f"lesson {at} said better {'y' * 60}"}
            store.commit("default", [DeltaOp(op=Op.EDIT, kind="fact", target_id=first, payload=edit)], actor="t")
            steps = tuple(Step(index=n, action=f"act {n}", observation="o" * 200) for n in range(4))
            episode = Trajectory(id=f"e{at}", task=Task(id=f"t{at}", instruction="i"), steps=steps, run_id="r")
            store.add_trajectory(episode)
            store.add_reflection(Reflection(trajectory_id=episode.id, task_id=f"t{at}", raw="because"))
            store.snapshot("default")
        store.put_run("r", {"n": 1})
        store.forget(task_id="t3", purge=True)
    return path


def spoil(path: Path, pages: list[int]) -> bytes:
    body = bytearray(path.read_bytes())
    for page in pages:
        body[page * PAGE : (page + 1) * PAGE] = b"Z" * PAGE
    path.write_bytes(body)
    return bytes(body)


def saved(path: Path) -> tuple[Salvaged, Path]:
    target = path.with_name("new.db")
    return salvage(path, target), target


def opened(path: Path) -> Store:
    return Store.open(path, embedder=HashingEmbedder(), index="exact")


def test_of_a_sound_database_everything_is_saved(full: Path) -> None:
    done, target = saved(full)
    assert (done.events_lost, done.texts_lost, done.records_lost, done.episodes_lost) == (0, 0, 0, 0)
    with opened(full) as before, opened(target) as after:
        after.reindex()
        assert after.doctor() == []
        assert after.view("default").records() == before.view("default").records()
        assert after.trajectories() == before.trajectories()
        assert [each.erased for each in after.trajectories(task_id="t3")] == [True]
        assert after.snapshots("default") == before.snapshots("default")
        query = RecallQuery(text="lesson 7 said better")
        assert [r.record.id for r in after.recall(query)] == [r.record.id for r in before.recall(query)]


@pytest.mark.parametrize("first", range(30, 41, 2))
def test_whatever_pages_are_damaged_the_rest_opens_and_is_sound(full: Path, first: int) -> None:
    count = full.stat().st_size // PAGE
    damaged = spoil(full, list(range(first, count, 11)))
    done, target = saved(full)
    assert full.read_bytes() == damaged
    assert done.texts_lost + done.events_lost > 0
    with opened(target) as store:
        store.reindex()
        assert store.doctor() == []
        found = store.view("default").records()
        assert len(found) <= done.records
        assert len(store.trajectories()) == done.episodes
        more = DeltaOp(op=Op.ADD, kind="fact", payload={"content": "goes on"})
        assert store.commit("default", [more], actor="t").results[0].applied


def test_a_record_whose_text_is_lost_is_counted_and_hidden(full: Path) -> None:
    with opened(full) as store:
        before, version = len(store.view("default").records()), store.version("default")
        (row,) = store.db.execute("SELECT content_hash FROM records WHERE number = 5").fetchall()
        store.db.execute("UPDATE content SET body = 'altered' WHERE hash = ?", row)
    done, target = saved(full)
    assert (done.texts_lost, done.records_lost) == (1, 1)
    with opened(target) as store:
        store.reindex()
        assert store.doctor() == []
        assert len(store.view("default").records()) == before - 1
        assert done.records == 3 * 40 - 1
        assert store.version("default") == version + 1, "what was let go is a change of the namespace"


def test_what_a_purge_cut_stays_cut(full: Path) -> None:
    with opened(full) as store:
        record = store.view("default").records()[7]
        episode = Trajectory(id="e", task=Task(id="t", instruction=f"they said {record.payload.text()} twice"))
        store.add_trajectory(episode)
        store.forget(record.id, purge=True)
    done, target = saved(full)
    assert (done.texts_lost, done.events_lost, done.episodes) == (0, 0, 41)
    with opened(target) as store:
        store.reindex()
        assert store.doctor() == []
        (kept,) = [each for each in store.trajectories() if each.id == "e"]
        assert kept.task.instruction == "they said [erased] twice"


def test_what_cannot_be_saved_is_said(full: Path, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="restore a backup"):
        salvage(tmp_path / "none.db", tmp_path / "new.db")
    with pytest.raises(BadInput, match="exists already"):
        salvage(full, full)
    with opened(full) as store:
        (root,) = store.db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'events'").fetchone()
    for page in (root - 1, 0):  # the root of the journal's table; the list of tables
        spoil(full, [page])
        with pytest.raises(JournalError, match="restore a backup"):
            saved(full)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(("new", "salvage"))] == []


@pytest.mark.parametrize("meta", ["[]", "5", "no json", None, 7])
def test_an_event_with_an_odd_value_is_lost_and_what_followed_from_it(full: Path, meta: object) -> None:
    with closing(sqlite3.connect(full)) as conn:
        conn.execute("DROP TRIGGER events_no_update")
        (seq, edited) = conn.execute(
            "SELECT min(seq), subject FROM events WHERE type = 'knowledge.edit' GROUP BY type"
        ).fetchone()
        made = conn.execute("SELECT seq FROM events WHERE type = 'knowledge.add' AND subject = ?", (edited,)).fetchone()
        column = "meta" if meta is not None else "run_id"
        conn.execute(f"UPDATE events SET {column} = ? WHERE seq = ?", (meta if meta is not None else b"x", made[0]))
        conn.commit()
    assert made[0] < seq
    done, target = saved(full)
    assert (done.events_lost, done.records_lost, done.episodes_lost) == (2, 1, 0)
    with opened(full) as before, opened(target) as after:
        after.reindex()
        assert after.doctor() == []
        assert after.get(edited) is None
        assert done.records == 119, "those that were forgotten are records, too"
        assert len(after.records("default")) == len(before.records("default")) - 1
        assert done.events + done.events_lost == before.journal.position()
