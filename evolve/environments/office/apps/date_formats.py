"""Date conversions that calendar and todo both offer."""

from __future__ import annotations

from evolve.environments.office import dates
from evolve.environments.office.apps.spec import App, Function
from evolve.environments.office.tables import State


def _dmy(state: State, date: str) -> str:
    """Write an ISO date as day.month.year."""
    return dates.dmy(date)


def _mdy(state: State, date: str) -> str:
    """Write an ISO date as month/day/year."""
    return dates.mdy(date)


DATE_FORMATS: App = {"dmy": Function("format", _dmy), "mdy": Function("format", _mdy)}
