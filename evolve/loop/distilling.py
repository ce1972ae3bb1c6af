"""Builds the distiller of skills from the configuration and an open workspace."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from evolve.config.model import Config
from evolve.episode.prompting import described
from evolve.errors import ConfigError
from evolve.gates.replay import Replay, decide
from evolve.loop.nodes.judge import judged
from evolve.protocols import Environment
from memory.records import Reflection, Trajectory, Trust
from memory.store import Store
from policies.protocols import Policy
from skills.distill import Distiller, Distilling, Examine, nothing
from skills.gate import objections
from skills.library import Overlay
from skills.record import Skill


def make_distiller(
    config: Config,
    policy: Policy,
    keep: Callable[[Reflection], object],
    store: Store | None,
    world: Callable[[], Environment],
) -> Distiller:
    """Return the curator: it reads the episodes in `store` that succeeded, by their grade or, where nobody grades, by
    the policy's own judgement. With `skills.revise` a function must read well and its episode, done again with it in
    the environment that `world` makes, succeed; what is wrong goes back to the policy.

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
            "curator 'distill' needs to know what succeeded: with run.label_free set run.judge = 'policy'"
        )
    if playbook.reflect_on == "failures" and not run.label_free:
        raise ConfigError("curator 'distill' reads successes, got playbook.reflect_on = 'failures': set it to 'all'")

    def succeeded(trajectory: Trajectory) -> bool:
        return judged(trajectory, config, store) is True

    given = Distilling(
        store.trajectory,
        succeeded,
        examine=_examined(config, world()) if config.skills.revise else nothing,
        revise=config.skills.revise,
        trust=Trust.SELF_JUDGED if run.label_free else Trust.VERIFIED,
    )
    return Distiller(policy, given, keep)


def _examined(config: Config, world: Environment) -> Examine:
    """Return what reads a function as gate `static` does and, where nothing is wrong with it, replays its episode."""
    if config.run.label_free:
        raise ConfigError("skills.revise reads how replays end, and run.label_free says that nobody does: set it to 0")
    gate = Replay(world, config.run.seed)
    said = described(config.gate.allow, world)

    async def examine(skill: Skill, library: Overlay, trajectory: Trajectory) -> Sequence[str]:
        if wrong := objections(skill, said, library.names):
            return wrong
        decision = decide(await gate.trial(skill, library.overlay(), {trajectory.task.id: trajectory.task}))
        return () if decision.accepted else (decision.reason,)

    return examine
