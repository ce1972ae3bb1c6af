"""`evolve cycle`: run, train, gate, promote, and again, unattended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from evolve.cli.output import Json, say, table
from evolve.cli.policy import AllowMissing
from evolve.cli.train import Set, configured

if TYPE_CHECKING:
    from evolve.training.cycle import Round


def register(app: typer.Typer) -> None:
    """Add the verb to the root command."""
    app.command("cycle")(cycle)


def cycle(
    context: typer.Context,
    every: Annotated[int, typer.Option("--every", min=1, help="Train tasks of a round.")],
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Rounds in all, those done before included.")] = 3,
    recipe: Annotated[
        Literal["sft", "grpo", "sage"], typer.Option("--recipe", help="How each round trains: as `evolve train` of it.")
    ] = "sft",
    allow_missing: AllowMissing = False,
    values: Set = None,
    as_json: Json = False,
) -> None:
    """Run tasks, train, measure the candidate, promote it if the gate accepts it, and again.

    Called again, also after a kill, it goes on where it stopped.
    """
    from evolve.training import cycle as module

    config = configured(context, recipe, values)

    def told(latest: Round) -> None:
        if not as_json:
            say(_line(latest))

    done = module.cycle(config, every, rounds, told, recipe=recipe, allow_missing=allow_missing)
    table([each.model_dump(mode="json") for each in done.rounds], as_json)


def _line(latest: Round) -> str:
    """Return what the last step of a round came to."""
    if latest.live:
        told = f"{latest.live} is live"
    elif latest.accepted is not None:
        told = f"{'accepted' if latest.accepted else 'refused'}: {latest.reason}"
    elif latest.candidate:
        told = f"{latest.candidate} was trained"
    elif latest.reason:
        told = f"nothing was trained: {latest.reason}"
    else:
        solved = "" if latest.solved is None else f", {100 * latest.solved:.0f} % solved"
        told = f"{latest.every} tasks were run{solved}"
    return f"round {latest.number + 1}: {told}"
