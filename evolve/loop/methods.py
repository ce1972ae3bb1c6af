"""Builds the writers of published methods from the configuration and an open workspace."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from evolve.config.model import Config
from evolve.errors import ConfigError
from evolve.seeds import id_for
from memory.records import Event, Reflection, Trust
from memory.store import Store
from playbooks.protocols import Curator
from policies.roles import Policies

if TYPE_CHECKING:
    from playbooks.methods.atlas import Session

LANE, TARGET, GROWTH = "atlas.lane", "regimes.target", "yunjue.growth"
"""Events: which supervision an episode got and why; the failures of a batch by regime; what a batch added."""


def growth(store: Store, namespace: str, trajectory_ids: Collection[str]) -> float | None:
    """Return new records / tasks over the batches of these episodes (method `yunjue`); None where it wrote none."""
    found = [event.data for event in store.events(type=GROWTH, namespace=namespace)]
    mine = [data for data in found if not set(trajectory_ids).isdisjoint(data.get("trajectory_ids", ()))]
    tasks = sum(data["tasks"] for data in mine)
    return sum(data["new"] for data in mine) / tasks if tasks else None


def curators(
    config: Config, policies: Policies, keep: Callable[[Reflection], object], store: Store | None
) -> Mapping[str, Callable[[], Curator]]:
    """Return name -> maker. A maker whose curator reads the workspace raises `ConfigError` without a store."""
    writers = _Writers(config, policies, keep, store)
    makers: tuple[Callable[[], Curator], ...] = (
        writers.append,
        writers.evolver,
        writers.cheatsheet,
        writers.atlas,
        writers.release,
        writers.regimes,
        writers.batch,
    )
    return {maker.__name__: maker for maker in makers}


@dataclass(frozen=True)
class _Writers:
    """One method per curator; its name is the one in the configuration."""

    config: Config
    policies: Policies
    keep: Callable[[Reflection], object]
    store: Store | None

    def append(self) -> Curator:
        from playbooks.methods.reasoningbank import AppendCurator

        return AppendCurator(trust=self._trust)

    def evolver(self) -> Curator:
        from playbooks.methods.evolver import EvolverCurator

        return EvolverCurator(self.policies.curator, self._opened.embedder, trust=self._trust)

    def cheatsheet(self) -> Curator:
        from playbooks.methods.cheatsheet import CheatsheetCurator

        return CheatsheetCurator(self.policies.curator, self._opened.trajectory, trust=self._trust, keep=self.keep)

    def atlas(self) -> Curator:
        from playbooks.methods.atlas import AtlasCurator

        def record(session: Session) -> None:
            self._note(LANE, session.trajectory_id, session.model_dump(mode="json"))

        label_free = self.config.run.label_free
        teacher, find = self.policies.teacher, self._opened.trajectory
        return AtlasCurator(teacher, find, self._sessions, record=record, label_free=label_free)

    def release(self) -> Curator:
        from playbooks.methods.agentdevel import ReleaseCurator

        return ReleaseCurator(self.policies.curator, self._opened.trajectory, trust=self._trust, keep=self.keep)

    def regimes(self) -> Curator:
        from playbooks.methods.regimes import Histogram, RegimesCurator

        def record(found: Histogram, ids: Sequence[str]) -> None:
            self._note(TARGET, id_for("regimes", *ids), found.model_dump(mode="json"))

        return RegimesCurator(self._opened.trajectory, label_free=self.config.run.label_free, record=record)

    def batch(self) -> Curator:
        from playbooks.methods.yunjue import BatchCurator, Growth

        def record(grown: Growth, ids: Sequence[str]) -> None:
            data = {**grown.model_dump(mode="json"), "egl": grown.egl, "trajectory_ids": list(ids)}
            self._note(GROWTH, id_for("yunjue", *ids), data)

        return BatchCurator(self._opened.embedder, trust=self._trust, record=record)

    @property
    def _trust(self) -> Trust:
        return Trust.SELF_JUDGED if self.config.run.label_free else Trust.VERIFIED

    @property
    def _opened(self) -> Store:
        if self.store is None:
            raise ConfigError(f"curator {self.config.playbook.curator!r} reads a workspace; got none: give its store")
        return self.store

    def _note(self, kind: str, subject: str, data: dict[str, Any]) -> None:
        """Journal what a method remembers between batches, once."""
        store = self._opened
        if not store.events(type=kind, subject=subject, limit=1):
            store.append(Event(type=kind, namespace=self.config.memory.namespace, subject=subject, data=data))

    def _sessions(self, key: str) -> list[Session]:
        """Return the sessions of a kind of task, oldest first."""
        from playbooks.methods.atlas import Session

        events = self._opened.events(type=LANE, namespace=self.config.memory.namespace)
        found = (Session.model_validate(event.data) for event in events)
        return [session for session in found if session.key == key]
