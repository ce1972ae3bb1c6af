"""Todo: things to do, with a due date and an owner."""

from __future__ import annotations

from typing import Any

from evolve.environments.office.apps.date_formats import DATE_FORMATS
from evolve.environments.office.apps.spec import App, Function, OfficeError, Wrote, listing, pick, row_of
from evolve.environments.office.tables import State


def find(state: State, title: str) -> dict[str, Any]:
    """Find a todo by title: its id."""
    return pick(state, "todos", title=title)


def titles(state: State) -> list[str]:
    """List all titles."""
    return listing(state, "todos", "title")


def add(state: State, title: str, due: str, board: str) -> Wrote:
    """Add a todo with a due date, on a board (home, office, team)."""
    return Wrote(
        "todos", state.add("todos", "t", {"title": title, "due": due, "board": board, "done": False, "owner": None})
    )


def complete(state: State, id: str) -> Wrote:
    """Mark a todo as done. Cannot be undone."""
    row = row_of(state, "todos", id)
    if row["done"]:
        raise OfficeError(f"todo {id} is done already")
    row["done"] = True
    return Wrote("todos", id)


def assign(state: State, id: str, who: str) -> Wrote:
    """Give a todo to a contact."""
    row_of(state, "todos", id)["owner"] = who
    return Wrote("todos", id)


def start(state: State) -> None:
    """Start working."""


def claim(state: State) -> None:
    """Claim the board."""


def ping(state: State, id: str) -> Wrote:
    """Ping the owner of a todo."""
    row_of(state, "todos", id)
    return Wrote("todos", id)


def log(state: State, id: str) -> Wrote:
    """Log a change of a todo."""
    row_of(state, "todos", id)
    return Wrote("todos", id)


FUNCTIONS: App = {
    "find": Function("read", find),
    "list": Function("read", titles),
    "add": Function("write", add),
    "complete": Function("write", complete),
    "assign": Function("write", assign),
    "start": Function("prepare", start),
    "claim": Function("prepare", claim),
    "ping": Function("follow", ping),
    "log": Function("follow", log),
    **DATE_FORMATS,
}
