"""The twin of `Workspace` for code in an event loop: the same methods, each to be awaited.

Tasks, runs and comparisons go on in the caller's loop; what reads or writes the database does it in a worker thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import wraps
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from evolve.config.model import Config
from evolve.errors import WorkspaceClosed
from evolve.workspace import running
from evolve.workspace.facade import Workspace, session_of
from evolve.workspace.playbook_text import Playbook
from evolve.workspace.task_session import AsyncOpenTask
from memory.records import Task

if TYPE_CHECKING:
    from evolve.compare.comparison import Comparison
    from evolve.compare.plan import ComparisonOptions
    from evolve.loop.session import Parts, RunResult
    from evolve.progress import Observer

P = ParamSpec("P")
R = TypeVar("R")


def in_thread(
    method: Callable[Concatenate[Workspace, P], R],
) -> Callable[Concatenate[AsyncWorkspace, P], Coroutine[Any, Any, R]]:
    """Return a method of `Workspace` as one that is awaited; it works in a thread."""

    @wraps(method)
    async def awaited(self: AsyncWorkspace, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await asyncio.to_thread(method, self.sync, *args, **kwargs)

    return awaited


class AsyncWorkspace:
    """A workspace for code in an event loop; `evolve.aopen` makes one. Opened by `async with`."""

    def __init__(self, config: Config, parts: Parts) -> None:
        """Use `evolve.aopen`."""
        self.config = config
        self._parts = parts
        self._sync: Workspace | None = None

    @property
    def sync(self) -> Workspace:
        """The same workspace, for what is quick enough to wait for."""
        if self._sync is None:
            raise WorkspaceClosed("the workspace is not open; use `async with evolve.aopen(...) as memory`")
        return self._sync

    @property
    def path(self) -> Path:
        """The folder with its state."""
        return self.config.workspace

    async def __aenter__(self) -> AsyncWorkspace:
        self._sync = await asyncio.to_thread(Workspace, self.config, self._parts)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close(error)

    async def close(self, error: BaseException | None = None) -> None:
        """End the session of its tasks and close it; closing twice is allowed. `error`: why the session ended early."""
        sync, self._sync = self._sync, None
        if sync is not None:
            try:
                await session_of(sync).close(error)
            finally:
                await asyncio.to_thread(sync.close)

    def task(self, task: Task | str, *, learning: bool = True) -> AsyncOpenTask:
        """Return a task to be done in an `async with` block, as `Workspace.task`."""
        return AsyncOpenTask(session_of(self.sync), task, learning)

    async def playbook(self) -> Playbook:
        """Return what is known and in use, as `Workspace.playbook`."""
        return await asyncio.to_thread(lambda: self.sync.playbook)

    async def run(
        self,
        *,
        limit: int | None = None,
        seed: int | None = None,
        settings: Mapping[str, object] | None = None,
        observers: Iterable[Observer] = (),
    ) -> RunResult:
        """Work through tasks and learn from them, as `Workspace.run`."""
        from evolve.loop.session import arun

        config = running.of_run(self.sync.config, settings or {}, limit=limit, seed=seed)
        return await arun(config, parts=self._parts, observers=observers)

    async def resume(self, run_id: str | None = None, *, observers: Iterable[Observer] = ()) -> RunResult:
        """Go on with a run that was killed or stopped, as `Workspace.resume`."""
        from evolve.loop.session import aresume

        return await aresume(self.sync.config, run_id, parts=self._parts, observers=observers)

    async def evaluate(
        self,
        splits: Sequence[str] = (),
        *,
        memory: bool = True,
        attempts: int | None = None,
        limit: int | None = None,
        settings: Mapping[str, object] | None = None,
        observers: Iterable[Observer] = (),
    ) -> RunResult:
        """Measure what is known now on held-out tasks, as `Workspace.evaluate`."""
        from evolve.loop.session import arun

        config = running.of_evaluation(
            self.sync.config, splits, settings or {}, memory=memory, attempts=attempts, limit=limit
        )
        return await arun(config, parts=self._parts, observers=observers)

    async def compare(
        self,
        arms: Sequence[str],
        options: ComparisonOptions | None = None,
        *,
        folder: str | PathLike[str] | None = None,
        settings: Mapping[str, object] | None = None,
    ) -> Comparison:
        """Let several ways of learning do the same tasks and judge them, as `Workspace.compare`."""
        from evolve.compare.compare_session import acompare

        place = Path(folder) if folder else None
        plan, where, config = running.of_comparison(self.sync.config, self._parts, arms, options, place, settings or {})
        return await acompare(plan, where, config=config)

    train = in_thread(Workspace.train)
    generations = in_thread(Workspace.generations)
    gate_generation = in_thread(Workspace.gate_generation)
    promote = in_thread(Workspace.promote)
    rollback_generation = in_thread(Workspace.rollback_generation)
    proposals = in_thread(Workspace.proposals)
    accept = in_thread(Workspace.accept)
    reject = in_thread(Workspace.reject)
    defer = in_thread(Workspace.defer)
    gate_log = in_thread(Workspace.gate_log)
    backup = in_thread(Workspace.backup)
    doctor = in_thread(Workspace.doctor)
    knowledge = in_thread(Workspace.knowledge)
    search = in_thread(Workspace.search)
    show = in_thread(Workspace.show)
    add = in_thread(Workspace.add)
    edit = in_thread(Workspace.edit)
    retire = in_thread(Workspace.retire)
    restore = in_thread(Workspace.restore)
    blame = in_thread(Workspace.blame)
    stats = in_thread(Workspace.stats)
    snapshot = in_thread(Workspace.snapshot)
    snapshots = in_thread(Workspace.snapshots)
    diff = in_thread(Workspace.diff)
    rollback = in_thread(Workspace.rollback)
    forget = in_thread(Workspace.forget)
    forget_preview = in_thread(Workspace.forget_preview)
    export_playbook = in_thread(Workspace.export_playbook)
    import_playbook = in_thread(Workspace.import_playbook)
    export_skills = in_thread(Workspace.export_skills)
    merge = in_thread(Workspace.merge)
    import_skills = in_thread(Workspace.import_skills)
    export_workspace = in_thread(Workspace.export_workspace)
    runs = in_thread(Workspace.runs)
    episodes = in_thread(Workspace.episodes)
    episode = in_thread(Workspace.episode)
    report = in_thread(Workspace.report)
    figures = in_thread(Workspace.figures)
    compare_runs = in_thread(Workspace.compare_runs)
