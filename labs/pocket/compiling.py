"""Compilation of small tensor functions on their first call, which can be switched off where no compiler is."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from typing import ParamSpec, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")


class Compiling:
    """The switch: `Compiling.on = False` makes every `compiled` function run as written."""

    on = True


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile `function` with torch when it is first called, for any sizes. Decorating imports no compiler."""

    @cache
    def fast() -> Callable[P, R]:
        return torch.compile(function, dynamic=True)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        return fast()(*args, **kwargs) if Compiling.on else function(*args, **kwargs)

    return call
