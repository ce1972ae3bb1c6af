"""Rollout settings, from the configuration: those of a run, of a training, in this process or in a worker."""

from __future__ import annotations

from dataclasses import replace

from evolve.config.model import Config
from evolve.episode import teacher
from evolve.episode.prompting import briefing, demonstrated, described
from evolve.episode.rollout import RolloutConfig
from evolve.gates.static import options_of
from evolve.protocols import Environment, max_steps_of
from policies.protocols import Profile
from policies.roles import Policies


def plain_rollouts(config: Config, environment: Environment, profile: Profile) -> RolloutConfig:
    """Return it for a model whose prompts are of that profile, with neither skills nor a teacher."""
    return RolloutConfig(
        world=briefing(environment, profile),
        max_steps=max_steps_of(environment, config.environment.max_steps),
        observation_chars=config.environment.observation_chars,
        history_chars=config.environment.history_chars,
        temperature=config.policy.temperature,
        max_tokens=config.policy.max_tokens,
        demonstration=demonstrated(environment, profile),
    )


def works_with_skills(config: Config) -> bool:
    """Tell whether an agent is shown skills; an episode without memory never is."""
    return config.skills.enabled and config.playbook.enabled


def saves_skills(config: Config) -> bool:
    """Tell whether what an agent defines may be kept."""
    return config.run.mode != "frozen"


def rollout_config(config: Config, environment: Environment, policies: Policies) -> RolloutConfig:
    """Return it for the acting policy of `policies`, advised by their teacher where the configuration wants one."""
    profile = policies.acting.profile
    plain = plain_rollouts(config, environment, profile)
    return replace(
        plain,
        world=plain.world + teacher.invitation(config, profile),
        skills=works_with_skills(config),
        saves=saves_skills(config),
        described=described(options_of(config).allow, environment),
        teacher=teacher.make_teacher(config, policies, plain.world),
    )
