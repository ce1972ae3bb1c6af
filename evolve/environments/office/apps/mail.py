"""Mail: search, send, forward, archive. What was sent cannot be taken back."""

from __future__ import annotations

from typing import Any

from evolve.environments.office.apps.spec import App, Function, OfficeError, Wrote, listing, pick, row_of
from evolve.environments.office.tables import State


def search(state: State, subject: str, page: str = "0") -> dict[str, Any]:
    """Find a mail by its subject on a result page (the first page by default): id and sender."""
    return pick(state, "mails", subject=subject)


def read(state: State, id: str) -> str:
    """Return the text of a mail."""
    return str(row_of(state, "mails", id)["body"])


def subjects(state: State) -> list[str]:
    """List all subjects."""
    return listing(state, "mails", "subject")


def send(state: State, to: str, subject: str, priority: str) -> Wrote:
    """Send a mail to a contact, with a priority (normal, low, high)."""
    return Wrote(
        "mails", state.add("mails", "m", {"to": to, "subject": subject, "sender": "me", "body": "", "folder": "sent"})
    )


def forward(state: State, id: str, to: str, cc: str) -> Wrote:
    """Forward a mail to a contact (by id), with a copy to nobody, boss, audit or legal."""
    row = row_of(state, "mails", id)
    copied = {
        "to": to,
        "subject": row["subject"],
        "sender": "me",
        "body": row["body"],
        "folder": "sent",
        "of": id,
        "cc": cc,
    }
    return Wrote("mails", state.add("mails", "m", copied))


def archive(state: State, id: str, folder: str) -> Wrote:
    """Move a mail to a folder (done, old, vault)."""
    row = row_of(state, "mails", id)
    if row["folder"] != "inbox":
        raise OfficeError(f"mail {id} is not in the inbox")
    row["folder"] = folder
    return Wrote("mails", id)


def sync(state: State) -> None:
    """Synchronise the mailbox."""


def scan(state: State) -> None:
    """Scan the mailbox."""


FUNCTIONS: App = {
    "search": Function("read", search),
    "read": Function("read", read),
    "list": Function("read", subjects),
    "send": Function("write", send),
    "forward": Function("write", forward),
    "archive": Function("write", archive),
    "sync": Function("prepare", sync),
    "scan": Function("prepare", scan),
}
