"""The current run, for log lines: its id, the version of its policy and the last snapshot that it marked."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

LINES = "logs"
"""Folder of a workspace with what the command logged, a file a day."""

_run: ContextVar[dict[str, str] | None] = ContextVar("run", default=None)


@contextmanager
def about_run(run_id: str, policy_version: str) -> Generator[None]:
    """Let what is logged inside say which run it belongs to."""
    token = _run.set({"run_id": run_id, "policy_version": policy_version})
    try:
        yield
    finally:
        _run.reset(token)


def at_snapshot(snapshot_id: str) -> None:
    """Note that the run marked this snapshot: from now on its lines name it, whichever task of the run writes them."""
    if (known := _run.get()) is not None:
        known["snapshot_id"] = snapshot_id


def this_run() -> Mapping[str, str]:
    """Return what is known of the run; empty outside of one."""
    return _run.get() or {}


def erase_lines(workspace: Path) -> None:
    """Empty the files of log lines; a process that has one open goes on at its new end."""
    for file in (workspace / LINES).glob("*.jsonl"):
        file.write_bytes(b"")
