"""What `import evolve` offers, and where each name lives. Its twin for type checkers is `evolve/__init__.pyi`."""

from __future__ import annotations

from collections.abc import Mapping

_NAMES = {
    "evolve.agent": ("Agent",),
    "evolve.config": ("Config",),
    "evolve.configfile": ("load_config",),
    "evolve.errors": ("ConfigError", "EnvironmentFailure", "UserCodeError"),
    "evolve.evaluate": ("EvalReport",),
    "evolve.metrics": ("Metrics",),
    "evolve.progress": ("Observer", "Progress"),
    "evolve.protocols": ("Action", "Environment", "Episode", "StepResult"),
    "evolve.session": ("Parts", "RunResult", "arun", "aresume", "resume", "run"),
    "evolve.skilled.seeding": ("add_skill",),
    "memory.errors": ("EvolveError",),
    "memory.records": ("Check", "Outcome", "Step", "Task", "Trajectory"),
}

HOME: Mapping[str, str] = {name: module for module, names in _NAMES.items() for name in names}
"""Public name -> module that defines it."""
