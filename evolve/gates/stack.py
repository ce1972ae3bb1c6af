"""The names of gates, and the stack that `default` stands for."""

from __future__ import annotations

from collections.abc import Sequence

DEFAULT = "default"
DEFAULT_STACK = ("static", "batch_screen", "held_out")
"""Where tasks can be run again: read it, run what it was written from, run what it was not written from."""
RUNS_TASKS = frozenset({"batch_screen", "canary", "held_out", "utility"})
"""Gates that run tasks of their own; their calls are capped by `gate.calls_ratio`."""


def expanded(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names with `default` replaced by its stack, each once."""
    return tuple(dict.fromkeys(each for name in names for each in (DEFAULT_STACK if name == DEFAULT else (name,))))
