"""Files: named texts in folders, shared with people; and the seals of the control family."""

from __future__ import annotations

from typing import Any

from evolve.environments.office.apps.spec import App, Function, OfficeError, Wrote, listing, pick, row_of
from evolve.environments.office.tables import State


def find(state: State, name: str) -> dict[str, Any]:
    """Find a file by name: its id."""
    return pick(state, "files", name=name)


def read(state: State, id: str) -> str:
    """Return the text of a file."""
    return str(row_of(state, "files", id)["text"])


def names(state: State) -> list[str]:
    """List all names."""
    return listing(state, "files", "name")


def save(state: State, name: str, source: str, folder: str) -> Wrote:
    """Save the text of a mail (its id) as a file, in a folder (inbox, shared, work)."""
    text = row_of(state, "mails", source)["body"]
    if name in listing(state, "files", "name"):
        raise OfficeError(f"a file of that name exists: {name!r}")
    return Wrote("files", state.add("files", "f", {"name": name, "text": text, "folder": folder, "shared": {}}))


def share(state: State, id: str, user: str, mode: str) -> Wrote:
    """Share a file with a contact, in a mode (read, edit, link). Cannot be undone."""
    row_of(state, "files", id)["shared"][user] = mode
    return Wrote("files", id)


def remove(state: State, id: str) -> Wrote:
    """Delete a file. Cannot be undone."""
    row_of(state, "files", id)["folder"] = None
    return Wrote("files", id)


def seal(state: State, name: str, color: str) -> Wrote:
    """Seal a drawer with the wax colour that was agreed for it (red, green, blue, white)."""
    return Wrote("seals", state.add("seals", "s", {"name": name, "color": color}))


def kebab(state: State, text: str) -> str:
    """Write a name as words-with-hyphens."""
    return text.replace(" ", "-")


def upper(state: State, text: str) -> str:
    """Write a name in CAPITALS."""
    return text.upper()


FUNCTIONS: App = {
    "find": Function("read", find),
    "read": Function("read", read),
    "list": Function("read", names),
    "save": Function("write", save),
    "share": Function("write", share),
    "remove": Function("write", remove),
    "seal": Function("write", seal),
    "kebab": Function("format", kebab),
    "upper": Function("format", upper),
}
