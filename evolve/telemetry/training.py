"""Spans of a training: iterations and updates, on the journal updates alone.

Pure functions with the parameters of what is watched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evolve.telemetry import names
from evolve.telemetry.described import Begun, Noted


def iteration(worlds: Sequence[Any], learning: Any, plan: Any, folder: Path, iteration: int) -> Begun:
    """Return the span of a batch of rollouts and what was learned from it; the episodes stand below it."""
    del worlds, learning, plan, folder
    return Begun("evolve.iteration", {names.ITERATION: iteration}, _figures)


def update(learning: Any, rows: Sequence[Any], advantages: Sequence[Any]) -> Begun:
    """Return the span of one update of the weights."""
    del advantages
    return Begun("evolve.update", {names.POLICY_VERSION: learning.policy.version, names.ROWS: len(rows)}, _figures)


def fitting(trainer: Any, rows: Sequence[Any], advantages: Sequence[Any]) -> Begun:
    """Return the span of one update on rows of the journal."""
    del trainer, advantages
    return Begun("evolve.update", {names.ROWS: len(rows)}, _figures)


def _figures(figures: Mapping[str, float]) -> Noted:
    return Noted({names.FIGURE + name: value for name, value in figures.items() if name != "iteration"})
