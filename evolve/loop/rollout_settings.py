"""How the episodes of a run are done, from its configuration: in this process, or in a worker of a cluster."""

from __future__ import annotations

from evolve.config.model import Config
from evolve.episode import teacher
from evolve.episode.prompting import briefing, demonstrated, described
from evolve.episode.rollout import RolloutConfig
from evolve.episode.search import invitation
from evolve.gates.static import options_of
from evolve.protocols import Environment, max_steps_of
from policies.roles import Policies


def rollout_config(config: Config, environment: Environment, policies: Policies) -> RolloutConfig:
    """Return it for the acting policy of `policies`, advised by their teacher where the configuration wants one."""
    profile = policies.acting.profile
    told = briefing(environment, profile)
    return RolloutConfig(
        world=told + invitation(config, profile) + teacher.invitation(config, profile),
        max_steps=max_steps_of(environment, config.environment.max_steps),
        observation_chars=config.environment.observation_chars,
        history_chars=config.environment.history_chars,
        temperature=config.policy.temperature,
        max_tokens=config.policy.max_tokens,
        skills=config.skills.enabled and config.playbook.enabled,
        described=described(options_of(config).allow, environment),
        demonstration=demonstrated(environment, profile),
        teacher=teacher.make_teacher(config, policies, told),
    )
