"""`evolve run | resume | eval | report`: the main verbs."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evolve.cli.opening import begin, load
from evolve.cli.output import Json, say, show
from evolve.errors import ConfigError
from memory.errors import BadInput, NotFound

if TYPE_CHECKING:
    from evolve.cli.display import Display
    from evolve.config.model import Config
    from evolve.loop.report import Report
    from evolve.loop.session import RunResult

Tasks = Annotated[Path | None, typer.Option("--tasks", help="JSON Lines file of tasks, instead of the environment's.")]
Env = Annotated[
    str | None,
    typer.Option("--env", help="Environment: a shipped name, or `module:Class` in this folder or beside evolve.toml."),
]
Policy = Annotated[
    str | None, typer.Option("--policy", help="Policy: a shipped name, or `module:function` found likewise.")
]
Limit = Annotated[int | None, typer.Option("--limit", "-n", help="Most tasks.")]
Seed = Annotated[int | None, typer.Option("--seed", help="Seed of everything random.")]
Preset = Annotated[str | None, typer.Option("--preset", help="Published method by name; see `evolve presets list`.")]
Set = Annotated[
    list[str] | None, typer.Option("--set", help="`section.key=value` over evolve.toml, as TOML; may be repeated.")
]

Name = Annotated[str | None, typer.Option("--name", help="Name of the run, for lists and reports.")]
Tag = Annotated[list[str] | None, typer.Option("--tag", help="Word to find the run by; may be repeated.")]


def register(app: typer.Typer) -> None:
    """Add the verbs to the root command."""
    app.command("run")(run)
    app.command("resume")(resume)
    app.command("eval")(evaluate)
    app.command("report")(report)


def run(
    context: typer.Context,
    tasks: Tasks = None,
    env: Env = None,
    policy: Policy = None,
    limit: Limit = None,
    seed: Seed = None,
    preset: Preset = None,
    values: Set = None,
    name: Name = None,
    tag: Tag = None,
    review: Annotated[bool, typer.Option("--review", help="Let learned changes wait for `evolve review`.")] = False,
    executor: Annotated[str | None, typer.Option("--executor", help="Where episodes are done: local, ray.")] = None,
    go_on: Annotated[
        bool, typer.Option("--resume", help="Go on with the latest unfinished run of these settings, if there is one.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Work through the tasks and learn from them."""
    changes = assigned_values(preset, values) | overrides(tasks, env, policy, limit, seed) | called(name, tag)
    changes |= {"run.executor": executor} if executor else {}
    from evolve.config.file import changed
    from evolve.gates.review import ReviewGate
    from evolve.loop import session

    config = begin(context, changes)
    if review:
        config = changed(config, {"gate.names": tuple(dict.fromkeys((*config.gate.names, ReviewGate.name)))})
    unfinished = _unfinished(config) if go_on else None
    with display(as_json) as shown:
        observers = [shown] if shown else ()
        if unfinished is not None:
            result = session.resume(config, unfinished, observers=observers)
        else:
            result = session.run(config, observers=observers)
    _finish(config, result, as_json)


def _unfinished(config: Config) -> str | None:
    """Return the id of the latest unfinished run of these settings; None where there is none."""
    from evolve.loop.assembly import open_store
    from evolve.loop.runs import unfinished_of

    try:
        with open_store(config, read_only=True) as store:
            found = unfinished_of(store, config)
    except NotFound:
        return None
    return found.run_id if found else None


def resume(
    context: typer.Context,
    run_id: Annotated[
        str | None, typer.Argument(help="Run to go on with, by id or name; none = the latest unfinished.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Go on with a run that was killed or stopped; no model call that was journalled is repeated."""
    from evolve.loop import session

    config = load(context)
    with display(as_json) as shown:
        result = session.resume(config, run_id, observers=[shown] if shown else ())
    _finish(config, result, as_json)


def evaluate(
    context: typer.Context,
    split: Annotated[list[str] | None, typer.Option("--split", help="Split to evaluate; may be repeated.")] = None,
    attempts: Annotated[
        int | None, typer.Option("--attempts", help="Attempts at each task: pass@k with and without mistake notes.")
    ] = None,
    no_memory: Annotated[bool, typer.Option("--no-memory", help="Evaluate the agent without its knowledge.")] = False,
    tasks: Tasks = None,
    env: Env = None,
    policy: Policy = None,
    limit: Limit = None,
    seed: Seed = None,
    preset: Preset = None,
    values: Set = None,
    name: Name = None,
    tag: Tag = None,
    as_json: Json = False,
) -> None:
    """Measure what is known now, frozen, on held-out tasks. Nothing is learned."""
    from evolve.loop import session
    from evolve.loop.modes.frozen import evaluation

    changes = (
        assigned_values(preset, values)
        | overrides(tasks, env, policy, limit, seed)
        | called(name, tag)
        | evaluation(split or (), memory=not no_memory, attempts=attempts, limit=limit)
    )
    config = begin(context, changes)
    with display(as_json) as shown:
        result = session.run(config, observers=[shown] if shown else ())
    _finish(config, result, as_json)


def report(
    context: typer.Context,
    run_id: Annotated[
        str | None, typer.Argument(help="Run to report on, by id or name; else the latest that learned.")
    ] = None,
    other: Annotated[str | None, typer.Argument(help="A second run, to be compared with the first.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Write the learning curve as PNG there.")] = None,
    as_json: Json = False,
) -> None:
    """Print the figures of a run, read from the journal, and draw its learning curve; or compare two runs.

    TGC: share of tasks solved. SGC: share of scenarios of which every task was solved. Coverage: share of tasks that
    were graded (the others count as failed). Shown: mean number of records in a prompt. In brackets: 95 % intervals.
    """
    from evolve.cli.opening import reading
    from evolve.loop import curve
    from evolve.loop.report import lines, make_report

    if run_id is not None and other is not None:
        if plot is not None:
            raise BadInput("got --plot with two runs; it draws the curve of one: name one run")
        _against(context, run_id, other, as_json)
        return
    with reading(context) as (_, store):
        made = make_report(store, run_id)
    control = 100 * made.control.tgc if made.control else None
    text = "\n".join(lines(made))
    if len(made.curve) > 1 and not as_json:
        text += "\n\n" + curve.draw(made.curve, control)
    show(made.model_dump(mode="json"), as_json, text)
    if plot is not None:
        _plotted(plot, made, control)


def _plotted(file: Path, made: Report, control: float | None) -> None:
    from evolve.loop import curve

    if not made.curve:
        raise BadInput(f"run {made.run_id} has no curve to plot: no task of it was graded")
    try:
        curve.save(file, made.curve, control, f"{made.environment}, {made.policy}")
    except ModuleNotFoundError as missing:
        raise ConfigError("a plot needs matplotlib: pip install 'evolve-agents[plot]'") from missing


def _against(context: typer.Context, first: str, second: str, as_json: bool) -> None:
    from evolve.cli.opening import reading
    from evolve.cli.output import table
    from evolve.compare.against import against, lines

    with reading(context) as (_, store):
        found = against(store, first, second)
    if as_json:
        show(found.model_dump(mode="json") | {"rows": found.rows}, as_json, "")
        return
    table(found.rows, as_json)
    say("\n" + "\n".join(lines(found)))


def overrides(
    tasks: Path | None, env: str | None, policy: str | None, limit: int | None, seed: int | None
) -> dict[str, Any]:
    """Return what the options override, as `section.key` -> value."""
    given = {
        "environment.tasks_file": str(tasks.resolve()) if tasks else None,
        "environment.name": env,
        "policy.name": policy,
        "run.tasks": limit,
        "run.seed": seed,
    }
    return {key: value for key, value in given.items() if value is not None}


def called(name: str | None, tags: list[str] | None) -> dict[str, Any]:
    """Return what `--name` and `--tag` override."""
    return ({"run.name": name} if name is not None else {}) | ({"run.tags": tags} if tags else {})


def assigned_values(preset: str | None, values: list[str] | None) -> dict[str, Any]:
    """Return what `--preset` and `--set` override."""
    from evolve.config.file import assigned

    return ({"preset": preset} if preset else {}) | assigned(values or ())


def display(as_json: bool) -> AbstractContextManager[Display | None]:
    """Return what shows the run to people; None where JSON was asked for."""
    if as_json:
        return nullcontext()
    from evolve.cli.display import Display

    return Display()


def _finish(config: Config, result: RunResult, as_json: bool) -> None:
    """Print the result of a run done with `config`; write the curve beside it; a stopped run ends with exit code 3."""
    from evolve.loop import curve
    from evolve.loop.assembly import open_store
    from evolve.loop.report import lines, make_report

    with open_store(config, read_only=True) as store:
        made = make_report(store, result.run_id)
    control = 100 * made.control.tgc if made.control else None
    text = "\n".join(lines(made))
    if len(made.curve) > 1:
        picture = config.workspace / "runs" / result.run_id / "curve.png"
        text += "\n\n" + curve.draw(made.curve, control) + f"\n{_saved(picture, made.curve, control)}"
    show(made.model_dump(mode="json"), as_json, text)
    if result.status == "stopped":
        say(result.reason, error=True)
        raise typer.Exit(3)


def _saved(picture: Path, passed: tuple[bool, ...], control: float | None) -> str:
    from evolve.loop import curve

    try:
        curve.save(picture, passed, control, picture.parent.name)
    except ModuleNotFoundError:
        return "no PNG of the curve: matplotlib is not installed (pip install 'evolve-agents[plot]')"
    return f"learning curve: {picture}"
