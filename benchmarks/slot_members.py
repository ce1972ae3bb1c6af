"""Members of a training's slots, and every option of theirs, each as settings that train with it.

Members that need more than their name get it: turns are branched, and failures are retried.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints

from evolve.config.training import MEMBERS
from policies.rl import slots
from policies.rl.protocols import AdvantageEstimator

KEYS = {slot: key for key, slot in MEMBERS.items()}
"""Slot -> its key of `[train]`."""
NEEDS: dict[str, dict[str, Any]] = {
    "branching": {"train.branching.branches": 1},
    "transforms": {"train.retries": "rules", "train.advantages": "r3l", "train.loss": "sft"},
    "pass_at_k": {"train.rollouts": 2},  # it learns where one alone of a group succeeds
}
"""Slot, or member -> what a training needs beside it."""
INSTEAD = {
    "bapo.lower": 0.7,
    "bapo.most_lower": 0.9,
    "gdpo.weights": (0.25, 0.75),
    "mc_grpo.floor": 0.4,
    "masking.low": 0.5,
    "aepo.base": "rloo",
}
"""Values of options whose next value would not do, or says nothing by itself."""


@dataclass(frozen=True)
class Choice:
    """A member of a slot, and at most one option of it that is not as it ships."""

    slot: str
    member: str
    option: str = ""
    value: Any = None

    @property
    def name(self) -> str:
        """Return what a table calls it."""
        return f"{self.slot} {self.member}" + (f", {self.option} = {self.value!r}" if self.option else "")

    @property
    def settings(self) -> dict[str, Any]:
        """Return the keys of a training with it."""
        named = {"name": self.member} | ({self.option: self.value} if self.option else {})
        key = f"train.{KEYS[self.slot]}"
        return (
            NEEDS.get(self.slot, {})
            | NEEDS.get(self.member, {})
            | {f"{key}.{name}": value for name, value in named.items()}
        )


def members() -> Iterator[Choice]:
    """Yield each member of each slot, as it ships."""
    for slot in slots.SLOTS:
        for name in slots.names(slot):
            yield Choice(slot, name)


def options() -> Iterator[Choice]:
    """Yield each option of each member, with another value than its default."""
    for each in members():
        hints = _hints(each)
        for option, default in slots.options(each.slot, each.member).items():
            value = INSTEAD.get(f"{each.member}.{option}", _another(hints[option], default))
            yield Choice(each.slot, each.member, option, value)


def _hints(each: Choice) -> dict[str, Any]:
    member = slots.member(each.slot, each.member)
    return get_type_hints(member) if isinstance(member, type) or inspect.isfunction(member) else {}


def _another(hint: Any, default: Any) -> Any:
    """Return a value of a type that is not the default."""
    if hint is AdvantageEstimator:
        return "rloo"
    choices = [value for part in (hint, *get_args(hint)) if get_origin(part) is Literal for value in get_args(part)]
    if choices:
        return next(value for value in choices if value != default)
    if isinstance(default, bool):
        return not default
    if isinstance(default, int):
        return default + 1
    return 0.5 if default is None else 1.5 * default
