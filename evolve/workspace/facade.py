"""A workspace in the hand of a program: what the commands do, as methods that return typed rows."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, cast

from evolve.config.model import Config
from evolve.errors import ConfigError, WorkspaceClosed
from evolve.gates.decision_ledger import GateDecision
from evolve.integrations.loop_thread import LoopThread
from evolve.lookup import named
from evolve.loop.assembly import open_store
from evolve.loop.history import RunSummary, list_runs, run_filter
from evolve.loop.report import Report, make_report
from evolve.workspace import (
    editing,
    episode_rows,
    exchange,
    forgetting,
    policy_versions,
    reviewing,
    running,
    upkeep,
    versions,
)
from evolve.workspace.editing import HistoryRow, KnowledgeDetail, KnowledgeRow, KnowledgeScope, SearchRow, Stats
from evolve.workspace.episode_rows import EpisodeDetail, EpisodeRow, FigureRow
from evolve.workspace.exchange import ExportedSkills, ImportedPlaybook, ImportedSkills, PlaybookFormat, SkillFormat
from evolve.workspace.forgetting import ForgottenRow
from evolve.workspace.plain_rows import Rows
from evolve.workspace.playbook_text import Playbook
from evolve.workspace.policy_versions import GenerationRow, Promoted
from evolve.workspace.reviewing import ProposalRow
from evolve.workspace.task_session import OpenTask, TaskLoop
from evolve.workspace.versions import KnowledgeDiff, SnapshotRow
from memory.doctor import Finding
from memory.records import Commit, Task
from memory.snapshots import address
from memory.store import Store

if TYPE_CHECKING:
    from evolve.archive.backup import Backup
    from evolve.archive.merging import Merged
    from evolve.compare.against import Against
    from evolve.compare.comparison import Comparison
    from evolve.compare.plan import ComparisonOptions
    from evolve.loop.session import Parts, RunResult
    from evolve.progress import Observer
    from evolve.training.promotion_gate import GenerationTrial
    from evolve.training.training_session import Trained

T = TypeVar("T")


class Workspace:
    """An open workspace; `evolve.open` makes one. A context manager that may be used from several threads.

    It writes beside runs of other processes, as the commands do. Errors are `EvolveError`s of one sentence.
    """

    def __init__(self, config: Config, parts: Parts) -> None:
        """Use `evolve.open`."""
        self.config = config
        self._parts = parts
        try:
            self._opened: Store | None = open_store(config, owner=False)
        except OSError as error:
            raise ConfigError(
                f"no workspace can be made at {str(config.workspace)!r} ({error.strerror or error}); name a folder "
                "that can be written"
            ) from error
        try:
            self._tasks = TaskLoop(self._opened, config, parts)
            """The session of its tasks."""
        except BaseException:
            self._opened.close()
            raise
        self._thread: LoopThread | None = None
        self._starting = threading.Lock()

    @property
    def path(self) -> Path:
        """The folder with its state."""
        return self.config.workspace

    def close(self, error: BaseException | None = None) -> None:
        """End the session of its tasks and close it; closing twice is allowed. `error`: why the session ended early."""
        store, self._opened = self._opened, None
        if store is None:
            return
        with self._starting:
            thread, self._thread = self._thread, None
        try:
            if thread is not None:
                try:
                    thread.submit(self._tasks.close(error)).result()
                finally:
                    thread.close()
        finally:
            store.close()

    def __enter__(self) -> Workspace:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(error)

    # --- tasks of an agent of one's own ---

    def task(self, task: Task | str, *, learning: bool = True) -> OpenTask:
        """Return a task to be done in a `with` block. Without `learning` what is known is shown, and nothing changes.

        Without a model ([policy] names one) lessons come from told errors and feedback; `task.finished.note` says what
        was learned, or why nothing was.
        """
        self._require_open()
        return OpenTask(self._tasks, task, learning, self._wait)

    @property
    def playbook(self) -> Playbook:
        """What is known and in use; printed it is a line for each record, or a sentence why there is none."""
        rows = editing.listed(self._store, self.config, bounds=False)
        return Playbook(rows, self._tasks.note)

    # --- runs of tasks of an environment ---

    def run(
        self,
        *,
        limit: int | None = None,
        seed: int | None = None,
        settings: Mapping[str, object] | None = None,
        observers: Iterable[Observer] = (),
    ) -> RunResult:
        """Work through tasks of the configured environment and learn from them, as `evolve run`.

        `settings`: `section.key` -> value, for this run only. Raises `ConfigError`, and what the run raises; what was
        learned until then is kept.
        """
        from evolve.loop.session import arun

        config = running.of_run(self._require_open(), settings or {}, limit=limit, seed=seed)
        return self._run(arun(config, parts=self._parts, observers=observers))

    def resume(self, run_id: str | None = None, *, observers: Iterable[Observer] = ()) -> RunResult:
        """Go on with a run that was killed or stopped (none named: the latest), as `evolve resume`."""
        from evolve.loop.session import aresume

        return self._run(aresume(self._require_open(), run_id, parts=self._parts, observers=observers))

    def evaluate(
        self,
        splits: Sequence[str] = (),
        *,
        memory: bool = True,
        attempts: int | None = None,
        limit: int | None = None,
        settings: Mapping[str, object] | None = None,
        observers: Iterable[Observer] = (),
    ) -> RunResult:
        """Measure what is known now on held-out tasks, as `evolve eval`; nothing is learned.

        `splits`: none = the configured ones. Without `memory` nothing that is known is shown. Raises as `run`.
        """
        from evolve.loop.session import arun

        config = running.of_evaluation(
            self._require_open(), splits, settings or {}, memory=memory, attempts=attempts, limit=limit
        )
        return self._run(arun(config, parts=self._parts, observers=observers))

    def compare(
        self,
        arms: Sequence[str],
        options: ComparisonOptions | None = None,
        *,
        folder: str | PathLike[str] | None = None,
        settings: Mapping[str, object] | None = None,
    ) -> Comparison:
        """Let several ways of learning do the same tasks and judge them on the same others, as `evolve compare`.

        An arm is `default`, a configuration file, a preset, a run or a snapshot, each with `section.key=value` pairs
        behind it. The same call goes on with a comparison that was stopped. Raises `BadInput` and `ConfigError`.
        """
        from evolve.compare.compare_session import acompare

        place = Path(folder) if folder else None
        plan, where, config = running.of_comparison(
            self._require_open(), self._parts, arms, options, place, settings or {}
        )
        return self._run(acompare(plan, where, config=config))

    def train(
        self,
        recipe: str = "run",
        *,
        settings: Mapping[str, object] | None = None,
        report: Callable[[dict[str, float]], None] | None = None,
    ) -> Trained:
        """Fine-tune the policy and publish a candidate, as `evolve train`; `report` gets the figures of each update.

        `recipe`: `sft`, `groups`, `internalise`, `dpo` and `simpo` train on the journal, `grpo`, `sage` and `r3l` by
        rollouts, `run` as [train] says. Raises `ConfigError` for another, and where a package is missing.
        """
        from evolve.training.start import start

        return start(running.of_training(self._require_open(), recipe, settings or {}), recipe, report or _silent)

    # --- generations of the policy ---

    def generations(self) -> Rows[GenerationRow]:
        """List the generations of the policy, the base first; none before anything was trained."""
        return policy_versions.generations(self._require_open())

    def gate_generation(self, version: str, *, allow_missing: bool = False) -> GenerationTrial:
        """Measure a generation beside the live one on held-out tasks, as `evolve policy gate`.

        `allow_missing`: also where another world of the workspace cannot be opened any more. Raises `NotFound`, and
        `BadInput` for such a world.
        """
        from evolve.training.promotion_gate import judged

        return self._run(asyncio.to_thread(judged, self._require_open(), version, allow_missing=allow_missing))

    def promote(self, version: str, *, unmeasured: bool = False) -> Promoted:
        """Let a generation that the gate accepted answer from now on, once it passed its canary.

        `unmeasured`: also one that the gate did not accept; the history says so. Raises `NotFound`, and `PolicyRefused`
        with the reason.
        """
        return self._run(policy_versions.promote(self._require_open(), version, unmeasured=unmeasured))

    def rollback_generation(self, reason: str = "") -> Promoted:
        """Let the generation before the live one answer again, as `evolve policy rollback`. Raises as `promote`."""
        return policy_versions.rollback(self._require_open(), reason)

    # --- what was learned ---

    def knowledge(self, show: KnowledgeScope = "in use", *, kind: str = "") -> Rows[KnowledgeRow]:
        """List what was learned: what is in use, what is quarantined, or all. `kind`: `bullet`, `note`, `skill` ..."""
        return editing.listed(self._store, self.config, show=show, kind=kind)

    def search(self, text: str, k: int = 10) -> Rows[SearchRow]:
        """Return what a task with this text would recall, at most `k`, best first."""
        return editing.searched(self._store, self.config, text, k)

    def show(self, name: str) -> KnowledgeDetail:
        """Return one record whole, by number (`12`), label (`shr-00012`), id, or name of a skill. Raises `NotFound`."""
        return editing.detail(self._store, self.config, name)

    def add(self, content: str, *, section: str = "", pin: bool = True, allow_forgotten: bool = False) -> Commit:
        """Add a rule by hand; `pin` keeps it in every prompt. Raises `BadInput` where it is refused."""
        section = section or editing.DEFAULT_SECTION
        return editing.applied(
            editing.add(
                self._store, self._namespace, content, section=section, pin=pin, allow_forgotten=allow_forgotten
            )
        )

    def edit(self, name: str, content: str) -> Commit:
        """Change a bullet's text or a skill's code; the old version stays in the journal.

        Of a note or exemplar `content` is a JSON object of the fields to change. Raises `NotFound`, and `BadInput`.
        """
        return editing.applied(editing.edit(self._store, self._namespace, name, content))

    def retire(self, name: str) -> Commit:
        """Take a record out of all prompts; `restore` brings it back. Raises `NotFound`, and `BadInput`."""
        record = named(self._store, self._namespace, name)
        return editing.applied(editing.retire(self._store, self._namespace, record))

    def restore(self, name: str) -> Commit:
        """Bring a retired or quarantined record into prompts, on your word. Raises `NotFound`, and `BadInput`."""
        record = named(self._store, self._namespace, name)
        return editing.applied(editing.restore(self._store, self._namespace, record))

    def blame(self, name: str, *, everything: bool = False) -> Rows[HistoryRow]:
        """Return who wrote and changed a record, from which run and tasks; with `everything` each use as well."""
        return editing.history(self._store, self.config, name, everything=everything)

    def stats(self) -> Stats:
        """Count what the workspace holds."""
        return editing.stats(self._store, self.config)

    # --- changes that wait for a person, and what the gates said ---

    def proposals(self, *, everything: bool = False) -> Rows[ProposalRow]:
        """List learned changes that wait for you (gate `review`), oldest first; with `everything` also decided ones."""
        return reviewing.proposals(self._store, self._namespace, everything=everything)

    def accept(self, number: int | str, content: str | None = None) -> Commit:
        """Apply a proposal, with `content` in your own words. Raises `NotFound`, and `BadInput` where it is refused."""
        return editing.applied(reviewing.accept(self._store, str(number), content))

    def reject(self, number: int | str, reason: str = "") -> None:
        """Turn a proposal down. Raises `NotFound`, and `BadInput` where it was decided before."""
        reviewing.reject(self._store, str(number), reason)

    def defer(self, number: int | str, reason: str = "") -> None:
        """Put a proposal off: it waits on, after all others. Raises as `reject`."""
        reviewing.defer(self._store, str(number), reason)

    def gate_log(self, run_id: str | None = None, *, gate: str = "", rejected: bool = False) -> Rows[GateDecision]:
        """List what each gate said about each change of a run (none named: the latest). Raises `NotFound`."""
        return upkeep.gate_log(self._store, run_id, gate=gate, rejected=rejected)

    # --- versions ---

    def snapshot(self) -> str:
        """Freeze what is known now; return its name, for `diff`, `rollback` and `run.snapshot`."""
        return address(self._store.snapshot(self._namespace))

    def snapshots(self, limit: int = 20) -> Rows[SnapshotRow]:
        """List the latest versions of what is known, newest last, with the runs that began or ended there."""
        return versions.snapshots(self._store, self._namespace, limit)

    def diff(self, a: str, b: str | None = None) -> KnowledgeDiff:
        """Return what changed from snapshot `a` to `b`, or until now. Raises `NotFound`."""
        return versions.diff(self._store, self._namespace, a, b)

    def rollback(self, snapshot: str) -> Commit:
        """Make an earlier snapshot the live one; journalled, and can itself be rolled back. Raises `NotFound`."""
        return versions.rollback(self._store, self._namespace, snapshot)

    def forget(
        self, record: str | None = None, *, task: str | None = None, purge: bool = False, reason: str = ""
    ) -> ForgottenRow:
        """Forget a record, or a task with all that was drawn from it, without asking: `forget_preview` says what.

        `purge` erases the text everywhere, for good. Raises `NotFound`, and `BadInput` unless one of both is named.
        """
        gone = forgetting.forget(self._store, self.config, record, task=task, purge=purge, reason=reason)
        return forgetting.as_row(gone)

    def forget_preview(
        self, record: str | None = None, *, task: str | None = None, purge: bool = False
    ) -> ForgottenRow:
        """Return what `forget` would take, and change nothing. Raises as `forget`."""
        return forgetting.as_row(forgetting.preview(self._store, self.config, record, task=task, purge=purge))

    # --- in and out ---

    def export_playbook(self, form: PlaybookFormat = "ace") -> str:
        """Return the live playbook in a format of others."""
        return exchange.export_playbook(self._store, self._namespace, form)[0]

    def import_playbook(
        self, file: str | PathLike[str], *, form: PlaybookFormat | None = None, trust: bool = False
    ) -> ImportedPlaybook:
        """Bring in a playbook of others: quarantined, or with `trust` shown at once. Raises `BadInput`."""
        return exchange.import_playbook(self._store, self.config, Path(file), form=form, trust=trust)

    def export_skills(self, folder: str | PathLike[str], names: Sequence[str] = ()) -> ExportedSkills:
        """Write skills in use as Agent Skills, a folder each. Raises `NotFound`."""
        named = running.several(names, "names")
        return exchange.export_skills(self._store, self.config, Path(folder), named)

    def import_skills(self, path: str | PathLike[str], form: SkillFormat | None = None) -> ImportedSkills:
        """Bring in skills of others, quarantined. Raises `NotFound`, and `BadInput`."""
        return exchange.import_skills(self._store, self._namespace, Path(path), form)

    def merge(self, place: str | PathLike[str], *, namespace: str | None = None) -> Merged:
        """Take what another workspace has in use into this one, quarantined; what contradicts waits for a person.

        `place`: as in `evolve.open`. `namespace`: that of the other one, none named = its configured one. Raises
        `NotFound` where there is none, and `BadInput`.
        """
        return exchange.merge_place(self._store, self.config, place, namespace)

    def export_workspace(self, archive: str | PathLike[str]) -> str:
        """Write all of it into one archive (.tar.gz), which `evolve init --from` takes up; return its sha256."""
        from evolve.archive.transfer import export_workspace

        return export_workspace(self._require_open(), Path(archive))

    def backup(self, folder: str | PathLike[str] | None = None) -> Backup:
        """Copy the workspace into a dated folder while it is in use, and check the copy (default: `backups/`)."""
        from evolve.archive.backup import make_backup

        return make_backup(self._require_open(), Path(folder) if folder else None)

    def doctor(self, *, rebuild: bool = False) -> Rows[Finding]:
        """Check database and vector index, and mend the index; `rebuild` makes the tables again from the journal."""
        return upkeep.doctor(self._require_open(), rebuild=rebuild)

    # --- what happened ---

    def runs(
        self,
        kinds: Sequence[str] = (),
        *,
        tag: str = "",
        name: str = "",
        since: str = "",
        until: str = "",
        limit: int = 50,
    ) -> Rows[RunSummary]:
        """List the latest runs, evaluations, comparisons and sessions, the newest last; dates as 2026-11-22."""
        wanted = run_filter(running.several(kinds, "kinds"), tag=tag, name=name, since=since, until=until)
        return Rows(reversed(list_runs(self._store, wanted, limit=limit)[0]))

    def episodes(self, run_id: str, *, failed: bool = False, limit: int = 50) -> Rows[EpisodeRow]:
        """List the latest episodes of a run; with `failed` only those that were not solved."""
        return episode_rows.episodes(self._store, run_id, failed=failed, limit=limit)

    def episode(self, episode: str) -> EpisodeDetail:
        """Return one episode whole, with what was reflected on it. Raises `NotFound`."""
        return episode_rows.episode(self._store, episode)

    def report(self, run_id: str | None = None) -> Report:
        """Return what a run came to (none named: the latest that learned). Raises `NotFound`."""
        return make_report(self._store, run_id)

    def figures(self, run_id: str | None = None) -> Rows[FigureRow]:
        """Return the report of a run as rows: its halves, the whole, the control, and each evaluation."""
        return episode_rows.figures(self.report(run_id))

    def compare_runs(self, first: str, second: str) -> Against:
        """Return two runs beside each other, task by task where they share tasks. Raises `NotFound`."""
        from evolve.compare.against import against

        return against(self._store, first, second)

    # --- the rest ---

    @property
    def _store(self) -> Store:
        self._require_open()
        return cast(Store, self._opened)

    def _require_open(self) -> Config:
        """Return the configuration. Raises `WorkspaceClosed`."""
        if self._opened is None:
            raise WorkspaceClosed(f"the workspace {str(self.path)!r} is closed; open it again with evolve.open(...)")
        return self.config

    @property
    def _namespace(self) -> str:
        return self.config.memory.namespace

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what a coroutine comes to: in this thread, or where a loop runs here in one of its own."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(work)
        return self._wait(work)

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what a coroutine comes to in the thread of the session."""
        with self._starting:
            if self._opened is None:
                work.close()
                self._require_open()
            if self._thread is None:
                self._thread = LoopThread("evolve-workspace")
            future = self._thread.submit(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise


def session_of(workspace: Workspace) -> TaskLoop:
    """Return the session of a workspace's tasks, for its twin."""
    return workspace._tasks  # pyright: ignore[reportPrivateUsage] - of this module


def _silent(figures: dict[str, float]) -> None:
    pass
