"""`evolve logs`: the runs of this workspace and their episodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from evolve.cli.opening import reading
from evolve.cli.output import Json, say, show, table
from memory.errors import BadInput

if TYPE_CHECKING:
    from evolve.loop.history import RunSummary

app = typer.Typer(help="Runs and episodes as they happened.", no_args_is_help=True)


@app.command("list")
def listing(
    context: typer.Context,
    run: Annotated[str | None, typer.Option(help="List the episodes of this run instead of the runs.")] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Only episodes that did not succeed.")] = False,
    kind: Annotated[
        list[str] | None,
        typer.Option(help="Only runs of this kind, as the list names it (learn, eval, mcp ...); may be repeated."),
    ] = None,
    tag: Annotated[str, typer.Option(help="Only runs with this tag.")] = "",
    name: Annotated[str, typer.Option(help="Only runs whose name contains this.")] = "",
    since: Annotated[str, typer.Option(help="Only runs that started on this date (UTC) or later.")] = "",
    until: Annotated[str, typer.Option(help="Only runs that started on this date or before.")] = "",
    limit: Annotated[int, typer.Option("-n", help="Most rows, the latest.", min=1)] = 50,
    as_json: Json = False,
) -> None:
    """List everything that happened as runs, the newest last, or the episodes of one run; of a store what was put."""
    asked = kind or tag or name or since or until
    if run is not None:
        if asked:
            raise BadInput("got --run with a filter of runs; leave --kind, --tag, --name, --since and --until out")
        _episodes(context, run, failed, limit, as_json)
        return
    if failed:
        raise BadInput("got --failed without --run; it lists episodes: name the run that they are of")
    from evolve.loop.history import list_runs, run_filter

    wanted = run_filter(kind or (), tag=tag, name=name, since=since, until=until)
    with reading(context) as (_, store):
        found, total = list_runs(store, wanted, limit=limit)
    rows = [_row(each) if as_json else _short_row(each) for each in reversed(found)]
    table(rows, as_json, empty="no run fits" if asked else "no runs yet")
    if total > len(found) and not as_json:
        say(f"{total - len(found)} earlier runs: -n {total}")


def _row(run: RunSummary) -> dict[str, Any]:
    return {"run": run.run_id, **run.model_dump(mode="json", exclude={"run_id"})}


def _short_row(run: RunSummary) -> dict[str, Any]:
    return {
        "run": run.run_id,
        "kind": run.kind,
        "name": " ".join((run.name, *(f"#{tag}" for tag in run.tags))).strip() or None,
        "started": f"{run.started:%Y-%m-%d %H:%M}",
        "status": run.status,
        "solved": None if run.success is None else f"{run.success:.0%} of {run.tasks}",
        "without": None if run.control_success is None else f"{run.control_success:.0%} of {run.control_tasks}",
        "changes": run.changes,
        "policy": run.client or run.policy,
    }


def _episodes(context: typer.Context, run: str, failed: bool, limit: int, as_json: bool) -> None:
    from evolve.loop.history import find_summary, run_changes
    from evolve.loop.runs import LANGGRAPH, load_run
    from evolve.workspace.episode_rows import episodes

    with reading(context) as (_, store):
        run = load_run(store, run).run_id
        if find_summary(store, run).kind == LANGGRAPH:
            puts = [each.model_dump(mode="json") for each in run_changes(store, run, limit=limit)]
            table(puts, as_json, empty=f"nothing was put in session {run}")
            return
        rows = episodes(store, run, failed=failed, limit=limit).rows()
    table(rows, as_json, empty=f"no episodes of run {run}")


@app.command("show")
def show_one(
    context: typer.Context,
    episode: Annotated[str, typer.Argument(help="Id of an episode.")],
    as_json: Json = False,
) -> None:
    """Show one episode: what was injected, every action and observation, and the grade."""
    from evolve.workspace.episode_rows import episode as find

    with reading(context) as (_, store):
        whole = find(store, episode)
    found, made = whole.trajectory, whole.reflections
    lines = [f"task {found.task.id}: {found.instruction}"]
    lines += ["forgotten: only its figures are left"] if found.erased else []
    lines += [f"shown: {', '.join(i.label for i in found.injected) or 'nothing'}"]
    for step in found.steps:
        lines += ["", f"--- step {step.index}", step.action, f"<<< {step.observation}"]
    checks = found.outcome.checks if found.outcome else ()
    lines += ["", f"success: {found.success}"]
    lines += [f"failed check {check.name}: {check.detail}" for check in checks if not check.passed]
    for reflection in made:
        lines += ["", f"reflection by {reflection.author or '-'}: {reflection.root_cause or '-'}"]
        lines += [f"lesson: {insight.content}" for insight in reflection.insights] or ["no lesson"]
        lines += [f"could not be read: {reflection.raw}"] if not reflection.parsed else []
    data = found.model_dump(mode="json") | {"reflections": [each.model_dump(mode="json") for each in made]}
    show(data, as_json, "\n".join(lines))
