"""The prompt an episode began with, made again from the journal: the records in the versions that were shown.

The journal keeps no prompts, it keeps replies under the hash of the request that they answer. So a prompt that was made
again can be proved: its hash is the key of the episode's first reply, or it is not what was sent.
"""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import ValidationError

from evolve.app import make_environment
from evolve.config import Config
from evolve.history import owner_of
from evolve.injection import shown_again
from evolve.inspector.desk import Desk
from evolve.inspector.onlooker import Onlooker
from evolve.prompting import briefing, knowledge, opening_messages
from evolve.protocols import Environment, tools_of
from evolve.search import invitation
from evolve.seeds import seed_for
from memory.errors import EvolveError
from memory.records import Trajectory
from playbooks.render import neutral
from policies.cache import request_key
from policies.protocols import Message, SamplingParams
from skills.catalogue import catalogue

SHIPPED = ("office", "bfcl")
"""Environments that can be asked for their words without running anything of others."""


@dataclass(frozen=True)
class Told:
    """What the agent read before its first action."""

    messages: tuple[Message, ...]
    tokens: int
    counted: bool
    """With the model's own tokenizer; else estimated."""
    proved: bool | None
    """The reply's key says that this was sent; None where there is no key to compare with."""
    missing: str = ""
    """What could not be made again, and why."""


def told(desk: Desk, trajectory: Trajectory) -> Told:
    """Return the prompt of an episode, made with the configuration of its run.

    A policy of one's own may read another profile than the configuration says: the one that is proved is returned.
    """
    trajectory = trajectory.model_copy(update={"run_id": owner_of(desk.store, trajectory.run_id)})
    config, unknown = _config(desk, trajectory)
    if unknown:
        return Told((), 0, counted=False, proved=None, missing=unknown)
    made = _made(desk, config, trajectory, Onlooker(config.policy))
    if made.proved is not False:
        return made
    other = Onlooker(config.policy)
    other.profile = "full" if other.profile == "compact" else "compact"
    again = _made(desk, config, trajectory, other)
    return again if again.proved else made


def _config(desk: Desk, trajectory: Trajectory) -> tuple[Config, str]:
    """Return the configuration of an episode's run, and why it cannot be read any more, where that is so."""
    run = desk.store.get_run(trajectory.run_id) if trajectory.run_id else None
    if run is None:
        return desk.config, ""
    try:
        return Config.model_validate({**run.get("config", {}), "root": desk.config.root}), ""
    except ValidationError as error:
        return desk.config, f"the settings of run {trajectory.run_id!r}, which this version does not read: {error}"


def _made(desk: Desk, config: Config, trajectory: Trajectory, reader: Onlooker) -> Told:
    world, missing = _world(config)
    shown = shown_again(desk.store, trajectory.injected)
    rules = knowledge(shown.core, shown.recalled, reader.profile)
    able = config.skills.enabled and config.playbook.enabled
    skills = neutral(catalogue(shown.skills, reader.profile)) if able else None
    briefed = (briefing(world, reader.profile) if world else "") + invitation(config, reader.profile)
    messages = opening_messages(trajectory.task.opened(trajectory.opening), rules, reader.profile, briefed, skills)
    return Told(
        messages=tuple(messages),
        tokens=sum(reader.count_tokens(message.content) for message in messages),
        counted=reader.exact,
        proved=_proved(config, trajectory, messages, world),
        missing=missing,
    )


def _world(config: Config) -> tuple[Environment | None, str]:
    """Return a shipped environment. One that the journal names by a path would be code that somebody else chose."""
    if config.environment.name not in SHIPPED:
        return None, f"the words of environment {config.environment.name!r}: a page runs no code that a journal names"
    try:
        return make_environment(config), ""
    except EvolveError as error:
        return None, f"the words of environment {config.environment.name!r}: {error}"


def _proved(config: Config, trajectory: Trajectory, messages: list[Message], world: Environment | None) -> bool | None:
    key = trajectory.steps[0].reply_key if trajectory.steps else ""
    if not key or world is None:
        return None
    params = SamplingParams(
        temperature=config.policy.temperature,
        max_tokens=config.policy.max_tokens,
        seed=seed_for(trajectory.seed, 0),
        tools=tools_of(world, trajectory.task),
    )
    return request_key((trajectory.run_id, trajectory.policy, trajectory.policy_version), messages, params) == key
