"""The loop: an agent works through tasks, and what it learns is kept, gated and rolled back.

Everything for users is a name of this module; each is loaded when it is first used.
"""

from evolve.shadow import refuse_shadowed_packages

refuse_shadowed_packages()

_HOMES = {
    "evolve.agent": ("Agent",),
    "evolve.config": ("Config",),
    "evolve.configfile": ("load_config",),
    "evolve.errors": ("ConfigError", "EnvironmentFailure"),
    "evolve.evaluate": ("EvalReport",),
    "evolve.metrics": ("Metrics",),
    "evolve.progress": ("Observer", "Progress"),
    "evolve.protocols": ("Action", "Environment", "Episode", "StepResult"),
    "evolve.session": ("Parts", "RunResult", "arun", "aresume", "resume", "run"),
    "memory.errors": ("EvolveError",),
    "memory.records": ("Check", "Outcome", "Step", "Task", "Trajectory"),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'evolve' has no attribute {name!r}; it offers {', '.join(__all__)}")
    from importlib import import_module

    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
