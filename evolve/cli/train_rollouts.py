"""`evolve train rollouts`: the episodes that a training by rollouts was made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from evolve.cli.opening import load
from evolve.cli.output import Json, say, show, table

if TYPE_CHECKING:
    from evolve.training.rollout_store import RolloutTurn, StoredRollout

app = typer.Typer(
    help="Rollouts of a training: all of its latest iteration, and a sample of each before.", no_args_is_help=True
)


@app.command("list")
def listing(
    context: typer.Context,
    training: Annotated[
        str | None, typer.Argument(help="A training, by its name in `evolve train status`; else the latest.")
    ] = None,
    iteration: Annotated[int | None, typer.Option(help="Only of this iteration.")] = None,
    group: Annotated[str, typer.Option(help="Only of this group: those that are compared with each other.")] = "",
    failed: Annotated[bool, typer.Option("--failed", help="Only those that did not succeed.")] = False,
    succeeded: Annotated[bool, typer.Option("--succeeded", help="Only those that did.")] = False,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Most rows, the latest.")] = 50,
    as_json: Json = False,
) -> None:
    """List rollouts, the latest iteration last: what each was paid, its advantage, length, and who sampled it."""
    from evolve.training.rollout_store import keeping, read
    from memory.errors import BadInput

    if failed and succeeded:
        raise BadInput("got --failed and --succeeded, which no rollout is both; give one, or none")
    folder = keeping(load(context), training)
    wanted = {True: succeeded or not failed, False: failed or not succeeded}
    found = [each for each in read(folder, iteration) if wanted[each.success] and group in ("", each.group)]
    rows = [_row(each) if as_json else _short_row(each) for each in found[-limit:]]
    table(rows, as_json, empty=f"no rollout of {folder.name} fits")
    if len(found) > limit and not as_json:
        say(f"{len(found) - limit} earlier rollouts: -n {len(found)}")


@app.command("show")
def show_one(
    context: typer.Context,
    rollout: Annotated[str, typer.Argument(help="Id of a rollout.")],
    training: Annotated[str | None, typer.Option(help="The training that made it; else the latest.")] = None,
    as_json: Json = False,
) -> None:
    """Show one rollout: prompt, turns with their advantages, and the parts of its reward."""
    from evolve.training.rollout_store import find, keeping

    found = find(keeping(load(context), training), rollout)
    show(_row(found) | found.model_dump(mode="json"), as_json, "\n".join(_lines(found)))


def _row(each: StoredRollout) -> dict[str, Any]:
    return {
        "id": each.id,
        "iteration": each.iteration,
        "task": each.task,
        "group": each.group,
        "position": each.position,
        "rollout": each.rollout,
        "reward": each.reward,
        "rewards": each.rewards,
        "advantage": each.advantage,
        "success": each.success,
        "stop": each.stop.value,
        "turns": len(each.turns),
        "tokens": each.tokens,
        "versions": list(each.versions),
    }


def _short_row(each: StoredRollout) -> dict[str, Any]:
    told = _row(each)
    del told["rewards"], told["stop"]
    versions = told.pop("versions")
    return told | {"reward": _parts(each), "version": ", ".join(name[-12:] for name in versions) or None}


def _parts(each: StoredRollout) -> str:
    parts = ", ".join(f"{name} {value:.3g}" for name, value in each.rewards.items())
    return f"{each.reward:.3g} ({parts})" if len(each.rewards) > 1 else f"{each.reward:.3g}"


def _lines(each: StoredRollout) -> list[str]:
    graded = ("solved" if each.success else "failed") if each.graded else "not graded"
    lines = [
        f"task {each.task}, iteration {each.iteration}, group {each.group}, rollout {each.rollout}",
        f"reward {_parts(each)}; {graded}; ended: {each.stop.value}{f' ({each.error})' if each.error else ''}",
        f"advantage {_advantage(each.advantage)}; {each.tokens} tokens in {len(each.turns)} turns",
    ]
    for message in each.prompt:
        lines += ["", f"--- {message.role}", message.content]
    for number, turn in enumerate(each.turns):
        lines += ["", *_turn(number, turn)]
    return lines


def _turn(number: int, turn: RolloutTurn) -> list[str]:
    about = f"{turn.tokens} tokens{', cut off' if turn.truncated else ''}, advantage {_advantage(turn.advantage)}"
    lines = [f"--- turn {number}: {about}"]
    for at, step in enumerate(turn.steps):
        lines += [step.reply or step.action] if at == 0 else [step.action] if not turn.steps[0].reply else []
        lines += [f"<<< {step.observation or step.error or '(nothing came back)'}"]
    return lines


def _advantage(value: float | None) -> str:
    return "none (not trained on)" if value is None else f"{value:+.3g}"
