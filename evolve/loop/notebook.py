"""Builds the curator of the mistake notebook from the configuration and an open workspace."""

from __future__ import annotations

from collections.abc import Callable

from evolve.config.model import Config
from evolve.episode.injection import shown_again
from evolve.episode.skill_runtime.credit import faults
from evolve.errors import ConfigError
from evolve.seeds import id_for
from memory.records import Event, Reflection, Trajectory
from memory.store import Store
from playbooks.notebook.curator import Episodes, NotebookCurator, Settings
from playbooks.notebook.judge import Audit
from policies.roles import Policies

AUDIT = "notebook.audit"
"""Event: how the failures of one batch were found, by which judge, and which episodes have no verdict."""


def make_notebook(
    config: Config, policies: Policies, keep: Callable[[Reflection], object], store: Store | None
) -> NotebookCurator:
    """Return the curator: it reads episodes from `store`, embeds with its embedder and journals an audit per batch.

    Without grades (`run.label_free`) the judge says which episodes failed. Raises `ConfigError` without a store.
    """
    if store is None:
        raise ConfigError("curator 'notebook' reads failed episodes from a workspace; got none: give its store")

    def record(audit: Audit) -> None:
        subject = id_for("notebook", *audit.passed, *audit.failed, *audit.missing)
        if not store.events(type=AUDIT, subject=subject, limit=1):
            data = audit.model_dump(mode="json")
            store.append(Event(type=AUDIT, namespace=config.memory.namespace, subject=subject, data=data))

    settings = Settings(**config.notebook.model_dump(), label_free=config.run.label_free)

    def failed_uses(trajectory: Trajectory) -> tuple[str, ...]:
        return faults(trajectory, shown_again(store, trajectory.injected).skills)

    episodes = Episodes(store.trajectory, failed_uses, policies.judge)
    return NotebookCurator(policies.curator, store.embedder, episodes, settings=settings, keep=keep, record=record)
