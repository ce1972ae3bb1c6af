"""Payments: money sent and requested. What was sent cannot be taken back."""

from __future__ import annotations

from typing import Any

from evolve.environments.office.apps.spec import App, Function, Wrote, listing, pick
from evolve.environments.office.tables import State


def find(state: State, memo: str) -> dict[str, Any]:
    """Find a payment by its memo."""
    return pick(state, "payments", memo=memo)


def memos(state: State) -> list[str]:
    """List all memos."""
    return listing(state, "payments", "memo")


def send(state: State, to: str, amount: int, memo: str) -> Wrote:
    """Send an amount of money to a contact, with a memo."""
    return Wrote("payments", state.add("payments", "p", {"to": to, "cents": amount, "memo": memo}))


def request(state: State, payer: str, amount: float, memo: str, kind: str) -> Wrote:
    """Ask a contact (by id) for an amount of dollars, of a kind (personal, business, shared)."""
    row = {"payer": payer, "cents": round(amount * 100), "memo": memo}
    return Wrote("requests", state.add("requests", "r", row))


def cents(state: State, amount: float) -> int:
    """Convert dollars to whole cents."""
    return round(amount * 100)


def unlock(state: State) -> None:
    """Unlock the account."""


def verify(state: State) -> None:
    """Verify the account."""


FUNCTIONS: App = {
    "find": Function("read", find),
    "list": Function("read", memos),
    "send": Function("write", send),
    "request": Function("write", request),
    "cents": Function("format", cents),
    "unlock": Function("prepare", unlock),
    "verify": Function("prepare", verify),
}
