"""The one door to a workspace's knowledge: records, snapshots, recall, journal, episodes, upkeep.

Threads: a `Store` may be shared by async code in one thread and by worker threads; each method holds `store.lock`
while it touches the database, and embedding happens before that. Processes: each opens its own `Store` (never share
one over a fork); writers wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from memory import doctor, episodes, events, forget, snapshots
from memory.blobs import check_embedder
from memory.changes import Batch
from memory.deltas import commit
from memory.embedding_cache import CachedEmbedder, reindex
from memory.index_place import erase_unowned, find_place
from memory.indexes import FOLDER
from memory.journal import Journal
from memory.knowledge import has_prefix, number_of
from memory.live_index import LiveIndex
from memory.proposals import Prepared, prepare
from memory.protocols import Embedder, KnowledgeView
from memory.recall import Recaller
from memory.records import (
    Commit,
    DeltaOp,
    EvalRun,
    Event,
    Recalled,
    RecallQuery,
    Record,
    Reflection,
    Snapshot,
    Trajectory,
)
from memory.view import Reader, View


def estimate_tokens(text: str) -> int:
    """Return a rough token count (four characters each) for stores opened without a tokenizer."""
    return (len(text) + 3) // 4


class Store:
    """An open workspace."""

    def __init__(
        self, journal: Journal, embedder: Embedder, index: LiveIndex, count_tokens: Callable[[str], int]
    ) -> None:
        """Use `Store.open`."""
        self.journal, self.embedder, self.index = journal, embedder, index
        self.count_tokens = count_tokens
        self.lock, self.db = journal.lock, journal.conn
        self.reader = Reader(journal)
        self._recaller = Recaller(journal, self.reader, embedder, index, count_tokens)

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        embedder: Embedder,
        index: str = FOLDER,
        read_only: bool = False,
        owner: bool = True,
        count_tokens: Callable[[str], int] = estimate_tokens,
    ) -> Store:
        """Open or create the workspace database at `path` (a file; Chroma's folder lives beside it in `index/`).

        `index` is a file of `memory.indexes`, with the address of its server after a colon. With `chroma` and `owner`
        this process keeps the folder; others open with `owner=False`, search exactly and leave updates to it. Raises
        `SchemaTooNew`, `NotFound` (missing, with `read_only`), `JournalError`, and `IndexLocked` when another process
        owns the folder.
        """
        journal = Journal(path, read_only=read_only)
        return cls.over(journal, embedder=embedder, index=index, owner=owner, count_tokens=count_tokens)

    @classmethod
    def over(
        cls,
        journal: Journal,
        *,
        embedder: Embedder,
        index: str = FOLDER,
        owner: bool = True,
        count_tokens: Callable[[str], int] = estimate_tokens,
    ) -> Store:
        """Return a store over an open journal, which it closes; where it raises, the journal is closed.

        Raises `BadInput` for an index that cannot be kept beside such a journal, and `IndexLocked`, as `open`.
        """
        try:
            place = find_place(index, journal, model=embedder.model, dim=embedder.dim, owner=owner)
        except BaseException:
            journal.close()
            raise
        cached = CachedEmbedder(embedder, journal, persist=not embedder.model.startswith("hashing"))
        return cls(journal, cached, LiveIndex(journal, place, dim=embedder.dim), count_tokens)

    def close(self) -> None:
        """Release the index and the database; closing twice is allowed."""
        self.index.close()
        self.journal.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- knowledge ---

    def commit(
        self,
        namespace: str,
        ops: Sequence[DeltaOp] | Sequence[Prepared],
        *,
        expected_version: int | None = None,
        actor: str,
        run_id: str = "",
        data: dict[str, Any] | None = None,
    ) -> Commit:
        """Apply ops in one transaction; each is applied, or refused with a reason, on its own.

        `ops` may be what `prepare` returned.
        `expected_version` is the namespace version the ops were written against; `data` is journalled with the
        commit. An `op_id` that was applied before is reported as applied with reason `duplicate` and changes nothing.
        Raises `ConflictError` and `JournalError` as `memory.deltas.commit`, `EmbedderMismatch` as recall.
        """
        self._check_embedder()
        ready = [op for op in ops if isinstance(op, Prepared)]
        ready = ready or self.prepare([op for op in ops if isinstance(op, DeltaOp)])
        batch = Batch(namespace, ready, actor, expected_version, run_id, data)
        result = commit(self.journal, batch, model=self.embedder.model, dim=self.embedder.dim)
        self.index.wake()
        return result

    def prepare(self, ops: Sequence[DeltaOp]) -> list[Prepared]:
        """Return ops cleaned, parsed and embedded, for a `commit` inside a transaction: nobody waits for that work."""
        return prepare(ops, self.embedder)

    def view(self, namespace: str, snapshot_id: str | None = None) -> KnowledgeView:
        """Return a read-only view of the live state, or of a snapshot with its frozen usage (`NotFound`)."""
        if snapshot_id is None:
            return self.reader.view(namespace)
        return View(namespace, self.version(namespace), snapshots.frozen(self.journal, snapshot_id), self.reader.get)

    def get(self, record_id: str) -> Record[Any] | None:
        """Return a record of any status; None when there is none or it was forgotten."""
        return self.reader.get(record_id)

    def load(self, ids: Sequence[str]) -> tuple[Record[Any], ...]:
        """Return records of any status in the order of `ids`; unknown and forgotten ones are left out."""
        return self.reader.load(ids)

    def records(self, namespace: str) -> tuple[Record[Any], ...]:
        """Return every record of a namespace whatever its status, in order of creation."""
        return self.reader.everything(namespace)

    def namespaces(self) -> tuple[str, ...]:
        """Return the names of all namespaces that ever held a record."""
        return tuple(row[0] for row in self.journal.query("SELECT namespace FROM namespaces ORDER BY namespace"))

    def version(self, namespace: str) -> int:
        """Return the namespace version: it grows by one with each commit that changes knowledge (TAG does not)."""
        return self.reader.head(namespace)[0]

    def history(self, record_id: str) -> list[Event]:
        """Return every event about a record, oldest first."""
        return events.read(self.journal, subject=record_id)

    def blame(self, record_id: str) -> Event:
        """Return the event that wrote a record's present text (`NotFound`)."""
        return events.blame(self.journal, record_id)

    # --- snapshots ---

    def snapshot(self, namespace: str) -> Snapshot:
        """Freeze the recallable records of a namespace with their usage."""
        return snapshots.take(self.journal, namespace)

    def get_snapshot(self, snapshot_id: str) -> Snapshot:
        """Return a snapshot by `<id>` (its latest freeze) or `<id>@<position>` (`NotFound`)."""
        return snapshots.find(self.journal, snapshot_id)

    def snapshots(self, namespace: str) -> tuple[Snapshot, ...]:
        """Return every freeze of a namespace, oldest first."""
        return snapshots.listing(self.journal, namespace)

    def rollback(self, namespace: str, snapshot_id: str, *, actor: str) -> Commit:
        """Make a snapshot's set the live one again, as a journalled commit; usage counters stay (`NotFound`)."""
        result = snapshots.rollback(self.journal, namespace, snapshot_id, actor=actor)
        self.index.wake()
        return result

    # --- recall ---

    def recall(self, query: RecallQuery) -> tuple[Recalled, ...]:
        """Return the records that fit a query, best first; nothing is a valid answer.

        Raises `EmbedderMismatch` when another embedder made the stored vectors, `NotFound` for an unknown snapshot.
        """
        self._check_embedder()
        return self._recaller.recall(query)

    # --- journal ---

    def append(self, event: Event) -> Event:
        """Journal an event of one's own and return it with its seq (`BadInput` for the store's own types)."""
        return events.append(self.journal, event)

    def events(
        self,
        *,
        type: str | None = None,
        namespace: str | None = None,
        run_id: str | None = None,
        subject: str | None = None,
        after: int = 0,
        limit: int | None = None,
    ) -> list[Event]:
        """Return journal events in order, those that fit every condition given, with a seq above `after`."""
        return events.read(
            self.journal, after=after, limit=limit, type=type, namespace=namespace, run_id=run_id, subject=subject
        )

    def stamp(self) -> tuple[int, int]:
        """Return what changes when somebody else wrote, or something was forgotten; until then what is known holds."""
        return self.journal.stamp()

    # --- episodes ---

    def count_events(self, *, type: str, namespace: str) -> int:
        """Return how many events of a type a namespace has."""
        return events.count(self.journal, type=type, namespace=namespace)

    def event_data(self, *, type: str, namespace: str, key: str, value: str) -> list[dict[str, Any]]:
        """Return the data of the events of a type in which `key` has this value, in order; others are not parsed."""
        return events.read_data(self.journal, type, namespace, key, value)

    def ops_of(self, record_id: str) -> frozenset[str]:
        """Return the ids of the operations that changed a record."""
        return events.ops_of(self.journal, record_id)

    def records_of(self, op_ids: Sequence[str]) -> dict[str, str]:
        """Return op id -> id of the record that it changed, for those that were applied."""
        return events.records_of(self.journal, op_ids)

    def written_by(self, op_ids: Sequence[str]) -> list[tuple[str, str]]:
        """Return (record id, content hash) of each version that these operations wrote. TAG writes none."""
        return events.written_by(self.journal, op_ids)

    def add_trajectory(self, trajectory: Trajectory) -> None:
        """Store an episode; one that is stored already stays as it is."""
        episodes.add_trajectory(self.journal, trajectory)

    def trajectory(self, trajectory_id: str) -> Trajectory | None:
        """Return an episode, or None."""
        found = episodes.find(self.journal, Trajectory, "trajectories", id=trajectory_id)
        return found[0] if found else None

    def trajectories(
        self,
        run_id: str | None = None,
        task_id: str | list[str] | None = None,
        arm: str | list[str] | None = None,
        ids: list[str] | None = None,
    ) -> tuple[Trajectory, ...]:
        """Return episodes in the order they were added; those of several tasks, arms or ids take one statement."""
        where = {"run_id": run_id, "task_id": task_id, "arm": arm, "id": ids}
        return episodes.find(self.journal, Trajectory, "trajectories", **where)

    def add_reflection(self, reflection: Reflection) -> None:
        """Store a reflection under the run of its trajectory; one that is stored already stays as it is."""
        episodes.add_reflection(self.journal, reflection)

    def reflections(
        self, run_id: str | None = None, parsed: bool | None = None, ids: list[str] | None = None
    ) -> tuple[Reflection, ...]:
        """Return reflections in the order they were added."""
        return episodes.find(self.journal, Reflection, "reflections", run_id=run_id, parsed=parsed, id=ids)

    def add_eval(self, evaluation: EvalRun) -> None:
        """Store an evaluation; one that is stored already stays as it is."""
        episodes.add_eval(self.journal, evaluation)

    def evals(self) -> tuple[EvalRun, ...]:
        """Return evaluations in the order they were added."""
        return episodes.find(self.journal, EvalRun, "evals")

    def put_reply(self, key: str, reply: dict[str, Any], *, run_id: str = "", task_id: str = "") -> dict[str, Any]:
        """Store a model's reply before it is used and return what is stored: the first reply under a key stays.

        Where that was purged, the reply comes back as it is.
        """
        episodes.put_replies(self.journal, [episodes.NewReply(key, reply, run_id, task_id)])
        return self.get_reply(key) or reply

    def put_replies(self, replies: Sequence[episodes.NewReply]) -> None:
        """Store replies in one transaction, all or none; the first reply under a key stays."""
        episodes.put_replies(self.journal, replies)

    def get_reply(self, key: str) -> dict[str, Any] | None:
        """Return the reply stored under a key, or None."""
        return episodes.get_reply(self.journal, key)

    def put_run(self, run_id: str, data: dict[str, Any]) -> None:
        """Store the current state of a run."""
        episodes.put_run(self.journal, run_id, data)

    def get_run(self, run_id: str) -> dict[str, Any] | None:
        """Return the latest state of a run, or None."""
        return episodes.get_run(self.journal, run_id)

    def runs(self) -> list[dict[str, Any]]:
        """Return the latest state of every run, oldest first, each with its `run_id`."""
        return episodes.runs(self.journal)

    # --- upkeep ---

    def doctor(self, rebuild: bool = False) -> list[doctor.Finding]:
        """Return what is wrong with database and index, after rebuilding the projection from the journal if asked."""
        rebuilt = doctor.rebuild(self.journal) if rebuild else []
        if any(finding.level == "warning" for finding in rebuilt):
            self.index.rebuild()  # it followed a projection that was wrong
        in_index = doctor.examine_index(self.journal, self.index, dim=self.embedder.dim)
        return [*rebuilt, *doctor.examine(self.journal), *in_index]

    def reindex(self) -> int:
        """Embed every version anew with this store's embedder, refill the vector index; return how many there are."""
        return reindex(self.journal, self.embedder, self.index)

    def forgotten(self, namespace: str, name: str) -> str | None:
        """Return the id of a forgotten record that has this id, number or label; None where there is none."""
        rows = self.journal.query(
            "SELECT r.id, r.kind, v.slug FROM records r JOIN versions v ON v.record_id = r.id"
            " WHERE r.namespace = ? AND r.forgotten = 1 AND (r.id = ? OR r.number = ?)",
            (namespace, name, number_of(name)),
        )
        return next((found for found, *prefixes in rows if found == name or has_prefix(name, prefixes)), None)

    def forget_preview(
        self, record_id: str | None = None, *, task_id: str | None = None, purge: bool = False
    ) -> forget.Forgotten:
        """Return what `forget` would do, and change nothing. Raises as `forget`."""
        return forget.preview(self.journal, record_id, task_id, purge=purge)

    def forget(
        self, record_id: str | None = None, *, task_id: str | None = None, purge: bool = False, reason: str = ""
    ) -> forget.Forgotten:
        """Forget a record, or a task with its episodes and all records drawn from it; `purge` erases the text as well.

        The figures of the task's episodes stay. After a purge the vector index is made anew: a graph keeps what was
        taken out of it. Raises `NotFound` when there is nothing of that name, `BadInput` unless exactly one is given;
        and where all is done but for the vectors of the index: `IndexUnavailable`, or `IndexLocked` where a run has it.
        """
        result = forget.forget(self.journal, record_id, task_id, purge=purge, actor="operator", reason=reason)
        if purge:
            self.index.rebuild()
            if not self.index.state().owner:
                erase_unowned(self.journal)
        self.index.wake()
        return result

    def _check_embedder(self) -> None:
        check_embedder(self.journal, model=self.embedder.model, dim=self.embedder.dim)
