"""`evolve train`: what the journal offers, and training on it or on fresh rollouts. A training makes a candidate.

A training is shown while it happens: a growing table on a terminal, a line for each iteration or update elsewhere.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table

from evolve.cli.numbers import LEAST_SHARE, number
from evolve.cli.opening import load, reading
from evolve.cli.output import Json, plain, say, show, table
from evolve.cli.run import Set
from evolve.cli.train_rollouts import app as rollouts
from evolve.errors import ConfigError

if TYPE_CHECKING:
    from evolve.config.model import Config
    from evolve.training.training_session import Trained


app = typer.Typer(
    help="Fine-tune a policy: plan, sft, internalise, dpo, simpo, grpo, sage, r3l, run, resume, status, rollouts, "
    "curves, export.",
    no_args_is_help=True,
)
app.add_typer(rollouts, name="rollouts")

LAST = ("eval_success", "success", "reward", "groups_differ", "entropy", "rollout_kl", "loss")
"""Figures of the last iteration or update that `status` shows; `--json` tells all."""

LONGEST = 8192
"""Tokens of a row for which memory is planned, where nobody says."""


@app.command()
def plan(
    context: typer.Context,
    gpu: Annotated[
        float | None, typer.Option(help="GiB of a GPU: show what a training takes of it instead.", callback=number)
    ] = None,
    ram: Annotated[
        float | None, typer.Option(help="The same for GiB of this machine's memory, on its CPU.", callback=number)
    ] = None,
    gpus: Annotated[int, typer.Option(min=1, help="GPUs among which the weights are shared out.")] = 1,
    tokens: Annotated[int, typer.Option(min=2, help="Tokens of the longest row, prompt and all.")] = LONGEST,
    model: Annotated[str, typer.Option(help="A folder with config.json or a hub name; else the configured one.")] = "",
    values: Set = None,
    as_json: Json = False,
) -> None:
    """Show what the journal offers to a training, by family of tasks and by difficulty; what is left out and why.

    With --gpu or --ram: the memory that a training takes, by part, before anything is loaded.
    """
    if gpu is not None or ram is not None:
        _memory(context, values, (gpu, ram, gpus, tokens, model), as_json)
        return
    if (gpus, tokens, model) != (1, LONGEST, ""):
        raise ConfigError("--gpus, --tokens and --model say what a training takes of memory; add --gpu or --ram")
    from evolve.training.training_session import offered

    found = offered(configured(context, "run", values))
    hard = found.difficulty()
    counts = {
        "successes": len(found.successes),
        "failures": len(found.failures),
        "pairs": len(found.pairs),
        "groups": len(found.groups),
        "experts": len(found.experts),
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


def _memory(
    context: typer.Context,
    values: list[str] | None,
    given: tuple[float | None, float | None, int, int, str],
    as_json: bool,
) -> None:
    """Print the plan of a training's memory."""
    from evolve.training.memory_plan import GIB, planned

    gpu, ram, gpus, tokens, model = given
    budget = ram if gpu is None else gpu
    if budget is None or (gpu is not None and ram is not None) or (gpu is None and gpus > 1):
        raise ConfigError("--gpu and --ram are two devices, and --gpus goes with --gpu; give one of them")
    config = configured(context, "run", values)
    found = planned(config, budget, tokens, model=model, gpu=gpu is not None, devices=gpus)
    if as_json:
        show(found.model_dump(mode="json") | {"fits": found.fits, "server_share": found.server_share}, True, "")
        return
    table([{"part": each.part, "GiB": f"{each.bytes / GIB:.2f}", "what": each.why} for each in found.parts], False)
    rollouts = f"rollouts {found.rollouts / GIB:.1f} GiB" if found.rollouts else "rollouts are the server's"
    where = f"{budget:g} GiB" + (f" of each of {gpus} GPUs" if gpus > 1 else "")
    verdict = "fits" if found.fits else "does NOT fit"
    say(f"{found.model}: an update {found.update / GIB:.1f} GiB, {rollouts}; {verdict} into {where}")
    if gpu is not None and config.policy.name == "served" and found.server_share >= LEAST_SHARE:
        say(f"where the server is on the same GPU: `evolve policy serve --gpu-memory {found.server_share:.2f}` at most")
    for advice in found.advice:
        say(f"set: {advice}")


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
def dpo(context: typer.Context, values: Set = None, as_json: Json = False) -> None:
    """Train on the journal's failures beside successes in the same task, without a new rollout (DPO)."""
    _journalled(context)
    _started(context, "dpo", values, as_json)


@app.command()
def simpo(context: typer.Context, values: Set = None, as_json: Json = False) -> None:
    """Train as `dpo`, but per token and without a reference model; the success must lead by a margin (SimPO)."""
    _journalled(context)
    _started(context, "simpo", values, as_json)


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
    from evolve.training import training_session
    from evolve.training.start import joined

    joined()
    config = load(context)
    with _progress(as_json) as (report, named):
        done = training_session.resume(config, name, report, named)
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
    follow: Annotated[
        bool, typer.Option("--follow", help="Hand over each line as it comes, until the training ends.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Hand a training's figures to trackio or MLflow, as a run of the project `evolve` there."""
    from evolve.training.tracker_export import export

    where = export(load(context), name, to, follow=follow)
    show({"training": name, "to": to, "where": where}, as_json, f"{name} is in {where}")


def _started(context: typer.Context, recipe: str, values: list[str] | None, as_json: bool) -> None:
    from evolve.training.start import joined, start

    joined()
    config = configured(context, recipe, values)
    with _progress(as_json) as (report, named):
        done = start(config, recipe, report, named)
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
def _progress(as_json: bool) -> Generator[tuple[Callable[[dict[str, float]], None], Callable[[str], None]]]:
    """Give what draws the figures, and what says the training's name; both say nothing with `--json`."""
    if as_json:
        yield (lambda _: None), (lambda _: None)
        return

    with Figures() as shown:
        yield shown.report, lambda name: say(f"training {name}; `evolve train status` says how far it is", error=True)


def _line(figures: Mapping[str, float], names: Sequence[str]) -> str:
    return "  ".join(f"{name} {figures[name]:.4g}" for name in names if name in figures)


def _told(done: Trained, as_json: bool) -> None:
    if done.stopped and not as_json:
        say(f"stopped early: {done.stopped}; what follows was made before that")
    if done.best_iteration is not None and not as_json:
        solved = f"{done.eval_success:.0%} of the held-out tasks"
        say(f"taken are the weights after iteration {done.best_iteration}, which solved the most: {solved}")
    if done.weighed and not as_json:
        table([each.model_dump() for each in done.weighed], False)
    experts = f"{done.experts} not said by these weights, " if done.experts else ""
    for world in () if as_json else done.left_out:
        say(f"no task was drawn from {world}; the gate measures it")
    text = (
        f"{done.generation} is a candidate after {done.updates} updates on {done.examples} examples "
        f"({experts}{done.tokens} trained tokens); it stands in {done.folder}; next: evolve policy gate "
        f"{done.generation}"
    )
    show(done.model_dump(mode="json"), as_json, text)


COLUMNS = {
    "iteration": "iteration",
    "epoch": "epoch",
    "update": "update",
    "eval_success": "held-out",
    "success": "success",
    "reward": "reward",
    "groups_differ": "differ",
    "written": "written",
    "valid": "valid",
    "skill_use": "skill use",
    "retries": "retries",
    "retries_better": "better",
    "branches": "branches",
    "loss": "loss",
    "entropy": "entropy",
    "rollout_kl": "KL",
    "rollout_tokens_per_s": "tokens/s",
    "staleness": "staleness",
    "stale": "stale",
    "seconds": "seconds",
    "left": "left",
}
"""Figure -> heading; all other figures are in the training's `metrics.jsonl`. `written`: tokens of an episode;
`differ`: groups whose rewards do; `tokens/s`: of rollouts. Of `trl_async`: how many updates the version of a row is old
(`staleness`), how many rows were too old (`stale`)."""
RATES = ("eval_success", "success", "groups_differ", "valid", "skill_use")
COUNTED = ("iteration", "epoch", "update", "retries", "retries_better", "branches", "stale")
ROWS = 15
"""Rows that stay on the screen."""


class Figures:
    """A reporter that draws. Use as a context manager; prints to stderr, so that stdout stays for results."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True)
        self._clock, self._last = clock, 0.0
        self._rows: list[dict[str, str]] = []
        self._took: list[float] = []
        self._live = Live(console=self.console, auto_refresh=False)

    def __enter__(self) -> Figures:
        self._last = self._clock()
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def report(self, figures: Mapping[str, float]) -> None:
        """Draw the figures of one iteration or update."""
        now = self._clock()
        self._took.append(now - self._last)
        self._last = now
        told = dict(figures) | {"seconds": self._took[-1]}  # of the whole iteration, not of its update alone
        row = {name: _cell(name, told[name]) for name in COLUMNS if name in told}
        row["left"] = str(timedelta(seconds=round(self._left(figures))))
        self._rows = [*self._rows, row][-ROWS:]
        if self.console.is_terminal:
            self._live.update(self._table(), refresh=True)
        else:
            text = "  ".join(f"{COLUMNS[name]} {value}" for name, value in row.items())
            self.console.print(plain(text), markup=False, highlight=False, soft_wrap=True)

    def _left(self, figures: Mapping[str, float]) -> float:
        """Return the seconds that the rest will take, if it goes on as it mostly went."""
        if "iteration" in figures:
            return median(self._took) * (figures["iterations"] - figures["iteration"] - 1)
        return median(self._took) * (figures["updates"] - figures["update"])

    def _table(self) -> Table:
        drawn = Table(box=None, pad_edge=False, header_style="bold")
        names = [name for name in COLUMNS if any(name in row for row in self._rows)]
        for name in names:
            drawn.add_column(COLUMNS[name], justify="right")
        for row in self._rows:
            drawn.add_row(*(row.get(name, "-") for name in names))
        return drawn


def _cell(name: str, value: float) -> str:
    if name in COUNTED:
        return str(int(value))
    return f"{value:.0%}" if name in RATES else f"{value:.3g}"
