"""Makes the gates that run tasks. Each split has one role: write, select or report, and none shares a scenario."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evolve import app
from evolve.config import Config
from evolve.errors import ConfigError
from evolve.gates import online_ab, utility
from evolve.gates.account import looks
from evolve.gates.batch_screen import BatchScreen
from evolve.gates.canary import SLICE, Canary
from evolve.gates.evaluator import Evaluator
from evolve.gates.held_out import HeldOut, Rules
from evolve.gates.online_ab import OnlineAB
from evolve.gates.utility import Utility
from evolve.protocols import Environment, HasCanaries
from memory.errors import BadInput
from memory.protocols import Gate
from memory.records import Task


@dataclass(frozen=True)
class Bench:
    """What a gate needs to run tasks."""

    evaluator: Evaluator
    stream: tuple[Task, ...]
    """The tasks that knowledge is written from."""


def make(name: str, config: Config, bench: Bench | None) -> Gate:
    """Return the gate `batch_screen`, `canary`, `held_out` or `utility`.

    Where `canary` is named too, its tasks are a protected slice of `held_out`.

    Raises `ConfigError` where nothing can run tasks again or no outcome may be read, `BadInput` as `select_tasks`.
    """
    if bench is None:
        raise ConfigError(f"gate {name!r} runs tasks again, and here nothing can run them; name 'static' or 'none'")
    _refuse_label_free(name, config)
    evaluator, seed = bench.evaluator, config.run.seed
    if name == BatchScreen.name:
        return BatchScreen(evaluator, seed)
    if name == Canary.name:
        return Canary(evaluator, canary_tasks(evaluator.environment), seed)
    tasks = select_tasks(config, evaluator.environment, bench.stream)
    if name == Utility.name:
        rules = utility.Rules(alpha=config.gate.error)
        return Utility(evaluator, tasks, seed, rounds=config.gate.rounds, rules=rules)
    rules = Rules(mode=config.gate.mode, alpha=config.gate.alpha)
    store, namespace = evaluator.store, config.memory.namespace
    canaries = canary_tasks(evaluator.environment) if Canary.name in config.gate.names else ()
    slices = {SLICE: [task.id for task in canaries]} if canaries else {}
    return HeldOut(
        evaluator, (*tasks, *canaries), seed, rules=rules, slices=slices, past=lambda: looks(store, namespace)
    )


def make_online(config: Config) -> OnlineAB:
    """Return the gate `online_ab`. Raises `ConfigError` where no outcome may be read."""
    _refuse_label_free(OnlineAB.name, config)
    error = config.gate.error
    return OnlineAB(online_ab.Rules(probability=config.gate.hide, alpha=error, harm_alpha=error))


def _refuse_label_free(name: str, config: Config) -> None:
    if config.run.label_free:
        raise ConfigError(f"gate {name!r} reads outcomes, and run.label_free says that none is read; drop one of them")


def canary_tasks(environment: Environment) -> tuple[Task, ...]:
    """Return the environment's canary tasks. Raises `ConfigError` for one that has none."""
    if not isinstance(environment, HasCanaries):
        raise ConfigError(f"gate 'canary' needs canary tasks and {environment.name!r} has none; drop the gate")
    return tuple(environment.canaries())


def select_tasks(config: Config, environment: Environment, stream: Sequence[Task]) -> tuple[Task, ...]:
    """Return the tasks that admit knowledge. Raises `BadInput` when one is of a scenario of the stream."""
    split = config.gate.select_split
    chosen = app.load_tasks(config, environment, split)[: config.gate.select_tasks]
    written = {task.scenario or task.id for task in stream}
    shared = sorted({task.scenario or task.id for task in chosen} & written)
    if shared:
        more = f" and {len(shared) - 3} more" if len(shared) > 3 else ""
        raise BadInput(
            f"gate.select_split {split!r} shares scenario {', '.join(map(repr, shared[:3]))}{more} with the stream; "
            "expected tasks that no knowledge is written from: name another split, or another run.split"
        )
    return chosen
