"""Storage of trajectories, reflections, evaluations, model replies and run records. Secrets are redacted.

Each is stored once: adding an id (or reply key) that is there already changes nothing, so a resumed run may repeat
itself.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from memory.content import canonical, clean, clean_body
from memory.errors import BadInput
from memory.journal import Journal
from memory.projection import Entry
from memory.records import EvalRun, Frozen, Reflection, Trajectory

M = TypeVar("M", bound=Frozen)


def add_trajectory(journal: Journal, trajectory: Trajectory) -> None:
    """Store an episode."""
    meta = {"task_id": trajectory.task.id, "arm": trajectory.arm}
    entry = Entry("trajectory", trajectory.id, run_id=trajectory.run_id, meta=meta)
    _add(journal, "trajectories", entry, clean_body(trajectory.model_dump(mode="json")))


def add_reflection(journal: Journal, reflection: Reflection) -> None:
    """Store a reflection under the run of its trajectory."""
    owner = journal.query("SELECT run_id FROM trajectories WHERE id = ?", (reflection.trajectory_id,))
    meta = {
        "task_id": reflection.task_id,
        "trajectory_id": reflection.trajectory_id,
        "parsed": int(reflection.parsed),
    }
    entry = Entry("reflection", reflection.id, run_id=owner[0][0] if owner else "", meta=meta)
    _add(journal, "reflections", entry, clean_body(reflection.model_dump(mode="json")))


def add_eval(journal: Journal, evaluation: EvalRun) -> None:
    """Store an evaluation."""
    _add(journal, "evals", Entry("eval", evaluation.id), clean_body(evaluation.model_dump(mode="json")))


def put_run(journal: Journal, run_id: str, data: dict[str, Any]) -> None:
    """Store the current state of a run; the earlier ones stay in the journal."""
    if not run_id:
        raise BadInput(f"got run id {run_id!r}; expected a non-empty one")
    body = clean_body(data)
    with journal.transaction():
        journal.write(Entry("run", run_id, run_id=run_id, content=journal.put_body(body)))


class NewReply(NamedTuple):
    """A model's reply that is to be stored."""

    key: str
    body: dict[str, Any]
    run_id: str
    task_id: str


def put_replies(journal: Journal, replies: Sequence[NewReply]) -> None:
    """Store models' replies before they are used, all or none; the first reply under a key stays.

    Where redaction changed the text, token ids and log-probabilities are dropped: they would spell the secret out.
    """
    bodies = [canonical(_safe(each.body)) for each in replies]
    keys = json.dumps([each.key for each in replies])
    with journal.transaction() as conn:
        rows = conn.execute("SELECT key FROM replies WHERE key IN (SELECT value FROM json_each(?))", (keys,))
        known = {key for (key,) in rows.fetchall()}
        for each, body in zip(replies, bodies, strict=True):
            if each.key not in known:
                known.add(each.key)
                entry = Entry("reply", each.key, run_id=each.run_id, meta={"task_id": each.task_id})
                journal.write(replace(entry, content=journal.put_body(body)))


def _safe(body: dict[str, Any]) -> dict[str, Any]:
    safe = clean(body)
    reply, said = (each.get("reply", each) for each in (body, safe))
    if said.get("text") != reply.get("text"):
        said |= {name: None for name in ("token_ids", "prompt_token_ids", "logprobs") if name in said}
    return safe


def get_reply(journal: Journal, key: str) -> dict[str, Any] | None:
    """Return the reply stored under a key, or None."""
    rows = journal.query("SELECT c.body FROM replies r JOIN content c ON c.hash = r.hash WHERE r.key = ?", (key,))
    return json.loads(rows[0][0]) if rows else None


def get_run(journal: Journal, run_id: str) -> dict[str, Any] | None:
    """Return the latest state of a run, or None."""
    rows = journal.query("SELECT c.body FROM runs r JOIN content c ON c.hash = r.hash WHERE r.run_id = ?", (run_id,))
    return json.loads(rows[0][0]) if rows else None


def runs(journal: Journal) -> list[dict[str, Any]]:
    """Return the latest state of every run, oldest run first, each with its `run_id`."""
    rows = journal.query("SELECT r.run_id, c.body FROM runs r JOIN content c ON c.hash = r.hash ORDER BY r.created_seq")
    return [{"run_id": run_id, **json.loads(body)} for run_id, body in rows]


def find(journal: Journal, model: type[M], table: str, **where: Any) -> tuple[M, ...]:
    """Return stored records of a table in the order they were added; conditions that are None do not count.

    A list stands for any of its values.
    """
    wanted = {name: value for name, value in where.items() if value is not None}
    many = {name: json.dumps(value) for name, value in wanted.items() if isinstance(value, list)}
    conditions = "".join(
        f" AND t.{name} {'IN (SELECT value FROM json_each(?))' if name in many else '= ?'}" for name in wanted
    )
    rows = journal.query(
        f"SELECT c.body FROM {table} t JOIN content c ON c.hash = t.hash WHERE 1 = 1{conditions} ORDER BY t.seq",
        tuple((wanted | many).values()),
    )
    return tuple(model.model_validate_json(body) for (body,) in rows)


def _add(journal: Journal, table: str, entry: Entry, body: str) -> None:
    """Store a clean body under an id, where there is none yet."""
    with journal.transaction() as conn:
        if conn.execute(f"SELECT 1 FROM {table} WHERE id = ?", (entry.subject,)).fetchone() is None:
            journal.write(replace(entry, content=journal.put_body(body)))
