"""`evolve logs`: the runs of this workspace and their episodes."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from evolve.cli.output import Json, reading, show, table

app = typer.Typer(help="Runs and episodes as they happened.", no_args_is_help=True)


@app.command("list")
def listing(
    context: typer.Context,
    run: Annotated[str | None, typer.Option(help="List the episodes of this run instead of the runs.")] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Only episodes that did not succeed.")] = False,
    limit: Annotated[int, typer.Option("-n", help="Most rows, the latest.")] = 50,
    as_json: Json = False,
) -> None:
    """List runs, or the episodes of one run."""
    with reading(context) as (_, store):
        if run is None:
            rows: list[dict[str, Any]] = [
                {
                    "run": r["run_id"],
                    "mode": r.get("mode"),
                    "status": r.get("status"),
                    "tasks": len(r.get("tasks", ())),
                    "policy": r.get("policy"),
                    "seconds": round(r.get("seconds", 0.0), 1),
                }
                for r in store.runs()
            ]
        else:
            rows = [
                {
                    "episode": t.id,
                    "task": t.task.id,
                    "arm": t.arm,
                    "success": t.success,
                    "steps": len(t.steps),
                    "injected": len(t.injected),
                    "tokens": t.usage.prompt_tokens + t.usage.completion_tokens,
                }
                for t in store.trajectories(run_id=run)
                if not (failed and t.success)
            ]
    table(rows[-limit:], as_json, empty="no runs yet" if run is None else f"no episodes of run {run}")


@app.command("show")
def show_one(
    context: typer.Context,
    episode: Annotated[str, typer.Argument(help="Id of an episode.")],
    as_json: Json = False,
) -> None:
    """Show one episode: what was injected, every action and observation, and the grade."""
    from memory.errors import NotFound

    with reading(context) as (_, store):
        found = store.trajectory(episode)
    if found is None:
        raise NotFound(f"no episode {episode!r}; list them with `evolve logs list --run RUN`")
    lines = [f"task {found.task.id}: {found.instruction}"]
    lines += ["forgotten: only its figures are left"] if found.erased else []
    lines += [f"shown: {', '.join(i.label for i in found.injected) or 'nothing'}"]
    for step in found.steps:
        lines += ["", f"--- step {step.index}", step.action, f"<<< {step.observation}"]
    checks = found.outcome.checks if found.outcome else ()
    lines += ["", f"success: {found.success}"]
    lines += [f"failed check {check.name}: {check.detail}" for check in checks if not check.passed]
    show(found.model_dump(mode="json"), as_json, "\n".join(lines))
