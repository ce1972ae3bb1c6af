"""Makes the gates that run tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evolve.config.model import Config
from evolve.errors import ConfigError
from evolve.gates import online_ab, utility
from evolve.gates.account import verdicts
from evolve.gates.batch_screen import BatchScreen
from evolve.gates.canary import SLICE, Canary
from evolve.gates.coverage import Covered
from evolve.gates.evaluator import Evaluator
from evolve.gates.exemplars import Exemplars
from evolve.gates.held_out import HeldOut
from evolve.gates.held_out_rules import Rules
from evolve.gates.online_ab import OnlineAB
from evolve.gates.replay import Replay
from evolve.gates.splits import select_tasks, slices
from evolve.gates.utility import Utility
from evolve.protocols import Environment, HasCanaries
from memory.protocols import Gate
from memory.records import Task

_TRIES = frozenset({BatchScreen.name, HeldOut.name, Replay.name, Utility.name})


@dataclass(frozen=True)
class Bench:
    """What a gate needs to run tasks."""

    evaluator: Evaluator
    stream: tuple[Task, ...]
    """The tasks that knowledge is written from."""


def make(name: str, config: Config, bench: Bench | None) -> Gate:
    """Return the gate `batch_screen`, `canary`, `exemplars`, `held_out`, `replay` or `utility`.

    Where `canary` is named too, its tasks are a protected slice of `held_out`.

    Raises `ConfigError` where nothing can run tasks again or no outcome may be read, `BadInput` as `select_tasks`.
    """
    if bench is None:
        raise ConfigError(f"gate {name!r} runs tasks again, and here nothing can run them; name 'static' or 'none'")
    _refuse_label_free(name, config)
    evaluator, seed = bench.evaluator, config.run.seed
    if name == BatchScreen.name:
        return BatchScreen(evaluator, seed)
    if name == Replay.name:
        return Replay(evaluator.environment, seed, evaluator.trials)
    if name == Canary.name:
        return Canary(evaluator, canary_tasks(evaluator.environment), seed)
    tasks = select_tasks(config, evaluator.environment, bench.stream)
    if name == Utility.name:
        rules = utility.Rules(alpha=config.gate.error, trust=config.gate.trust)
        return Utility(evaluator, tasks, seed, rounds=config.gate.rounds, rules=rules)
    store, namespace = evaluator.store, config.memory.namespace
    canaries = canary_tasks(evaluator.environment) if Canary.name in config.gate.names else ()
    protected = dict(slices(config, tasks)) | ({SLICE: tuple(task.id for task in canaries)} if canaries else {})
    asked = (*tasks, *canaries)
    gate = HeldOut(
        evaluator, asked, seed, rules=rules_of(config), slices=protected, past=lambda: verdicts(store, namespace)
    )
    if name == Exemplars.name:
        return Exemplars(gate, lambda: verdicts(store, namespace), floor=config.gate.trust)
    return gate


def exercised(gates: Sequence[Gate], bench: Bench | None) -> tuple[Gate, ...]:
    """Return the gates; the last that tries proposals out admits only skills whose code was exercised (`Covered`)."""
    at = max((at for at, gate in enumerate(gates) if gate.name in _TRIES), default=-1)
    if bench is None or at < 0:
        return tuple(gates)
    last = Covered(gates[at], bench.evaluator.environment, bench.evaluator.trials)
    return (*gates[:at], last, *gates[at + 1 :])


def rules_of(config: Config) -> Rules:
    """Return how `held_out` decides."""
    gate = config.gate
    return Rules(mode=gate.mode, alpha=gate.alpha, first=gate.first_stage, trust=gate.trust)


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
