"""Run, train (on the journal, or by rollouts), gate, promote, and again: unattended, and taken up where it was killed.

Every step is one that the command line offers by itself, and is known by what it left behind: a run by its
configuration, a training by its name, a verdict and a promotion by the registry. `cycle.json` says how far each round
came; a step that was done and not noted is found done, not done twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from evolve.config.model import Config
from evolve.config.training import FROM_LOGS
from evolve.environments.task_files import load_tasks
from evolve.errors import ConfigError
from evolve.generations import workspace_registry as generations
from evolve.loop.assembly import make_environment, open_store
from evolve.loop.probing import probe_texts
from evolve.loop.runs import DONE, RunRecord, exclusive
from evolve.loop.session import resume, run
from evolve.seeds import seed_for
from evolve.training import ledger
from evolve.training.promotion_gate import judged
from evolve.training.start import start
from evolve.training.supervised import NoExamples
from memory.errors import BadInput
from memory.records import Frozen
from policies.generations.swap import swap
from policies.rl.ranks import world_size
from policies.rl.trainer import NothingToPublish

FILE = "cycle.json"


class Round(Frozen):
    """How far a round came; what is empty is not done yet."""

    number: int
    every: int
    """Tasks of its run."""
    recipe: str = "sft"
    """How it trains."""
    run_id: str = ""
    solved: float | None = None
    """Share of its tasks."""
    candidate: str = ""
    accepted: bool | None = None
    reason: str = ""
    live: str = ""
    """What answers from then on; set last."""


class Cycle(Frozen):
    """The rounds so far, in order."""

    rounds: tuple[Round, ...] = ()

    def saved(self, path: Path, latest: Round) -> Cycle:
        """Return and write it with the latest state of a round."""
        done = (*(each for each in self.rounds if each.number != latest.number), latest)
        state = Cycle(rounds=done)
        ledger.write(path, state.model_dump_json(indent=2))
        return state


def cycle(
    config: Config,
    every: int,
    rounds: int,
    report: Callable[[Round], None] = lambda _: None,
    *,
    recipe: str = "sft",
    allow_missing: bool = False,
) -> Cycle:
    """Do as many rounds of `every` train tasks each, those that were done before included.

    `report` is told a round after each step. Raises `BadInput` where the environment has too few train tasks, the
    cycle was begun with rounds of another size, a round under way with another `recipe`, and as `judged`;
    `ConfigError` in one of several processes.
    """
    if world_size() > 1:
        raise ConfigError(f"a cycle is done by one process, got {world_size()}; torchrun starts `evolve train` alone")
    have, need = len(load_tasks(config, make_environment(config), config.run.split)), every * rounds
    if have < need:
        raise BadInput(
            f"split {config.run.split!r} has {have} tasks, and {rounds} rounds of {every} need {need}; ask for fewer, "
            "or give the environment more"
        )
    folder = config.workspace / generations.FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    with exclusive(config.workspace, "cycle"):
        state = read(config)
        for number in range(rounds):
            fresh = Round(number=number, every=every, recipe=recipe)
            latest = next((each for each in state.rounds if each.number == number), fresh)
            if latest.every != every:
                raise BadInput(f"this cycle was begun with rounds of {latest.every} tasks, got {every}; keep to it")
            if latest.recipe != recipe and not latest.live:
                raise BadInput(f"round {number + 1} was begun with recipe {latest.recipe}, got {recipe}; end it so")
            earlier = {each.candidate for each in state.rounds if each.number < number}
            while not latest.live:
                latest = _step(config, latest, earlier, allow_missing)
                state = state.saved(folder / FILE, latest)
                report(latest)
    return state


def read(config: Config) -> Cycle:
    """Return what was done of the workspace's cycle."""
    path = config.workspace / generations.FOLDER / FILE
    return Cycle.model_validate_json(path.read_text()) if path.exists() else Cycle()


def _step(config: Config, latest: Round, earlier: Collection[str], allow_missing: bool) -> Round:
    """Do the next step of a round; `earlier` are the candidates of those before."""
    if not latest.run_id:
        done: dict[str, Any] = _worked(config, latest)
    elif not latest.candidate and not latest.reason:
        done = _trained(config, latest, earlier)
    elif latest.accepted is None and latest.candidate:
        trial = judged(config, latest.candidate, allow_missing=allow_missing)
        done = {"accepted": trial.accepted, "reason": trial.reason}
    else:
        done = {"live": _promoted(config, latest)}
    return latest.model_copy(update=done)


def _worked(config: Config, latest: Round) -> dict[str, Any]:
    """Run the round's tasks, or go on with the run that was begun for them."""
    section = config.run.model_copy(update={"tasks": latest.every, "skip": latest.number * latest.every})
    own = config.model_copy(update={"run": section})
    with open_store(own, len) as store:
        records = [RunRecord.model_validate(data) for data in store.runs()]
    begun = next((each for each in records if each.config_hash == own.digest), None)
    if begun is not None and begun.status == DONE:
        return {"run_id": begun.run_id}
    result = resume(own, begun.run_id) if begun else run(own)
    if result.status != DONE:
        raise BadInput(f"run {result.run_id} stopped ({result.reason}); raise the budget and start the cycle again")
    return {"run_id": result.run_id, "solved": result.metrics.tgc if result.metrics else None}


def _trained(config: Config, latest: Round, earlier: Collection[str]) -> dict[str, Any]:
    """Train by the round's recipe; the same data makes the same candidate, which had its trial.

    What stops a training so that the same command goes on (a world that broke) leaves the round open. Rollouts are
    sampled by a seed of the round's own, else a round after a refusal would repeat the one before.
    """
    if latest.recipe not in FROM_LOGS:
        section = config.run.model_copy(update={"seed": seed_for(config.run.seed, "round", latest.number)})
        config = config.model_copy(update={"run": section})
    try:
        made = start(config, latest.recipe).generation
    except (NoExamples, NothingToPublish) as nothing:
        return {"reason": str(nothing)}
    return {"reason": f"this round taught nothing new: {made} again"} if made in earlier else {"candidate": made}


def _promoted(config: Config, latest: Round) -> str:
    """Promote what was accepted, unless that was done before; return what is live."""
    texts = probe_texts(config)
    with generations.open_registry(config.policy, config.workspace) as registry:
        if latest.accepted and registry.live().version != latest.candidate:
            asyncio.run(generations.inspected(config.policy, registry, swap, latest.candidate, texts=texts))
        return registry.live().version
