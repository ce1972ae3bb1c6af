"""The names of gates, and the stacks that `default` stands for."""

from __future__ import annotations

from collections.abc import Sequence

DEFAULT = "default"
CANARY = "canary"
EXEMPLARS = "exemplars"
DEFAULT_STACK = ("static", EXEMPLARS, "batch_screen", "held_out", CANARY)
"""Where tasks can be run again: read it, measure exemplars together where there are some, run what it was written from,
run what it was not written from, and at last what needs no lesson, where an environment has such tasks."""
LIVE_STACK = ("static", "online_ab")
"""Where they cannot: read it, then hide it from some tasks by chance."""
UNGRADED_STACK = ("static",)
"""Where no outcome may be read: read it."""
RUNS_TASKS = frozenset({"batch_screen", "canary", "exemplars", "held_out", "replay", "utility"})
"""Gates that run tasks of their own; their calls are capped by `gate.calls_ratio`."""


def expanded(
    names: Sequence[str], *, live: bool = False, graded: bool = True, canaries: bool = True, exemplars: bool = False
) -> tuple[str, ...]:
    """Return the names with `default` replaced by its stack, each once.

    `live`: tasks cannot be run again; not `graded`: no outcome may be read; not `canaries`: there are none;
    `exemplars`: they are on.
    """
    stack = UNGRADED_STACK if not graded else LIVE_STACK if live else DEFAULT_STACK
    left_out = {name for name, there in ((CANARY, canaries), (EXEMPLARS, exemplars)) if not there}
    stack = tuple(name for name in stack if name not in left_out)
    return tuple(dict.fromkeys(each for name in names for each in (stack if name == DEFAULT else (name,))))
