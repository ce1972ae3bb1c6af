"""App functions: the role of each decides what the office does around the call."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from evolve.environments.office.tables import State

Role = Literal["read", "write", "prepare", "follow", "format"]
"""`prepare` may have to come before a write, `follow` after one; `format` converts a value and touches nothing."""


class OfficeError(ValueError):
    """What the office answers to a call it refuses."""


@dataclass(frozen=True)
class Wrote:
    """The row a write touched: the office files under it how the house rules were followed."""

    table: str
    row_id: str


@dataclass(frozen=True)
class Function:
    """One endpoint of an app. `run` takes the state first, then the documented arguments."""

    role: Role
    run: Callable[..., Any]

    @property
    def signature(self) -> str:
        """The documented arguments, e.g. `(name, group)`."""
        names = list(inspect.signature(self.run).parameters.values())[1:]
        return f"({', '.join(p.name if p.default is p.empty else f'{p.name}={p.default!r}' for p in names)})"

    @property
    def doc(self) -> str:
        return (self.run.__doc__ or "").strip()


App = dict[str, Function]


def pick(state: State, table: str, **wanted: str) -> dict[str, Any]:
    """Return the one row whose fields equal `wanted`, with its id; raise OfficeError when there is none."""
    for row_id, row in state.tables[table].items():
        if all(row.get(field) == value for field, value in wanted.items()):
            return {"id": row_id, **visible(row)}
    raise OfficeError(f"nothing found in {table} for {', '.join(map(str, wanted.values()))}")


def row_of(state: State, table: str, row_id: str) -> dict[str, Any]:
    """Return a row by id; raise OfficeError when there is none."""
    row = state.tables[table].get(row_id)
    if row is None:
        raise OfficeError(f"no such id in {table}: {row_id!r}")
    return row


def visible(row: dict[str, Any]) -> dict[str, Any]:
    """Return what an agent may see of a row: not how the office files it."""
    return {
        field: value
        for field, value in row.items()
        if field not in {"house", "body", "text", "phone", "folder", "shared"}
    }


def listing(state: State, table: str, field: str) -> list[str]:
    """Return one field of every row, in order of id."""
    return [row[field] for row in state.tables[table].values()]
