"""`evolve train`: what the journal offers, and training on it or on fresh rollouts. A training makes a candidate."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from evolve.cli.opening import load, reading
from evolve.cli.output import Json, say, show, table
from evolve.errors import ConfigError

if TYPE_CHECKING:
    from evolve.config.model import Config
    from evolve.training.session import Trained

app = typer.Typer(
    help="Fine-tune the policy: plan, sft, internalise, grpo, sage, r3l, run, resume, status, curves, export.",
    no_args_is_help=True,
)

Set = Annotated[
    list[str] | None, typer.Option("--set", help="`section.key=value` over evolve.toml, as TOML; may be repeated.")
]
LAST = ("success", "reward", "loss")
"""Figures of the last iteration or update that `status` shows; `--json` tells all."""


@app.command()
def plan(context: typer.Context, as_json: Json = False) -> None:
    """Show what the journal offers to a training, by family of tasks and by difficulty; what is left out and why."""
    from evolve.training.session import offered

    found = offered(load(context))
    hard = found.difficulty()
    counts = {
        "successes": len(found.successes),
        "failures": len(found.failures),
        "retry_pairs": len(found.pairs),
        "groups": len(found.groups),
        "reflections": found.reflections,
    }
    if as_json:
        more = {"left_out": found.left_out, "families": found.families(), "difficulty": hard}
        show(counts | more, True, "")
        return
    table(found.families(), False, empty="no episode of a train task with token ids; `evolve run` makes some")
    say("; ".join(f"{name}: {value}" for name, value in counts.items()))
    say(
        f"tasks: {hard['too_easy']} too easy, {hard['useful']} useful (estimated success of 20 to 80 %), "
        f"{hard['too_hard']} too hard"
    )
    for reason, count in found.left_out.items():
        say(f"left out: {count}, {reason}")


@app.command()
def sft(
    context: typer.Context,
    groups: Annotated[
        bool, typer.Option("--groups", help="Scenarios with both successes and failures, by `train.advantages`.")
    ] = False,
    values: Set = None,
    as_json: Json = False,
) -> None:
    """Train on the journal's successes alone, without a new rollout."""
    _journalled(context)
    from evolve.config.training import GROUPS

    _started(context, GROUPS if groups else "sft", values, as_json)


@app.command()
def internalise(context: typer.Context, values: Set = None, as_json: Json = False) -> None:
    """Train on the journal's successes as if nothing had been shown: the weights take in the playbook."""
    _journalled(context)
    _started(context, "internalise", values, as_json)


@app.command()
def grpo(context: typer.Context, values: Set = None, as_json: Json = False) -> None:
    """Train by rollouts of single tasks in groups, each compared with its group (GRPO)."""
    _started(context, "grpo", values, as_json)


@app.command()
def sage(context: typer.Context, values: Set = None, as_json: Json = False) -> None:
    """Train by rollouts of chains whose tasks share the skills that were written, paid for their use (SAGE)."""
    _started(context, "sage", values, as_json)


@app.command()
def r3l(context: typer.Context, values: Set = None, as_json: Json = False) -> None:
    """Train by rollouts of single tasks, failed ones done again with guidance from the step that went wrong (R3L)."""
    _started(context, "r3l", values, as_json)


@app.command("run")
def asconfigured(context: typer.Context, values: Set = None, as_json: Json = False) -> None:
    """Train by rollouts as `[train]` of evolve.toml says. Called again, it goes on where it stopped."""
    _started(context, "run", values, as_json)


@app.command()
def resume(
    context: typer.Context,
    name: Annotated[
        str | None, typer.Argument(help="A training, by its name in `evolve train status`; else the latest unfinished.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Go on with an unfinished training, with the settings that it was begun with."""
    from evolve.training import session

    config = load(context)
    with _progress(as_json) as report:
        done = session.resume(config, name, report)
    _told(done, as_json)


@app.command()
def status(context: typer.Context, as_json: Json = False) -> None:
    """List the trainings of this workspace with how far each came."""
    from evolve.training.status import trainings

    rows = trainings(load(context))
    if not as_json:
        rows = [row | {"figures": _line(row["figures"], LAST)} for row in rows]
    table(rows, as_json, empty="no trainings; begin with `evolve train plan`")


@app.command()
def curves(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="A training, by its name in `evolve train status`.")],
    out: Annotated[Path, typer.Option(help="Write the PNG there.")] = Path("curves.png"),
    as_json: Json = False,
) -> None:
    """Draw a training's figures as PNG; with --json also print them."""
    from evolve.training.curves import save
    from evolve.training.status import told_by

    told = told_by(load(context), name)
    try:
        save(out, told, name)
    except ModuleNotFoundError as missing:
        raise ConfigError("curves need matplotlib: pip install 'evolve-agents[plot]'") from missing
    show({"picture": str(out), "figures": told}, as_json, f"curves: {out}")


@app.command()
def export(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="A training, by its name in `evolve train status`.")],
    to: Annotated[Literal["trackio", "mlflow"], typer.Option(help="The tracker of experiments that gets its figures.")],
    as_json: Json = False,
) -> None:
    """Hand a training's figures to trackio or MLflow, as a run of the project `evolve` there."""
    from evolve.training.export import export

    where = export(load(context), name, to)
    show({"training": name, "to": to, "where": where}, as_json, f"{name} is in {where}")


def _started(context: typer.Context, recipe: str, values: list[str] | None, as_json: bool) -> None:
    from evolve.training.start import start

    config = configured(context, recipe, values)
    with _progress(as_json) as report:
        done = start(config, recipe, report)
    _told(done, as_json)


def _journalled(context: typer.Context) -> None:
    """Raise `NotFound` where there is no journal to train on, before torch is loaded."""
    with reading(context):
        pass


def configured(context: typer.Context, recipe: str, values: list[str] | None) -> Config:
    """Return the configuration with the recipe's values under those of `--set`."""
    from evolve.cli.run import assigned_values
    from evolve.config.training import recipe_settings

    return load(context, recipe_settings(recipe) | assigned_values(None, values))


@contextmanager
def _progress(as_json: bool) -> Generator[Callable[[dict[str, float]], None]]:
    """Give a reporter that draws the figures; one that says nothing with `--json`."""
    if as_json:
        yield lambda _: None
        return
    from evolve.cli.training_table import Figures

    with Figures() as shown:
        yield shown.report


def _line(figures: Mapping[str, float], names: Sequence[str]) -> str:
    return "  ".join(f"{name} {figures[name]:.4g}" for name in names if name in figures)


def _told(done: Trained, as_json: bool) -> None:
    if done.stopped and not as_json:
        say(f"stopped early: {done.stopped}; what follows was made before that")
    if done.weighed and not as_json:
        table([each.model_dump() for each in done.weighed], False)
    text = (
        f"{done.generation} is a candidate after {done.updates} updates on {done.examples} examples "
        f"({done.tokens} trained tokens); it stands in {done.folder}; next: evolve policy gate {done.generation}"
    )
    show(done.model_dump(mode="json"), as_json, text)
