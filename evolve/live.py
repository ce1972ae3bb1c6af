"""Live streams: an environment whose tasks cannot be run again says `live = True`, and then nothing may repeat one."""

from __future__ import annotations

from evolve.config import Config
from evolve.errors import ConfigError
from evolve.gates.stack import DEFAULT, RUNS_TASKS, expanded
from evolve.protocols import Environment


def is_live(environment: Environment) -> bool:
    """Tell whether the tasks of an environment cannot be run again."""
    return bool(getattr(environment, "live", False))


def refuse_repeats(config: Config, environment: Environment) -> None:
    """Raise `ConfigError` where the configuration would run a task of a live environment a second time."""
    if not is_live(environment):
        return
    gates = [name for name in config.gate.names if name in RUNS_TASKS]
    share = config.controls.no_memory
    asked = (
        (bool(gates), f"gate {gates[0]!r}" if gates else "", "name 'default', or 'static' and 'online_ab'"),
        (config.run.mode == "offline", "run.mode = 'offline'", "use 'online'"),
        (config.run.attempts > 1, f"run.attempts = {config.run.attempts}", "leave it at 1"),
        (config.controls.aa, "controls.aa", "leave it out"),
        (share not in ("auto", 0), f"controls.no_memory = {share}", "leave it out"),
    )
    for wanted, what, instead in asked:
        if wanted:
            raise ConfigError(f"tasks of {environment.name!r} cannot be run again, and {what} does so; {instead}")


def stack_sentence(config: Config, environment: Environment) -> str:
    """Return which gates `default` stands for here, in words; empty where it is not named."""
    if DEFAULT not in config.gate.names:
        return ""
    live = is_live(environment)
    why = "cannot" if live else "can"
    names = " -> ".join(expanded(config.gate.names, live=live))
    return f"gates: {names} (tasks of {environment.name} {why} be run again)"
