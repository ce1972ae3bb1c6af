"""Overview: does it learn, what did it learn last, at what cost, and what needs a person."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from evolve.episode.arms import MAIN, NO_MEMORY
from evolve.episode.metrics import interval
from evolve.gates.account import account
from evolve.gates.decision_ledger import spent
from evolve.gates.review_queue import proposals
from evolve.generations.workspace_registry import FOLDER, live_generation
from evolve.inspector.headline import difference, held_out, history, latest, latest_exams, told_runs
from evolve.inspector.page_context import At, PageContext
from evolve.inspector.rendering import chart, show
from evolve.loop.curve import WINDOW, moving_mean, solved_so_far
from evolve.loop.history import CHANGES, STALE, RunSummary, run_episodes
from evolve.loop.runs import RESUMABLE, STOPPED
from memory import paging
from memory.errors import EvolveError
from memory.paging import EpisodeLine
from memory.records import RECALLABLE
from policies.generations.generation_records import Generation
from policies.generations.generation_registry import DATABASE

router = APIRouter()

LATEST = 8
"""Changes of knowledge that are listed."""
ROWS = 6
"""Runs that are listed."""


@router.get("/")
def overview(request: Request, desk: At) -> HTMLResponse:
    """Show the workspace at a glance."""
    return show(request, "overview.html", data(desk))


def data(desk: PageContext) -> dict[str, Any]:
    """Return held-out success, the figures of the latest run with a curve, and the state of the workspace."""
    journal = desk.store.journal
    known = paging.counts(journal, desk.namespace)
    lately, exams = latest(desk.store), held_out(latest_exams(desk.store))
    run, last = told_runs(desk.store)
    episodes = run_episodes(desk.store, run.run_id) if run else []
    newer = last if last and run and last.run_id != run.run_id else None
    of_last = run_episodes(desk.store, newer.run_id) if newer else episodes
    policy = _live(desk)
    pending = len(proposals(desk.store, desk.namespace))
    return {
        "run": run,
        "newer": newer,
        "held_out": exams,
        "difference": difference(desk.store, exams),
        "history": history(lately),
        "lately": lately[:ROWS],
        "curve": curve(episodes),
        "halves": halves(episodes),
        "totals": totals(episodes),
        "gates": account(desk.store, run.run_id).counts if run else (),
        "spent": spent(desk.store, run.run_id, _ratio(desk, run.run_id)) if run else None,
        "known": {kind: _in_use(of) for kind, of in known.items()},
        "pending": pending,
        "policy": policy,
        "changes": _changes(desk),
        "alerts": _alerts(last, of_last, pending, policy),
    }


def curve(episodes: Sequence[EpisodeLine]) -> str:
    """Return the success of the stream as a chart; empty before the first task.

    From `WINDOW` tasks on a moving mean that begins when its first window is full, with the control's mean as a line;
    before that the number of tasks solved so far.
    """
    passed = [each.success for each in episodes if each.arm == MAIN]
    control = [each.success for each in episodes if each.arm == NO_MEMORY]
    if not passed:
        return ""
    tasks = list(range(1, len(passed) + 1))
    if len(passed) < WINDOW:
        return chart(f"Tasks solved so far, of {len(passed)}", tasks, {"solved": solved_so_far(passed)})
    series: dict[str, Sequence[float | None]] = {f"with memory, mean of {WINDOW} tasks": moving_mean(passed)}
    if control:
        series["without memory, all tasks"] = [100 * sum(control) / len(control)] * len(passed)
    return chart("Tasks solved", tasks, series, "%")


def halves(episodes: Sequence[EpisodeLine]) -> list[dict[str, Any]]:
    """Return success in each half of the stream and without memory, each with its 95 % interval (Wilson)."""
    main = [each.success for each in episodes if each.arm == MAIN]
    parts = {
        "first half": main[: len(main) // 2],
        "second half": main[len(main) // 2 :],
        "without memory": [each.success for each in episodes if each.arm == NO_MEMORY],
    }
    return [
        {"name": name, "share": sum(of) / len(of), "n": len(of), "interval": interval(sum(of), len(of))}
        for name, of in parts.items()
        if of
    ]


def totals(episodes: Sequence[EpisodeLine]) -> dict[str, float]:
    """Return what the episodes used in all."""
    return {
        "tokens": sum(each.tokens for each in episodes),
        "cost": sum(each.cost_usd for each in episodes),
    }


def _ratio(desk: PageContext, run_id: str) -> float:
    config = (desk.store.get_run(run_id) or {}).get("config", {})
    return config.get("gate", {}).get("calls_ratio", desk.config.gate.calls_ratio)


def _in_use(of: Mapping[str, int]) -> int:
    return sum(of.get(status, 0) for status in RECALLABLE)


def _live(desk: PageContext) -> Generation | str | None:
    """Return the live generation, why it cannot be told, or None where the configured model itself answers."""
    if not (desk.config.workspace / FOLDER / DATABASE).exists():
        return None
    try:
        return live_generation(desk.config.policy, desk.config.workspace)
    except EvolveError as error:
        return str(error)


def _changes(desk: PageContext) -> list[dict[str, Any]]:
    """Return the latest changes of knowledge, the latest first, each with the record as it stands now."""
    types = [f"knowledge.{name}" for name in CHANGES]
    seqs = paging.latest(desk.store.journal, desk.namespace, types, limit=LATEST)
    events = [desk.store.events(after=seq - 1, limit=1)[0] for seq in seqs]
    records = {record.id: record for record in desk.store.reader.load([event.subject for event in events])}
    return [
        {"event": event, "verb": event.type.removeprefix("knowledge."), "record": records.get(event.subject)}
        for event in events
    ]


def _alerts(
    run: RunSummary | None, episodes: Sequence[EpisodeLine], pending: int, policy: Generation | str | None
) -> list[str]:
    """Return what a person should know or do."""
    found: list[str] = []
    if run and run.status == STOPPED:
        found.append(f"The latest run stopped: {run.reason}. Go on with `evolve resume`.")
    if run and run.status == STALE and run.kind in RESUMABLE:
        found.append("The process of the latest run is gone. Go on with `evolve resume`.")
    main = [each for each in episodes if each.arm == MAIN]
    late = main[len(main) // 2 :]
    if len(main) > WINDOW and not any(each.shown for each in late):
        found.append("Nothing was shown in the second half of the latest run: the playbook is empty, or never fits.")
    broken = sum(bool(each.error) for each in episodes)
    if broken:
        found.append(f"{broken} episodes of the latest run ended with an error; they count as failed.")
    if pending:
        found.append(f"{pending} learned changes wait for review.")
    if isinstance(policy, str):
        found.append(policy)
    elif policy is not None and policy.metrics.get("gate.waived"):
        found.append(f"{policy.version} is live although no gate accepted it.")
    return found
