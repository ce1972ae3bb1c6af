"""Build curators from configuration and workspace: methods of papers, the distiller of skills, the notebook."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from evolve.config.model import Config
from evolve.episode.injection import shown_again
from evolve.episode.prompting import described
from evolve.episode.skill_runtime.skill_credit import faults
from evolve.errors import ConfigError
from evolve.gates.replay import Replay, decide
from evolve.gates.static import options_of
from evolve.loop.nodes.judge import judged
from evolve.protocols import Environment
from evolve.seeds import id_for
from memory.records import Event, Reflection, Trajectory, Trust
from memory.store import Store
from playbooks.notebook.failure_judge import Audit
from playbooks.notebook.note_curator import Episodes, NotebookCurator, Settings
from playbooks.protocols import Curator
from policies.protocols import Policy
from policies.roles import Policies
from skills.distill import Distiller, Distilling, Examine, nothing
from skills.library import Overlay
from skills.record import Skill
from skills.skill_gate import objections

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

        return AtlasCurator(
            self.policies.teacher,
            self._opened.trajectory,
            self._sessions,
            record=record,
            keep=self.keep,
            label_free=self.config.run.label_free,
        )

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


def make_distiller(
    config: Config,
    policy: Policy,
    keep: Callable[[Reflection], object],
    store: Store | None,
    world: Callable[[], Environment],
) -> Distiller:
    """Return the curator: it reads the episodes in `store` that succeeded, by their grade or, where nobody grades, by
    what was judged of them. With `playbook.distill.revise` a function must read well and its episode, done again with
    it in the environment that `world` makes, succeed; what is wrong goes back to the policy.

    Raises `ConfigError` without a store, for a policy with compact prompts, and for settings with which no successful
    episode would reach it, or no skill a task.
    """
    if store is None:
        raise ConfigError("curator 'distill' reads successful episodes from a workspace; got none: give its store")
    if policy.profile == "compact":
        raise ConfigError(
            f"curator 'distill' has no compact prompt, and policy {policy.name!r} needs one: choose a policy with full "
            "prompts, or leave 'distill' out (with compact prompts what the agent itself writes and calls is proposed)"
        )
    run, playbook = config.run, config.playbook
    if not config.skills.enabled:
        raise ConfigError("curator 'distill' writes skills, and skills.enabled is false: set it to true")
    if run.label_free and run.judge == "none":
        raise ConfigError(
            "curator 'distill' needs to know what succeeded: with run.label_free set run.judge = 'policy' or "
            "'agreement'"
        )
    if playbook.reflect_on == "failures" and not run.label_free:
        raise ConfigError("curator 'distill' reads successes, got playbook.reflect_on = 'failures': set it to 'all'")

    def succeeded(trajectory: Trajectory) -> bool:
        return judged(trajectory, config, store) is True

    given = Distilling(
        store.trajectory,
        succeeded,
        examine=_examined(config, world()) if config.playbook.distill.revise else nothing,
        revise=config.playbook.distill.revise,
        trust=Trust.SELF_JUDGED if run.label_free else Trust.VERIFIED,
    )
    return Distiller(policy, given, keep)


def _examined(config: Config, world: Environment) -> Examine:
    """Return what reads a function as gate `static` does and, where nothing is wrong with it, replays its episode."""
    if config.run.label_free:
        raise ConfigError(
            "playbook.distill.revise reads how replays end, and run.label_free says that nobody does: set it to 0"
        )
    gate = Replay(world, config.run.seed)
    said = described(options_of(config).allow, world)

    async def examine(skill: Skill, library: Overlay, trajectory: Trajectory) -> Sequence[str]:
        if wrong := objections(skill, said, library.names):
            return wrong
        decision = decide(await gate.trial(skill, library.overlay(), {trajectory.task.id: trajectory.task}))
        return () if decision.accepted else (decision.reason,)

    return examine


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

    settings = Settings(**config.playbook.notebook.model_dump(), label_free=config.run.label_free)

    def failed_uses(trajectory: Trajectory) -> tuple[str, ...]:
        return faults(trajectory, shown_again(store, trajectory.injected).skills)

    episodes = Episodes(store.trajectory, failed_uses, policies.judge)
    return NotebookCurator(policies.curator, store.embedder, episodes, settings=settings, keep=keep, record=record)
