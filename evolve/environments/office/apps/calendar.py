"""Calendar: events with a date and guests."""

from __future__ import annotations

from typing import Any

from evolve.environments.office.apps.date_formats import DATE_FORMATS
from evolve.environments.office.apps.spec import App, Function, Wrote, listing, pick, row_of
from evolve.environments.office.tables import State


def find(state: State, title: str) -> dict[str, Any]:
    """Find an event by title: id and date (ISO)."""
    return pick(state, "events", title=title)


def titles(state: State) -> list[str]:
    """List all titles."""
    return listing(state, "events", "title")


def add(state: State, title: str, date: str, guest: str, zone: str) -> Wrote:
    """Add an event with a guest (contact id), in a time zone (utc, local, hq)."""
    return Wrote("events", state.add("events", "e", {"title": title, "date": date, "guest": guest}))


def move(state: State, id: str, date: str) -> Wrote:
    """Move an event to another date (ISO)."""
    row_of(state, "events", id)["date"] = date
    return Wrote("events", id)


def cancel(state: State, id: str) -> Wrote:
    """Cancel an event. Cannot be undone."""
    row_of(state, "events", id)["date"] = None
    return Wrote("events", id)


def notify(state: State, id: str) -> Wrote:
    """Notify the guests of an event."""
    row_of(state, "events", id)
    return Wrote("events", id)


def publish(state: State, id: str) -> Wrote:
    """Publish an event again."""
    row_of(state, "events", id)
    return Wrote("events", id)


FUNCTIONS: App = {
    "find": Function("read", find),
    "list": Function("read", titles),
    "add": Function("write", add),
    "move": Function("write", move),
    "cancel": Function("write", cancel),
    "notify": Function("follow", notify),
    "publish": Function("follow", publish),
    **DATE_FORMATS,
}
