"""Which items and paths a LangGraph query means: filters over values, conditions over paths. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from langgraph.store.base import MatchCondition

from memory.errors import BadInput

_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "$eq": lambda value, wanted: value == wanted,
    "$ne": lambda value, wanted: value != wanted,
    "$gt": lambda value, wanted: float(value) > float(wanted),
    "$gte": lambda value, wanted: float(value) >= float(wanted),
    "$lt": lambda value, wanted: float(value) < float(wanted),
    "$lte": lambda value, wanted: float(value) <= float(wanted),
}


def passes(value: Mapping[str, Any], wanted: Mapping[str, Any] | None) -> bool:
    """Tell whether a value fits every part of a filter. Raises `BadInput` for an operator that does not exist."""
    return all(_fits(value.get(key), part) for key, part in (wanted or {}).items())


def _fits(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, dict):
        if any(str(name).startswith("$") for name in wanted):
            return all(_compares(value, str(name), bound) for name, bound in wanted.items())
        return isinstance(value, dict) and all(_fits(value.get(key), part) for key, part in wanted.items())
    if isinstance(wanted, list | tuple):
        return (
            isinstance(value, list | tuple)
            and len(value) == len(wanted)
            and all(_fits(one, other) for one, other in zip(value, wanted, strict=True))
        )
    return bool(value == wanted)


def _compares(value: Any, operator: str, bound: Any) -> bool:
    if operator not in _OPERATORS:
        raise BadInput(f"got filter operator {operator!r}, expected one of {', '.join(_OPERATORS)}")
    try:
        return _OPERATORS[operator](value, bound)
    except (TypeError, ValueError):  # no number, so neither more nor less
        return False


def matches(path: tuple[str, ...], condition: MatchCondition) -> bool:
    """Tell whether a path begins or ends as a condition says; `*` stands for any label."""
    wanted = tuple(condition.path)
    if len(path) < len(wanted):
        return False
    part = path[: len(wanted)] if condition.match_type == "prefix" else path[len(path) - len(wanted) :]
    return all(pattern in ("*", label) for label, pattern in zip(part, wanted, strict=True))
