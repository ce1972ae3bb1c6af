"""`evolve env`: is an environment what the loop expects?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from evolve.cli.numbers import number
from evolve.cli.opening import load
from evolve.cli.output import Json, show

app = typer.Typer(help="Environments: check one of your own.", no_args_is_help=True)


@app.callback()
def root() -> None:
    """Hold the verb: a group of one would be the command itself."""


@app.command()
def check(
    context: typer.Context,
    name: Annotated[
        str | None, typer.Argument(metavar="MODULE:CLASS", help="Environment; else the one of evolve.toml.")
    ] = None,
    tasks: Annotated[Path | None, typer.Option("--tasks", help="JSON Lines file of its tasks.")] = None,
    sample: Annotated[int, typer.Option("--sample", min=1, help="Tasks of each split that are played.")] = 6,
    limit: Annotated[
        float, typer.Option("--limit", min=1, help="Seconds that one check may take.", callback=number)
    ] = 120.0,
    as_json: Json = False,
) -> None:
    """Play an environment without a model and say what breaks the contract; exit 1 when something does."""
    import asyncio

    from evolve.environments.check import SPLITS, examine, lines
    from evolve.gates.splits import splits_there
    from evolve.loop.assembly import make_environment
    from evolve.protocols import Environment
    from memory.records import Task

    config = load(context)
    if tasks is not None or (name is not None and name != config.environment.name):
        file = str(tasks.resolve()) if tasks else None
        config = load(context, {"environment.name": name or config.environment.name, "environment.tasks_file": file})

    def listed(world: Environment) -> dict[str, tuple[Task, ...]]:
        return splits_there(config, world, SPLITS)

    steps = config.environment.max_steps
    played = examine(lambda: make_environment(config), listed, sample=sample, max_steps=steps, limit=limit)
    found = asyncio.run(played)
    failed = [each for each in found if each.result == "failed"]
    end = f"{len(failed)} of {len(found)} checks failed" if failed else "keeps the contract of an environment"
    data = {"environment": config.environment.name, "ok": not failed, "checks": [each.model_dump() for each in found]}
    show(data, as_json, "\n".join([*lines(found), "", f"{config.environment.name}: {end}"]))
    if failed:
        raise typer.Exit(1)
