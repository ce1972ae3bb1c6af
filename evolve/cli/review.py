"""`evolve review`: decide about learned changes that wait for a person (`evolve run --review`).

`evolve playbook test`: lets the configured gates judge what is quarantined.
"""

from __future__ import annotations

from typing import Annotated

import typer

from evolve.cli.opening import load, reading, writing
from evolve.cli.output import Json, say, show, table
from evolve.cli.run import Policy, Set, assigned_values, display

app = typer.Typer(help="Learned changes that wait for you.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="Number of the proposal, from `evolve review list`.")]
Names = Annotated[list[str], typer.Argument(help="Numbers of proposals, from `evolve review list`.")]


@app.command("list")
def listing(
    context: typer.Context,
    everything: Annotated[bool, typer.Option("--all", help="Also the decided ones.")] = False,
    as_json: Json = False,
) -> None:
    """List the queue, oldest first."""
    from evolve.workspace.reviewing import proposals

    with reading(context) as (config, store):
        waiting = proposals(store, config.memory.namespace, everything=everything)
    table(waiting.rows(), as_json, empty="nothing waits for review")


@app.command("show")
def show_one(context: typer.Context, name: Name, as_json: Json = False) -> None:
    """Show one proposal with where it came from and what it would replace."""
    from evolve.gates.review_queue import find, says

    with reading(context) as (_, store):
        proposal = find(store, name)
        target = store.get(proposal.op.target_id) if proposal.op.target_id else None
    lines = [f"{proposal.op.op.value} {says(proposal.op)}"]
    lines += [f"replaces: {target.payload.text()}"] if target else []
    lines += [f"reason: {proposal.op.reason}", f"from tasks: {', '.join(proposal.op.provenance.task_ids)}"]
    show(proposal.model_dump(mode="json"), as_json, "\n".join(lines))


@app.command()
def accept(context: typer.Context, names: Names, as_json: Json = False) -> None:
    """Apply proposals."""
    from evolve.workspace import reviewing

    with writing(context) as (_, store):
        commits = [reviewing.accept(store, name) for name in reviewing.waiting(store, names)]
    refused = [result.reason for commit in commits for result in commit.refused]
    applied = sum(len(commit.applied) for commit in commits)
    show(
        {"applied": applied, "refused": refused},
        as_json,
        f"{applied} applied" + "".join(f"\nrefused: {r}" for r in refused),
    )
    if refused:
        raise typer.Exit(1)


@app.command()
def reject(
    context: typer.Context,
    names: Names,
    reason: Annotated[str, typer.Option(help="Why; kept in the journal.")] = "",
    as_json: Json = False,
) -> None:
    """Turn proposals down."""
    from evolve.workspace import reviewing

    with writing(context) as (_, store):
        names = reviewing.waiting(store, names)
        for name in names:
            reviewing.reject(store, name, reason)
    show({"rejected": names}, as_json, f"{len(names)} rejected")


@app.command()
def defer(
    context: typer.Context,
    names: Names,
    reason: Annotated[str, typer.Option(help="Why; kept in the journal.")] = "",
    as_json: Json = False,
) -> None:
    """Put proposals off: they wait on, after all others."""
    from evolve.workspace import reviewing

    with writing(context) as (_, store):
        names = reviewing.waiting(store, names)
        for name in names:
            reviewing.defer(store, name, reason)
    show({"deferred": names}, as_json, f"{len(names)} deferred")


@app.command()
def edit(
    context: typer.Context,
    name: Name,
    content: Annotated[str, typer.Argument(help="The text to apply instead; of a note the whole of it, as JSON.")],
    as_json: Json = False,
) -> None:
    """Apply a proposal with your own words."""
    from evolve.workspace import reviewing

    with writing(context) as (_, store):
        commit = reviewing.accept(store, name, content)
    refused = "".join(f"\nrefused: {result.reason}" for result in commit.refused)
    show(commit.model_dump(mode="json"), as_json, f"{len(commit.applied)} applied{refused}")
    if commit.refused:
        raise typer.Exit(1)


def register(app: typer.Typer) -> None:
    """Add the verb to `evolve playbook`."""
    app.command("test")(judge)


def judge(context: typer.Context, policy: Policy = None, values: Set = None, as_json: Json = False) -> None:
    """Run the gates over what is quarantined, on the select split: what passes is shown from now on.

    The rest stays, with the reasons. Stopped or killed, `evolve resume` goes on with it.
    """
    from evolve.gates.account import account, lines
    from evolve.loop import session
    from evolve.loop.assembly import open_store
    from evolve.loop.modes.quarantine import judged

    changes = assigned_values(None, values) | ({"policy.name": policy} if policy else {})
    config = load(context, changes | {"run.mode": "quarantine"})
    with display(as_json) as shown:
        result = session.run(config, observers=[shown] if shown else ())
    with open_store(config, read_only=True) as store:
        rows = [each.model_dump() for each in judged(store, config.memory.namespace, result.run_id)]
        spent = account(store, result.run_id)
    if as_json:
        data = {"run_id": result.run_id, "status": result.status, "texts": rows, "gates": spent.model_dump(mode="json")}
        show(data, True, "")
    else:
        table(rows, False, empty="nothing is quarantined")
        say("\n".join(lines(spent)))
    if result.status == "stopped":
        say(result.reason, error=True)
        raise typer.Exit(3)
