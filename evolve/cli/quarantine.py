"""`evolve playbook test`: lets the configured gates judge what is quarantined."""

from __future__ import annotations

import typer

from evolve.cli.opening import load
from evolve.cli.output import Json, say, show, table
from evolve.cli.run import Policy, Set, assigned_values, display


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
