"""A run from start to finish: its record in the journal, its budget, its lock, and how it is taken up again.

The record says what was asked for and how far it came; results are in the journal's events. A run that was killed, or
that stopped at a budget or a dead server, is resumed under its first configuration: the graph goes on from
its last checkpoint, and replies that were journalled are replayed, so that none is paid for twice.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import Field, model_validator

from evolve.config.file import stored_config
from evolve.config.model import Config, ModelSection, PolicySection
from evolve.episode.arms import MAIN
from evolve.errors import ConfigError
from evolve.loop import servers
from evolve.loop.runlog import about_run, at_snapshot
from evolve.loop.state import RunContext
from evolve.seeds import id_for
from memory import paging, runlist
from memory.errors import JournalError, NotFound
from memory.locks import held
from memory.records import Event, Frozen, Reflection, Snapshot, Usage
from memory.runlist import KINDS as MODE_KINDS
from memory.runlist import RunFilter
from memory.store import Store
from policies.budget import Budget
from policies.server_settings import ServerAddress

M = TypeVar("M", bound=ModelSection)
RUNNING, STOPPED, DONE = "running", "stopped", "done"
LEARN, EVAL, QUARANTINE, COMPARE = "learn", "eval", "quarantine", "compare"
AGENT, LANGCHAIN, MCP, REST, LANGGRAPH, SESSION = "agent", "langchain", "mcp", "rest", "langgraph", "session"
KINDS = (LEARN, EVAL, QUARANTINE, COMPARE, AGENT, LANGCHAIN, MCP, REST, LANGGRAPH, SESSION)
"""What a run was: of tasks, an evaluation, a test of quarantined text, a comparison, or a session. `session` is one
that an earlier version journalled without saying of what."""
OUTSIDE = (MCP, REST)
"""Sessions of clients whose word has no weight by itself."""
RESUMABLE = (LEARN, EVAL, QUARANTINE)


class RunRecord(Frozen):
    """What is known about a run."""

    run_id: str
    kind: str = ""
    """One of `KINDS`; a record of an earlier version gets the one that its mode tells."""
    name: str = ""
    tags: tuple[str, ...] = ()
    status: str = RUNNING
    """`running` (or killed), `stopped` (resumable), `done`."""
    reason: str = ""
    mode: str = "online"
    """That of `run.mode`; of a session or a comparison its kind."""
    config: dict[str, Any] = Field(default_factory=dict)
    config_hash: str = ""
    policy: str = ""
    policy_version: str = ""
    roles: dict[str, str] = Field(default_factory=dict)
    """Role -> name and version of its policy, where that is not the acting one."""
    environment: str = ""
    tasks: tuple[str, ...] = ()
    """Ids of the stream, in its order."""
    control: tuple[str, ...] = ()
    """Ids of the tasks that are also done without memory."""
    gates: tuple[str, ...] = ()
    """The gates that `gate.names` stood for; `default` depends on the environment."""
    seconds: float = 0.0
    """Wall time until the record was last written."""
    snapshot_id: str | None = None
    """Knowledge at the end, as `<id>@<position>`."""
    client: str = ""
    """Who visited, of a session over MCP or REST."""
    folder: str = ""
    """Where a comparison keeps its lives, relative to the folder of evolve.toml where it lies inside."""

    @model_validator(mode="before")
    @classmethod
    def _kind_from_mode(cls, given: dict[str, Any]) -> dict[str, Any]:
        return given if given.get("kind") else {**given, "kind": MODE_KINDS.get(given.get("mode", ""), LEARN)}


@dataclass(frozen=True)
class Run:
    """A run under way: what the modes work with."""

    context: RunContext
    record: RunRecord
    share: float
    """Share of tasks that have a no-memory control."""
    budget: Budget

    @property
    def config(self) -> Config:
        return self.context.config

    @property
    def checkpoints(self) -> Path:
        """Return the file of the graph's checkpoints."""
        return self.config.workspace / "checkpoints.db"

    def reached(self, mark: str) -> str | None:
        """Return the address of the snapshot that was marked before, or None."""
        found = self.context.store.events(type="run.mark", subject=self.context.stream.key(mark), limit=1)
        return found[0].data["snapshot"] if found else None

    def mark(self, mark: str, snapshot: Snapshot) -> str:
        """Remember that the run came this far, and with which knowledge; return the snapshot's address."""
        address = mark_run(self.context.store, self.record.run_id, self.context.stream.key(mark), snapshot)
        at_snapshot(snapshot.id)
        return address


def mark_run(store: Store, run_id: str, subject: str, snapshot: Snapshot) -> str:
    """Journal that a run came to a snapshot; return its address."""
    address = f"{snapshot.id}@{snapshot.position}"
    data = {"snapshot": address}
    store.append(Event(type="run.mark", namespace=snapshot.namespace, run_id=run_id, subject=subject, data=data))
    return address


def load_run(store: Store, run_id: str | None = None) -> RunRecord:
    """Return a run's record: of that id, else the latest of that name; of none the latest that can be resumed.

    Raises `NotFound`.

    A session that an earlier version journalled without a record gets one from its events.
    """
    if run_id is not None:
        found = store.get_run(run_id)
        if found is not None:
            return RunRecord.model_validate({**found, "run_id": run_id})
        rows, _ = runlist.runs(store.journal, RunFilter(run_ids=(run_id,)), limit=1)
        if not rows:
            alike, _ = runlist.runs(store.journal, RunFilter(name=run_id), limit=-1)
            if called := [row.run_id for row in alike if (row.record or {}).get("name") == run_id]:
                return load_run(store, called[0])
            raise NotFound(f"no run {run_id!r} in this workspace; see `evolve logs list`")
        return RunRecord(run_id=run_id, kind=rows[0].kind, mode=rows[0].kind, status=DONE)
    unfinished = _unfinished(store)
    if not unfinished:
        raise NotFound("no unfinished run in this workspace; start one with `evolve run`")
    return unfinished[-1]


def unfinished_of(store: Store, config: Config) -> RunRecord | None:
    """Return the latest unfinished run that was begun with these settings and this name; None where there is none."""
    begun = (config.digest, config.run.name)
    return next((run for run in reversed(_unfinished(store)) if (run.config_hash, run.name) == begun), None)


def _unfinished(store: Store) -> list[RunRecord]:
    records = [RunRecord.model_validate(data) for data in store.runs() if data.get("status") != DONE]
    return [record for record in records if record.kind in RESUMABLE]


def started_with(record: RunRecord, config: Config) -> Config:
    """Return the configuration of a run's start; budget, speed, where it is kept and watched, and where the server of
    the same model is by now are `config`'s.

    Raises `ConfigError` as `stored_config` does.
    """
    kept = stored_config(record.config, config.root)
    fast = kept.run.model_copy(
        update={name: getattr(config.run, name) for name in ("concurrency", "executor", "workers")}
    )
    today: dict[str, Any] = {
        "budget": config.budget,
        "memory": kept.memory.model_copy(
            update={name: getattr(config.memory, name) for name in ("workspace", "database", "embedder", "index")}
        ),
        "telemetry": config.telemetry,
        "log": config.log,
    }
    return kept.model_copy(update={**today, "policy": served_today(kept.policy, config.policy), "run": fast})


def served_today(kept: PolicySection, today: PolicySection) -> PolicySection:
    """Return a policy and its roles with where the servers of the same models are by now, and how patient to be."""
    now = today.roles
    roles = {role: _moved(own, now[role]) for role, own in kept.roles.items() if role in now}
    return _moved(kept, today).model_copy(update=roles)


def _moved(kept: M, today: ModelSection) -> M:
    """Return a section with the address at which the same model is served today."""
    if (kept.name, kept.model) != (today.name, today.model):
        return kept
    names = (*ServerAddress.model_fields, "replicas", "slots", "patience_s")
    return kept.model_copy(update={name: getattr(today, name) for name in names})


def settings_of(store: Store, run_id: str, root: Path) -> Config | None:
    """Return the settings that a run was begun with; None where nobody knows them, or an earlier version wrote them."""
    run = store.get_run(run_id)
    try:
        return stored_config(run["config"], root) if run and run.get("config") else None
    except ConfigError:
        return None


def save_run(store: Store, record: RunRecord) -> None:
    """Journal the record's present state."""
    store.put_run(record.run_id, record.model_dump(mode="json", exclude={"run_id"}))


def spent(store: Store, run_id: str) -> Usage:
    """Return what a run's journalled model calls used, and finding out what its servers can do."""
    return sum(paging.used_by_role(store.journal, run_id).values(), servers.used(store, run_id))


def keeper(store: Store) -> Callable[[Reflection], object]:
    """Return what stores a lesson whose curation could not be parsed, once even when it is curated again."""

    def keep(reflection: Reflection) -> None:
        said = [insight.content for insight in reflection.insights]
        store.add_reflection(
            reflection.model_copy(update={"id": id_for("rf", reflection.author, reflection.trajectory_id, said)})
        )

    return keep


@contextmanager
def working_on(store: Store, run_id: str) -> Generator[None]:
    """Hold a run. Raises `JournalError` when another process works on it."""
    with store.journal.engine.lease(run_id) as mine:
        if not mine:
            raise JournalError(_taken(run_id))
        yield


@contextmanager
def exclusive(folder: Path, name: str) -> Generator[None]:
    """Hold what has no run of its own, as `working_on`, on this machine."""
    with alone(folder / "runs" / f"{name}.lock", _taken(name)):
        yield


def _taken(name: str) -> str:
    return f"run {name!r} is being worked on by another process; wait for it or stop it"


@contextmanager
def alone(file: Path, taken: str) -> Generator[None]:
    """Hold a lock. Raises `JournalError` with the text `taken` where another process holds it."""
    with held(file) as mine:
        if not mine:
            raise JournalError(taken)
        yield


@asynccontextmanager
async def recorded(store: Store, record: RunRecord, policy_version: str) -> AsyncGenerator[None]:
    """Keep the record up to date around the work: done, or stopped with the reason when an error or Ctrl-C ends it.

    What is logged meanwhile names the run.
    """
    started = time.monotonic()

    def now(**changes: Any) -> RunRecord:
        return record.model_copy(update={"seconds": record.seconds + time.monotonic() - started, **changes})

    save_run(store, now(status=RUNNING, reason=""))
    try:
        with about_run(record.run_id, policy_version):
            yield
    except BaseException as error:
        save_run(store, now(status=STOPPED, reason=_reason(store, record, error)))
        raise
    save_run(store, now(status=DONE, reason=""))


def _reason(store: Store, record: RunRecord, error: BaseException) -> str:
    """Return why a run ended, and how far it came where somebody interrupted it."""
    if isinstance(error, Exception):
        return f"{type(error).__name__}: {error}"
    done = len({episode.task.id for episode in store.trajectories(run_id=record.run_id, arm=MAIN)})
    return f"interrupted after {done} of {len(record.tasks)} tasks" if record.tasks else "interrupted"
