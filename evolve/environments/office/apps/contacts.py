"""Contacts: who is who."""

from __future__ import annotations

from typing import Any

from evolve.environments.office.apps.spec import App, Function, Wrote, listing, pick, row_of
from evolve.environments.office.tables import State


def find(state: State, name: str) -> dict[str, Any]:
    """Find a contact by name: id, email and handle."""
    return pick(state, "contacts", name=name)


def get(state: State, id: str) -> dict[str, Any]:
    """Return a contact by id."""
    return {"id": id, **row_of(state, "contacts", id)}


def everyone(state: State) -> list[str]:
    """List all names."""
    return listing(state, "contacts", "name")


def add(state: State, name: str, group: str) -> Wrote:
    """Add a contact to a group (friends, clients, staff)."""
    row = {
        "name": name,
        "email": f"{name.lower()}@corp.org",
        "handle": f"@{name.lower()}",
        "phone": "0",
        "group": group,
    }
    return Wrote("contacts", state.add("contacts", "c", row))


def update(state: State, id: str, phone: str) -> Wrote:
    """Change the phone number of a contact."""
    row_of(state, "contacts", id)["phone"] = phone
    return Wrote("contacts", id)


def remove(state: State, id: str) -> Wrote:
    """Delete a contact. Cannot be undone."""
    row_of(state, "contacts", id)["name"] = None
    return Wrote("contacts", id)


def lock(state: State) -> None:
    """Lock the address book for editing."""


def checkout(state: State) -> None:
    """Check the address book out for editing."""


FUNCTIONS: App = {
    "find": Function("read", find),
    "get": Function("read", get),
    "list": Function("read", everyone),
    "add": Function("write", add),
    "update": Function("write", update),
    "remove": Function("write", remove),
    "lock": Function("prepare", lock),
    "checkout": Function("prepare", checkout),
}
