"""Builds the distiller of skills from the configuration and an open workspace."""

from __future__ import annotations

from collections.abc import Callable

from evolve.config import Config
from evolve.errors import ConfigError
from evolve.nodes.judge import judged
from memory.records import Reflection, Trajectory, Trust
from memory.store import Store
from policies.protocols import Policy
from skills.distill import Distiller, Distilling


def make_distiller(
    config: Config, policy: Policy, keep: Callable[[Reflection], object], store: Store | None
) -> Distiller:
    """Return the curator: it reads the episodes in `store` that succeeded, by their grade or, where nobody grades, by
    the policy's own judgement.

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

    trust = Trust.SELF_JUDGED if run.label_free else Trust.VERIFIED
    return Distiller(policy, Distilling(store.trajectory, succeeded, trust=trust), keep)
