"""Forgetting hides for good; a purge leaves no byte of the text in the database, and a rebuild still verifies."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import ClassVar

import pytest

import memory.sqlite.database
from memory.embedders.hashing import HashingEmbedder
from memory.errors import BadInput, IndexLocked, IndexUnavailable, JournalError, NotFound
from memory.forget import scrub
from memory.index_worker import IndexWorker
from memory.kinds import register
from memory.locks import Owner
from memory.records import DeltaOp, Event, Op, Payload, Provenance, RecallQuery, Reflection, Step, Task, Trajectory
from memory.sqlite.sql import sqlite3
from memory.store import Store
from tests.memory.holding import records_with

BOTH_ENGINES = True

Add = Callable[..., DeltaOp]
MARK = "the vault opens with pelican"
ASKED = "Complete the task that you see."
HEARD = "Execution was successful."


@register
class Parts(Payload):
    """A kind whose records say several things, as solved tasks do."""

    kind: ClassVar[str] = "parts"
    parts: tuple[str, ...]

    def text(self) -> str:
        return "\n".join(self.parts)


def stands(store: Store, text: str) -> bool:
    """Tell whether a text stands in a file of the workspace, or in a table of its schema."""
    journal = store.journal
    if not journal.database:
        return any(text.encode() in file.read_bytes() for file in journal.path.parent.iterdir() if file.is_file())
    tables = journal.query("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")
    return any(text in repr(row) for (table,) in tables for row in journal.query(f"SELECT * FROM {table}"))


@pytest.fixture
def secretive(store: Store, add: Add) -> tuple[Store, str, str]:
    """A store that repeats one text everywhere, and the ids of the record with it and of a harmless one."""
    if not store.journal.database:
        store.db.execute("PRAGMA secure_delete = OFF")  # some builds of SQLite overwrite deleted rows by themselves
    bad, good = store.commit("default", [add(MARK, "t1"), add("harmless", "t2")], actor="t").results
    assert bad.record_id
    assert good.record_id
    edit = {"content": f"{MARK}, twice"}
    store.commit("default", [DeltaOp(op=Op.EDIT, kind="fact", target_id=bad.record_id, payload=edit)], actor="t")
    step = Step(index=0, action="x", reply=f"I know that {MARK}.")
    store.add_trajectory(Trajectory(id="traj-1", task=Task(id="t9", instruction="i"), steps=(step,)))
    store.add_trajectory(Trajectory(id="traj-2", task=Task(id="t9", instruction="nothing here")))
    store.put_reply("k1", {"text": f'["{MARK}"]'})
    store.put_run("r1", {"best": MARK})
    store.append(Event(type="note", data={"seen": MARK}))
    store.snapshot("default")
    return store, bad.record_id, good.record_id


def test_a_tombstone_hides_the_record_everywhere_and_keeps_the_history(secretive: tuple[Store, str, str]) -> None:
    store, bad, good = secretive
    snapshot = store.snapshot("default")
    result = store.forget(bad)
    assert (result.records, result.bodies) == ((bad,), 0)
    assert store.get(bad) is None
    assert [record.id for record in store.view("default").records()] == [good]
    assert [record.id for record in store.view("default", snapshot.id).records()] == [good]
    assert records_with(store, "pelican") == []
    assert store.history(bad)[-1].type == "forgotten"
    assert store.doctor() == []


def test_no_op_and_no_rollback_brings_a_forgotten_record_back(secretive: tuple[Store, str, str]) -> None:
    store, bad, good = secretive
    snapshot = store.snapshot("default")
    store.forget(bad, purge=True)
    (result,) = store.commit("default", [DeltaOp(op=Op.RESTORE, target_id=bad)], actor="t").results
    assert "forgotten" in result.reason
    (refused,) = store.rollback("default", snapshot.id, actor="t").refused
    assert (refused.record_id, "forgotten" in refused.reason) == (bad, True)
    assert [record.id for record in store.view("default").records()] == [good]


def test_a_purge_erases_every_copy_of_the_text(secretive: tuple[Store, str, str], path: Path) -> None:
    store, bad, good = secretive
    assert stands(store, "pelican")
    result = store.forget(bad, purge=True)
    assert result.records == (bad,)
    assert not stands(store, "pelican")
    quoting = store.trajectory("traj-1")
    assert quoting is not None
    assert quoting.steps[0].reply == "I know that [erased]."
    assert store.trajectory("traj-2") is not None
    assert store.get_reply("k1") == {"text": '["[erased]"]'}
    assert store.runs() == [{"run_id": "r1", "best": "[erased]"}]
    assert store.events(type="note")[0].data == {"seen": "[erased]"}
    assert result.quoted == {"trajectory": 1, "reply": 1, "run": 1, "note": 1}
    assert store.get(good) is not None


def test_a_rebuild_after_a_purge_still_verifies(secretive: tuple[Store, str, str]) -> None:
    store, bad, _ = secretive
    store.forget(bad, purge=True)
    assert store.doctor() == []
    assert [(f.level, f.code) for f in store.doctor(rebuild=True)] == [("info", "rebuilt")]


def test_records_that_repeat_the_text_go_too_and_paraphrases_are_named(store: Store, add: Add) -> None:
    first, second, other = (
        result.record_id or ""
        for result in store.commit("a", [add(MARK), add(f"careful: {MARK}"), add("short")], actor="t").results
    )
    merge = DeltaOp(op=Op.MERGE, kind="fact", parent_ids=(first, other), payload={"content": "a big bird knows"})
    (child,) = store.commit("a", [merge], actor="t").results
    (twin,) = store.commit("b", [add(MARK)], actor="t").results
    result = store.forget(first, purge=True)
    assert set(result.records) == {first, second, twin.record_id}
    assert result.descendants == (child.record_id,)
    assert store.get(other) is not None


def test_forgetting_a_task_takes_its_episodes_and_what_was_learned_from_it(store: Store, add: Add, path: Path) -> None:
    learned, kept = store.commit("default", [add("from pelican", "t1"), add("kept", "t2")], actor="t").results
    trajectory = Trajectory(task=Task(id="t1", instruction="the pelican task"))
    store.add_trajectory(trajectory)
    store.add_reflection(Reflection(trajectory_id=trajectory.id, task_id="t1", raw="pelican!"))
    store.put_reply("k", {"text": "pelican?"}, task_id="t1")
    result = store.forget(task_id="t1", purge=True)
    assert result.records == (learned.record_id,)
    (left,) = store.trajectories()
    assert (left.id, left.erased, left.task.instruction) == (trajectory.id, True, "[erased]")
    assert (store.reflections(), store.get_reply("k")) == ((), None)
    assert not stands(store, "pelican")
    assert [record.id for record in store.view("default").records()] == [kept.record_id]
    assert store.doctor() == []


def test_a_forgotten_task_s_reflections_and_replies_are_found_no_more(store: Store, path: Path) -> None:
    for task in ("t1", "t2"):
        trajectory = Trajectory(task=Task(id=task, instruction="i"))
        store.add_trajectory(trajectory)
        store.add_reflection(Reflection(trajectory_id=trajectory.id, task_id=task, raw="because"))
        store.put_reply(f"key of {task}", {"text": f"pelican {task}"}, task_id=task)
    store.forget(task_id="t1")
    assert [each.task_id for each in store.reflections()] == ["t2"]
    assert store.get_reply("key of t1") is None
    assert store.get_reply("key of t2") == {"text": "pelican t2"}
    assert len(store.trajectories()) == 2
    assert stands(store, "pelican t1"), "without a purge it stays in the journal"
    store.doctor(rebuild=True)
    assert [each.task_id for each in store.reflections()] == ["t2"]
    assert store.get_reply("key of t1") is None


def test_forgetting_is_a_change_of_the_namespace_and_takes_the_vectors_along(store: Store, add: Add) -> None:
    ids = [str(r.record_id) for r in store.commit("default", [add("one"), add("two")], actor="t").results]
    cached = "INSERT INTO embedding_cache (model, sha256, dim, vector) SELECT 'm', sha256, dim, vector FROM embeddings"
    store.db.execute(cached)
    before = store.version("default")
    store.forget(ids[0])
    assert store.version("default") == before + 1
    for table in ("embeddings", "embedding_cache"):
        assert store.db.execute(f"SELECT count(*) FROM {table}").fetchone() == (1,)
    store.forget(ids[0])
    assert store.version("default") == before + 1, "once"


def test_of_a_forgotten_episode_stays_whether_it_ended_with_an_error(store: Store) -> None:
    task = Task(id="t1", instruction="the pelican task")
    for name, error in (("a", None), ("b", "the pelican is gone")):
        store.add_trajectory(Trajectory(id=name, task=task, error=error))
    store.forget(task_id="t1", purge=True)
    assert [each.error for each in store.trajectories()] == [None, "[erased]"]
    assert [each.outcome for each in store.trajectories()] == [None, None]


@pytest.mark.parametrize("purge", [False, True])
def test_a_forgotten_text_is_not_written_again_unless_asked(store: Store, add: Add, path: Path, purge: bool) -> None:
    (first, other) = store.commit("default", [add(MARK), add("another")], actor="t").results
    edited = {"content": f"{MARK} at night"}
    store.commit("default", [DeltaOp(op=Op.EDIT, kind="fact", target_id=first.record_id, payload=edited)], actor="t")
    store.forget(first.record_id, purge=purge, reason="a secret of the house")
    again = [add(MARK), add(f"  {MARK.upper()} at night. ", "t7")]
    again.append(DeltaOp(op=Op.EDIT, kind="fact", target_id=other.record_id, payload={"content": MARK}))
    for namespace, ops in (("default", again), ("elsewhere", [add(MARK)])):
        for result in store.commit(namespace, ops, actor="t").results:
            assert not result.applied
            assert "was forgotten" in result.reason
            assert ("a secret of the house" in result.reason) is (namespace == "default")
    assert all("payload" not in event.data["proposed"] for event in store.events(type="refused"))
    assert stands(store, "pelican") is not purge
    asked = add(MARK, allow_forgotten=True)
    (back,) = store.commit("default", [asked], actor="t").results
    assert store.get(back.record_id or "") is not None
    assert store.get(first.record_id or "") is None
    assert [finding.level for finding in store.doctor(rebuild=True)] == ["info"]


def test_a_tombstone_holds_id_hashes_and_reason_and_none_of_the_text(secretive: tuple[Store, str, str]) -> None:
    store, bad, _ = secretive
    hashes = {row[0] for row in store.db.execute("SELECT content_hash FROM versions WHERE record_id = ?", (bad,))}
    store.forget(bad, purge=True, reason="asked for by its owner")
    (stone,) = [event for event in store.events(type="forgotten", subject=bad) if event.data["what"] == "record"]
    assert set(stone.data["hashes"]) == hashes
    assert len(stone.data["texts"]) == len(hashes) == 2
    assert stone.data["reason"] == "asked for by its owner"
    assert "pelican" not in stone.model_dump_json()


def test_a_reason_that_repeats_the_text_goes_with_it(secretive: tuple[Store, str, str], path: Path) -> None:
    store, bad, _ = secretive
    store.forget(bad, purge=True, reason=f"because {MARK}")
    assert not stands(store, "pelican")
    (result,) = store.commit("default", [DeltaOp(op=Op.ADD, kind="fact", payload={"content": MARK})], actor="t").results
    assert "was forgotten" in result.reason


def test_copies_that_still_hold_the_text_are_named(secretive: tuple[Store, str, str], path: Path) -> None:
    store, bad, _ = secretive
    places = ("scratch-killed", "moving-killed", "salvage-killed/damaged")
    left = [path.parent / place / path.name for place in places]
    for copy in left:
        copy.parent.mkdir(parents=True)
        copy.write_bytes(b"a copy that a killed process left")
    moved = [path.with_name(f"{path.name}.before-20260101T000000Z")]
    moved += [path] if store.journal.database else []  # what a workspace left that moved to a server
    for file in moved:
        file.write_bytes(b"a copy that a move left")
    assert store.forget(bad, purge=True).backups == tuple(sorted([*left, *moved]))


def test_a_forgotten_record_is_still_named_for_a_purge_that_comes_later(secretive: tuple[Store, str, str]) -> None:
    store, bad, _ = secretive
    assert store.forgotten("default", bad) is None
    store.forget(bad)
    for _ in range(2):
        for name in (bad, "1", "fact-00001", "tst-00001"):
            assert store.forgotten("default", name) == bad
        for namespace, name in (("default", "2"), ("default", "team/tst-00001"), ("team", "1"), ("default", "0")):
            assert store.forgotten(namespace, name) is None
        assert store.forgotten("default", "office-train-1") is None
        store.forget(bad, purge=True)
        assert not stands(store, "pelican")


@pytest.fixture
def indexed(path: Path, add: Add) -> tuple[str, bytes]:
    """A workspace with a Chroma folder that nobody has open: the id of a record in it, and its vector."""
    with Store.open(path, embedder=HashingEmbedder()) as store:
        (made, _) = store.commit("default", [add(MARK), add("harmless")], actor="t").results
        assert store.index.flush(120)
    return str(made.record_id), HashingEmbedder().embed([MARK])[0].tobytes()


def holding(path: Path, vector: bytes) -> list[str]:
    """Return the files of a workspace that hold a vector."""
    return [file.name for file in path.parent.rglob("*") if file.is_file() and vector in file.read_bytes()]


@pytest.mark.sqlite
def test_a_purge_without_the_index_deletes_its_folder(path: Path, indexed: tuple[str, bytes]) -> None:
    record, vector = indexed
    assert holding(path, vector)
    with Store.open(path, embedder=HashingEmbedder(), owner=False) as store:
        store.forget(record, purge=True)
    assert holding(path, vector) == []
    with Store.open(path, embedder=HashingEmbedder()) as store:
        assert store.index.flush(120)
        assert store.doctor() == []
    assert holding(path, vector) == []


@pytest.mark.sqlite
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_purge_deletes_the_folder_where_the_index_thread_has_ended(
    path: Path, indexed: tuple[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def ends(*_: object) -> None:
        raise RuntimeError("unexpected")

    record, vector = indexed
    monkeypatch.setattr(IndexWorker, "_round", ends)
    with Store.open(path, embedder=HashingEmbedder()) as store:
        store.index.wake()
        while store.index.state().owner:
            time.sleep(0.01)
        store.forget(record, purge=True)
    assert holding(path, vector) == []


@pytest.mark.sqlite
def test_a_purge_beside_a_run_that_keeps_the_index_says_so(path: Path, indexed: tuple[str, bytes]) -> None:
    record, vector = indexed
    run = Owner(path.parent / "index")
    run.acquire()
    with Store.open(path, embedder=HashingEmbedder(), owner=False) as store:
        with pytest.raises(IndexLocked, match=r"do the same once more.*belongs to process"):
            store.forget(record, purge=True)
        run.release(clean=True)
        store.forget(record, purge=True)
    assert holding(path, vector) == []


@pytest.mark.sqlite
@pytest.mark.parametrize("owner", [True, False])
def test_an_index_that_cannot_be_deleted_is_said(path: Path, indexed: tuple[str, bytes], owner: bool) -> None:
    record, _ = indexed
    odd = path.parent / "index.quarantine-note"
    odd.touch()  # a file, where a folder is deleted
    with Store.open(path, embedder=HashingEmbedder(), owner=owner) as store:
        with pytest.raises(IndexUnavailable, match="do the same once more"):
            store.forget(record, purge=True)
        odd.unlink()
        store.forget(record, purge=True)


@pytest.mark.sqlite
def test_a_reader_that_keeps_old_pages_is_reported_and_a_second_purge_finishes(
    path: Path, add: Add, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory.sqlite.database, "BUSY_SECONDS", 0.1)
    with Store.open(path, embedder=HashingEmbedder(), index="exact") as store:
        (result,) = store.commit("default", [add(MARK)], actor="t").results
        with closing(sqlite3.connect(path, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM events").fetchone()
            with pytest.raises(JournalError, match="once more"):
                store.forget(result.record_id, purge=True)
        store.forget(result.record_id, purge=True)
        assert not stands(store, "pelican")
        assert store.doctor() == []


def test_recall_from_a_snapshot_read_before_leaves_the_forgotten_out(secretive: tuple[Store, str, str]) -> None:
    store, bad, _ = secretive
    query = RecallQuery(text="vault pelican harmless", snapshot_id=store.snapshot("default").id)
    assert bad in {found.record.id for found in store.recall(query)}
    store.forget(bad)
    assert bad not in {found.record.id for found in store.recall(query)}
    assert bad not in {found.record.id for found in store.recall(RecallQuery(text="vault pelican"))}


def test_nothing_to_forget_is_an_error(store: Store) -> None:
    with pytest.raises(NotFound, match="no record"):
        store.forget("nobody")
    with pytest.raises(NotFound, match="task"):
        store.forget(task_id="never")
    with pytest.raises(BadInput, match="exactly one"):
        store.forget("a", task_id="b")


@pytest.mark.parametrize(("length", "cut"), [(15, False), (16, True), (17, True)])
def test_a_text_that_could_stand_there_by_chance_is_left_in_other_bodies(
    store: Store, add: Add, length: int, cut: bool
) -> None:
    text = "pelican-pelican-pelican"[:length]
    store.append(Event(type="note", data={"seen": f"it says {text}!"}))
    (result,) = store.commit("default", [add(text)], actor="t").results
    done = store.forget(str(result.record_id), purge=True)
    assert (done.bodies, done.quoted) == (1, {"note": 1} if cut else {})
    assert store.events(type="note")[0].data == {"seen": f"it says {'[erased]' if cut else text}!"}


def test_a_preview_says_what_would_be_done_and_does_nothing(secretive: tuple[Store, str, str]) -> None:
    store, bad, _ = secretive
    told = [store.forget_preview(bad, purge=purge) for purge in (False, True)]
    assert store.get(bad) is not None
    assert (told[0].bodies, told[0].quoted, told[0].runs) == (0, {}, ())
    assert (told[1].bodies, told[1].records) == (2, (bad,))
    assert store.events(type="forgotten") == []
    assert store.forget(bad, purge=True) == told[1]
    with pytest.raises(NotFound, match="no record"):
        store.forget_preview("nobody")


def test_the_runs_and_arms_of_a_forgotten_task_are_named(store: Store) -> None:
    for run, arm in (("r2", "main"), ("r1", "main"), ("r1", "no_memory"), ("", "main")):
        store.add_trajectory(Trajectory(task=Task(id="t1", instruction="the pelican task"), run_id=run, arm=arm))
    store.add_trajectory(Trajectory(task=Task(id="t2", instruction="like the pelican task"), run_id="r3"))
    told = store.forget_preview(task_id="t1", purge=True)
    assert (told.runs, told.episodes, told.records) == (("r1", "r2", "r3"), {"main": 3, "no_memory": 1}, ())
    assert told.quoted == {"trajectory": 1}
    assert store.forget_preview(task_id="t1").runs == ("r1", "r2")


def test_no_vector_of_a_forgotten_record_is_kept(store: Store, add: Add) -> None:
    ids = [str(r.record_id) for r in store.commit("default", [add(MARK), add("harmless")], actor="t").results]
    store.forget(ids[0])
    assert store.db.execute("SELECT DISTINCT record_id FROM embeddings").fetchall() == [(ids[1],)]
    assert store.db.execute("SELECT action FROM outbox WHERE record_id = ?", (ids[0],)).fetchall()[-1] == ("remove",)


def test_a_text_that_another_namespace_forgot_is_refused_without_a_word_about_it(store: Store, add: Add) -> None:
    (made,) = store.commit("other", [add("The vault opens with azure.")], actor="t").results
    store.forget(made.record_id, reason="it named the vault's word")
    (refused,) = store.commit("default", [add("The vault opens with azure.")], actor="t").refused
    assert refused.reason.startswith("this text was forgotten; to write it")
    (own,) = store.commit("other", [add("The vault opens with azure.")], actor="t").refused
    assert f"with record {made.record_id!r} (it named the vault's word)" in own.reason


def test_a_purge_of_a_task_leaves_the_replies_of_another_one_that_say_the_same(store: Store) -> None:
    same = {"text": "complete_task() is all that is left to do"}
    for task in ("A", "B"):
        store.put_reply(f"key {task}", same, run_id="r", task_id=task)
        asked = Task(id=task, instruction=f"What task {task} asks for")
        store.add_trajectory(Trajectory(id=task, task=asked, run_id="r"))
    store.put_reply("own", {"text": "said for A alone"}, run_id="r", task_id="A")
    store.forget(task_id="A", purge=True)
    assert [store.get_reply(key) for key in ("key A", "own", "key B")] == [None, None, same]
    assert not stands(store, "said for A alone")
    assert store.doctor() == []
    store.forget(task_id="B", purge=True)
    assert not stands(store, same["text"])


def test_a_text_is_found_in_json_that_spells_it_in_ascii(store: Store, add: Add) -> None:
    text = "Für Überweisungen nach München zuerst den Kontostand prüfen"
    (result,) = store.commit("default", [add(text)], actor="t").results
    once = json.dumps({"note": text})
    told = (once, json.dumps([once]), json.dumps(json.dumps(text, ensure_ascii=False)))
    steps = tuple(Step(index=at, action="look()", observation=each) for at, each in enumerate(told))
    store.add_trajectory(Trajectory(id="tr", task=Task(id="T", instruction="i"), steps=steps))
    assert store.forget(result.record_id, purge=True).quoted == {"trajectory": 1}
    (kept,) = store.trajectories()
    assert not any("nchen" in step.observation for step in kept.steps)
    assert store.doctor() == []


def test_a_purge_empties_the_cache_of_vectors(reopen: Callable[..., Store], add: Add) -> None:
    class Slow(HashingEmbedder):
        model = "slow"

    with reopen(embedder=Slow()) as store:
        store.commit("default", [add("a rule about pelicans and vaults", "t1")], actor="t")
        store.recall(RecallQuery(text="open the vault of the pelican for Ann"))
        before = store.journal.query("SELECT count(*) FROM embedding_cache")
        store.forget(task_id="t1", purge=True)
        assert before > [(0,)] == store.journal.query("SELECT count(*) FROM embedding_cache")


def test_a_purge_leaves_the_reason_that_another_record_was_written_for(store: Store, add: Add) -> None:
    shared = "imported from skills:pack"
    ops = [add(MARK, reason=shared), add("harmless", reason=shared), add(f"{MARK} too", reason="a reason of its own")]
    bad, good, _ = (str(r.record_id) for r in store.commit("default", ops, actor="t").results)
    assert store.forget(bad, purge=True).bodies == 3, "two texts and the reason of its own"
    assert store.blame(good).data["reason"] == shared
    assert not stands(store, "a reason of its own")
    assert store.doctor() == []
    store.forget(good, purge=True)
    assert store.blame(good).data["reason"] == shared, "it is that of the first record as well"


def test_a_purge_erases_the_reason_that_only_forgotten_records_share(store: Store, add: Add) -> None:
    ops = [add(MARK, reason="said by the guard"), add(f"{MARK} too", reason="said by the guard")]
    bad, _ = (str(r.record_id) for r in store.commit("default", ops, actor="t").results)
    assert store.forget(bad, purge=True).bodies == 3
    assert not stands(store, "said by the guard")
    assert store.doctor() == []


def test_a_reason_of_several_records_that_quotes_the_text_is_cut(store: Store, add: Add) -> None:
    ops = [add(MARK, reason=f"since {MARK}"), add("harmless", reason=f"since {MARK}")]
    bad, good = (str(r.record_id) for r in store.commit("default", ops, actor="t").results)
    store.forget(bad, purge=True)
    assert store.blame(good).data["reason"] == "since [erased]"
    assert not stands(store, "pelican")
    assert store.doctor() == []


def test_the_namespaces_that_learned_from_a_task_are_named(store: Store, add: Add) -> None:
    for namespace in ("default", "shop"):
        store.commit(namespace, [add(f"of {namespace}", "t1")], actor="t")
    assert store.forget_preview(task_id="t1").namespaces == ("default", "shop")
    assert store.forget(task_id="t1").namespaces == ("default", "shop")


def played(task: str, *heard: str, asked: str = ASKED) -> Trajectory:
    """Return an episode of a task in which this was observed."""
    steps = tuple(Step(index=at, action="act()", observation=each) for at, each in enumerate(heard))
    return Trajectory(id=f"episode-{task}", task=Task(id=task, instruction=asked), steps=steps)


def test_what_several_tasks_share_takes_no_other_record_along(store: Store) -> None:
    said = {task: (ASKED, f"the pelican of {task} is fed", HEARD) for task in ("t1", "t2")}
    ops = [
        DeltaOp(op=Op.ADD, kind="parts", payload={"parts": parts}, provenance=Provenance(task_ids=(task,)))
        for task, parts in said.items()
    ]
    first, second = (str(result.record_id) for result in store.commit("default", ops, actor="t").results)
    for task, parts in said.items():
        store.add_trajectory(played(task, *parts[1:]))
    done = store.forget(first, purge=True)
    assert (done.records, done.quoted) == ((first,), {"trajectory": 1})
    assert not stands(store, said["t1"][1])
    heard = [(each.instruction, *(step.observation for step in each.steps)) for each in store.trajectories()]
    assert heard == [(ASKED, "[erased]", HEARD), said["t2"]]
    kept = store.get(second)
    assert kept is not None
    assert kept.payload.parts == said["t2"]
    assert store.doctor() == []


@pytest.mark.parametrize("twice", [False, True])
def test_an_instruction_that_several_tasks_share_is_not_cut_out_of_the_others(
    store: Store, add: Add, twice: bool
) -> None:
    for task in ("t1", "t2"):
        store.add_trajectory(played(task, f"the pelican of {task}"))
    store.put_run("r1", {"asked": ASKED})
    (other,) = store.commit("default", [add(f"{ASKED} Look twice.", "t2")], actor="t").results
    if twice:  # what was forgotten without a purge is purged later
        store.forget(task_id="t1")
    store.forget(task_id="t1", purge=True)
    assert not stands(store, "the pelican of t1")
    assert [each.task.instruction for each in store.trajectories()] == ["[erased]", ASKED]
    assert store.runs() == [{"run_id": "r1", "asked": ASKED}]
    assert store.get(str(other.record_id)) is not None
    assert store.forget(task_id="t2", purge=True).records == (other.record_id,)
    assert not stands(store, ASKED), "t2 was the last to say it"
    assert store.doctor() == []


def test_all_that_a_record_says_is_followed_whoever_else_says_it(store: Store, add: Add) -> None:
    for task in ("t1", "t2"):
        store.add_trajectory(played(task, MARK))
    (made,) = store.commit("default", [add(MARK)], actor="t").results
    assert store.forget(made.record_id, purge=True).quoted == {"trajectory": 2}
    assert not stands(store, "pelican")


def test_a_record_that_quotes_the_instruction_of_a_purged_task_goes_with_it(store: Store, add: Add) -> None:
    asked = "Pay Ann the thirty pelican euros"
    store.add_trajectory(played("t1", asked=asked))
    quoting, kept = store.commit("default", [add(f"If asked: {asked}, refuse.", "t2"), add("kept")], actor="t").results
    assert store.forget_preview(task_id="t1").records == (), "without a purge no text is followed"
    assert store.forget(task_id="t1", purge=True).records == (quoting.record_id,)
    assert not stands(store, "pelican")
    assert records_with(store, "pelican") == []
    assert [record.id for record in store.view("default").records()] == [kept.record_id]
    assert store.doctor() == []


@pytest.mark.sqlite
def test_a_writer_that_keeps_the_file_busy_is_reported_as_what_it_is(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory.sqlite.database, "BUSY_SECONDS", 0.1)
    with Store.open(path, embedder=HashingEmbedder(), index="exact") as store:
        with closing(sqlite3.connect(path, isolation_level=None)) as writer:
            writer.execute("BEGIN IMMEDIATE")
            with pytest.raises(JournalError, match=r"gone from every table.*forget the same once more") as caught:
                scrub(store.journal)
            assert "nothing was written" not in str(caught.value)
        scrub(store.journal)
