"""Forgets a record, or a task with all drawn from it; a purge erases the text in logs, traces and rollouts as well."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from evolve.archive.backup import kept
from evolve.config.model import Config
from evolve.lookup import named
from evolve.loop.runlog import erase_lines
from evolve.training import rollout_store
from memory.errors import BadInput, EvolveError, NotFound
from memory.forget import Forgotten
from memory.records import Frozen
from memory.sqlite.telemetry_file import erase_content
from memory.store import Store


class ForgottenRow(Frozen):
    """What is gone, or would be."""

    records: tuple[str, ...]
    episodes: dict[str, int]
    """Arm -> episodes of the task; their figures stay."""
    runs: tuple[str, ...]
    """Runs whose episodes are concerned."""
    bodies: int
    """Stored texts erased whole."""
    quoted: dict[str, int]
    """Kind of event -> texts from which what was forgotten was cut out."""
    kept_descendants: tuple[str, ...]
    """Records made from a forgotten one that say something else."""
    namespaces: tuple[str, ...]
    """Namespaces that the records are in."""
    copies: tuple[str, ...]
    """Copies that still hold the text: delete them by hand."""


def preview(
    store: Store, config: Config, record: str | None = None, *, task: str | None = None, purge: bool = False
) -> Forgotten:
    """Return what `forget` would take, and change nothing. Raises as it."""
    found = store.forget_preview(_id(store, config, record), task_id=task, purge=purge)
    return _with(found, _copies(config, purge))


def forget(
    store: Store,
    config: Config,
    record: str | None = None,
    *,
    task: str | None = None,
    purge: bool = False,
    reason: str = "",
) -> Forgotten:
    """Forget a record, or a task with its episodes and all that was drawn from it; return what is gone.

    Raises `NotFound`, and `BadInput` unless exactly one of them was named.
    """
    copies = _copies(config, purge)
    try:
        gone = store.forget(_id(store, config, record), task_id=task, purge=purge, reason=reason)
    except (BadInput, NotFound):
        raise
    except EvolveError:  # the text is gone, and a part of the journal's file or an index asks for one more try
        if purge:
            _erase_beside(config)
        raise
    if purge:
        _erase_beside(config)
    return _with(gone, copies)


def _erase_beside(config: Config) -> None:
    """Erase all that traces, log lines and rollouts tell: any of it may quote what was forgotten."""
    erase_content(config.workspace)
    erase_lines(config.workspace)
    rollout_store.erase(config.workspace)


def as_row(gone: Forgotten) -> ForgottenRow:
    """Return what is gone, or would be, as plain values."""
    return ForgottenRow(
        records=gone.records,
        episodes=gone.episodes,
        runs=gone.runs,
        bodies=gone.bodies,
        quoted=gone.quoted,
        kept_descendants=gone.descendants,
        namespaces=gone.namespaces,
        copies=tuple(map(str, gone.backups)),
    )


def as_data(gone: Forgotten) -> dict[str, Any]:
    """Return the same as plain JSON values."""
    return as_row(gone).model_dump(mode="json")


def _id(store: Store, config: Config, record: str | None) -> str | None:
    if not record:
        return None
    try:
        return named(store, config.memory.namespace, record).id
    except NotFound:
        if gone := store.forgotten(config.memory.namespace, record):  # for a purge that comes later, or once more
            return gone
        raise


def _copies(config: Config, purge: bool) -> tuple[Path, ...]:
    return tuple(kept(config)) if purge else ()


def _with(gone: Forgotten, copies: Sequence[Path]) -> Forgotten:
    """Return it with the backups that still hold the text, too."""
    return replace(gone, backups=(*gone.backups, *copies))
