"""Live streams: an environment whose tasks cannot be run again says `live = True`, and then nothing may repeat one.

There, and where no tasks are set aside to select on, gate `default` tests on the stream itself.
"""

from __future__ import annotations

from evolve.config.model import Config
from evolve.errors import ConfigError
from evolve.gates.splits import splits_there
from evolve.gates.stack import CANARY, DEFAULT, RUNS_TASKS, expanded
from evolve.protocols import Environment, HasCanaries


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
        (
            config.run.attempts > 1,
            f"run.attempts = {config.run.attempts}",
            "leave it at 1, and name another run.judge" if config.run.judge == "agreement" else "leave it at 1",
        ),
        (
            config.playbook.distill.revise > 0,
            f"playbook.distill.revise = {config.playbook.distill.revise}",
            "leave it at 0",
        ),
        (config.controls.aa, "controls.aa", "leave it out"),
        (share not in ("auto", 0), f"controls.no_memory = {share}", "leave it out"),
    )
    for wanted, what, instead in asked:
        if wanted:
            raise ConfigError(f"tasks of {environment.name!r} cannot be run again, and {what} does so; {instead}")


def gates_of(config: Config, environment: Environment | None) -> tuple[str, ...]:
    """Return the names of the gates with what `default` stands for here; without an environment nothing can be run."""
    unable = environment is None or bool(_unable(config, environment))
    canaries = isinstance(environment, HasCanaries)
    graded, exemplars = not config.run.label_free, config.exemplars.enabled
    return expanded(config.gate.names, live=unable, graded=graded, canaries=canaries, exemplars=exemplars)


def stack_sentence(config: Config, environment: Environment) -> str:
    """Return which gates `default` stands for here and why, in words; empty where it is not named."""
    if DEFAULT not in config.gate.names:
        return ""
    why = _unable(config, environment) or f"tasks of {environment.name} can be run again"
    if config.run.label_free:
        why = "run.label_free: no outcome is read, so nothing is measured"
    names = gates_of(config, environment)
    left_out = "held_out" in names and CANARY not in names
    without = f"; {CANARY} is left out: {environment.name} has no canary tasks" if left_out else ""
    return f"gates: {' -> '.join(names)} ({why}{without})"


def _unable(config: Config, environment: Environment) -> str:
    """Return why `default` can run no tasks here; empty where it can, or is not named."""
    if DEFAULT not in config.gate.names:
        return ""
    if is_live(environment):
        return f"tasks of {environment.name} cannot be run again"
    split = config.run.dev_split
    return "" if splits_there(config, environment, [split]) else f"{environment.name} has no tasks in split {split!r}"
