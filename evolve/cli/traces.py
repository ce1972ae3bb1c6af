"""`evolve traces`: where the time and the tokens of a run went, span by span."""

from __future__ import annotations

from typing import Annotated

import typer

from evolve.cli.opening import load
from evolve.cli.output import Json, show, table

app = typer.Typer(help="Where time and tokens went, in runs with [telemetry] enabled.", no_args_is_help=True)


@app.command("list")
def listing(
    context: typer.Context,
    limit: Annotated[int, typer.Option("-n", help="Most rows, the latest.", min=1)] = 50,
    as_json: Json = False,
) -> None:
    """List the traces of this workspace, oldest first; a run that was resumed has several."""
    from evolve.telemetry.reading import traces

    found = traces(load(context).workspace)[-limit:]
    rows = found if as_json else [{name: row[name] for name in row if name != "trace"} for row in found]
    table(rows, as_json, empty="no traces yet")


@app.command("show")
def show_one(
    context: typer.Context,
    run_or_task: Annotated[str, typer.Argument(help="Id of a run, a trace or a task.")],
    as_json: Json = False,
) -> None:
    """Show the spans of a run or a task as a tree with durations and tokens; as JSON, all that is known of them."""
    from evolve.telemetry.reading import find, metrics, tree

    workspace = load(context).workspace
    spans = find(workspace, run_or_task)
    runs = dict.fromkeys(span["run_id"] for span in spans)
    data = {"spans": spans, "metrics": [row for run in runs for row in metrics(workspace, run)]}
    show(data, as_json, "\n".join(tree(spans)))
