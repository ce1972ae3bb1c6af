"""A number of the command line that is one: `float` reads nan too, and no bound refuses it."""

from __future__ import annotations

import math

import typer

LEAST_SHARE = 0.05
"""Of a GPU's memory that a server is given."""


def number(value: float | None) -> float | None:
    """Return an option's value as it is. Raises `BadParameter`, which names the option, for nan."""
    if value is not None and math.isnan(value):
        raise typer.BadParameter("nan is no number")
    return value
