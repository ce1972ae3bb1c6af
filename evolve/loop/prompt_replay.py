"""Prompts of an agent, made again from the journal: the records in the versions that were shown, the run's words of the
world, and what was said and answered.

The journal keeps no prompts, it keeps replies under the hash of the request that they answer. So a prompt that was made
again can be proved: its hash is the key of the reply, or it is not what was sent.
"""

from __future__ import annotations

from collections.abc import Sequence

from evolve.config.model import Config
from evolve.episode.arms import FURTHER, GOLD, NO_MEMORY, TEACHER
from evolve.episode.exemplars.shown_exemplars import with_examples
from evolve.episode.injection import Shown
from evolve.episode.prompting import SkillList, knowledge, opening_messages
from evolve.episode.world_texts import WorldTexts
from evolve.loop.rollout_settings import saves_skills, works_with_skills
from evolve.seeds import seed_for
from memory.records import Trajectory
from playbooks.render import neutral
from policies.cache import request_key
from policies.protocols import Message, SamplingParams
from policies.roles import as_set
from skills.listing import catalogue

CANNOT_SEARCH = (NO_MEMORY, GOLD)
"""Arms whose episodes search no memory."""


def opening(config: Config, trajectory: Trajectory, shown: Shown, words: WorldTexts) -> list[Message]:
    """Return the conversation before the first action, with the configuration of the episode's run."""
    rules = knowledge(shown.core, shown.recalled, words.profile)
    able = works_with_skills(config) and trajectory.arm != NO_MEMORY
    listed = SkillList(neutral(catalogue(shown.skills, words.profile)), saves_skills(config))
    skills = listed if able else None
    task = trajectory.task.opened(trajectory.opening)
    world = words.text + ("" if trajectory.arm in CANNOT_SEARCH else words.searching)
    told = opening_messages(task, rules, words.profile, world, skills)
    return with_examples(told, shown.exemplars, words.demonstration)


def temperature_of(config: Config, trajectory: Trajectory) -> float:
    """Return the temperature that an episode was sampled with, by the configuration of its run."""
    return config.run.attempt_temperature if trajectory.arm in FURTHER else config.policy.temperature


def proved(
    config: Config, trajectory: Trajectory, step: int, messages: Sequence[Message], words: WorldTexts
) -> bool | None:
    """Tell whether a step's reply answers these messages; None where there is no key to compare with.

    `config` is that of the episode's run, and `trajectory.run_id` names that run.
    """
    key = trajectory.steps[step].reply_key if step < len(trajectory.steps) else ""
    if not key:
        return None
    params = SamplingParams(
        temperature=temperature_of(config, trajectory),
        max_tokens=config.policy.max_tokens,
        stop=words.stop,
        seed=seed_for(trajectory.seed, step),
        tools=words.offered(trajectory.tools),
    )
    if trajectory.arm == TEACHER:
        params = as_set(params, config.policy.teacher.temperature, config.policy.teacher.max_tokens)
    return request_key((trajectory.run_id, trajectory.policy, trajectory.policy_version), messages, params) == key
