"""The prompt an episode began with, made again from the journal: the records in the versions that were shown, and what
the run told its agent of the world.

The journal keeps no prompts, it keeps replies under the hash of the request that they answer. So a prompt that was made
again can be proved: its hash is the key of the episode's first reply, or it is not what was sent.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from evolve.config.file import stored_config
from evolve.config.model import Config
from evolve.episode.injection import shown_again
from evolve.episode.prompting import briefing
from evolve.episode.search import invitation
from evolve.episode.world_texts import WorldTexts, kept
from evolve.errors import ConfigError
from evolve.inspector.page_context import PageContext
from evolve.inspector.token_counter import TokenCounter
from evolve.loop.assembly import make_environment
from evolve.loop.history import owner_of
from evolve.loop.prompt_replay import opening, proved
from evolve.loop.runs import LEARN, RESUMABLE
from evolve.protocols import stop_of
from evolve.usercode import tools_of
from memory.errors import EvolveError
from memory.records import Trajectory
from policies.protocols import Message, Profile, ToolSpec

SHIPPED = ("office", "bfcl")
"""Environments that can be asked for their words without running anything of others, where a journal has none."""


@dataclass(frozen=True)
class Told:
    """What the agent read before its first action."""

    messages: tuple[Message, ...] = ()
    tools: tuple[ToolSpec, ...] = ()
    """Offered natively: their schemas are sent along."""
    tokens: int = 0
    """Of messages and schemas."""
    schema_tokens: int = 0
    """Those of the schemas alone, counted or estimated here."""
    counted: str = ""
    """Who counted `tokens`."""
    proved: bool | None = None
    """The reply's key says that this was sent; None where there is no key to compare with."""
    missing: str = ""
    """What could not be made again, and why."""


def told(desk: PageContext, trajectory: Trajectory) -> Told:
    """Return the prompt of an episode, made with the configuration of its run.

    A policy of one's own may read another profile than the configuration says: the one that is proved is returned.
    """
    trajectory = trajectory.model_copy(update={"run_id": owner_of(desk.store, trajectory.run_id)})
    run = desk.store.get_run(trajectory.run_id) if trajectory.run_id else None
    if run is not None and run.get("kind", LEARN) not in RESUMABLE:
        return Told(missing="The agent of this session made its own prompt; the journal holds what it was shown.")
    config, unknown = _config(desk, trajectory)
    if unknown:
        return Told(missing=unknown)
    words = kept(desk.store, trajectory.run_id)
    if words is not None:
        return _made(desk, config, trajectory, words)
    profile = TokenCounter(config.policy).profile
    other: Profile = "full" if profile == "compact" else "compact"
    made = _remade(desk, config, trajectory, profile)
    again = _remade(desk, config, trajectory, other) if made.proved is False else made
    return again if again.proved else made


def _config(desk: PageContext, trajectory: Trajectory) -> tuple[Config, str]:
    """Return the configuration of an episode's run, and why it cannot be read any more, where that is so."""
    run = desk.store.get_run(trajectory.run_id) if trajectory.run_id else None
    if run is None:
        return desk.config, ""
    try:
        return stored_config(run.get("config", {}), desk.config.root), ""
    except ConfigError as error:
        return desk.config, f"the settings of run {trajectory.run_id!r}: {error}"


def _made(desk: PageContext, config: Config, trajectory: Trajectory, words: WorldTexts) -> Told:
    reader = TokenCounter(config.policy)
    shown = shown_again(desk.store, trajectory.injected)
    messages = opening(config, trajectory, shown, words)
    tools = words.offered(trajectory.tools)
    schemas = sum(reader.count_tokens(tool.model_dump_json()) for tool in tools)
    counted = sum(reader.count_tokens(message.content) for message in messages) + schemas
    said = trajectory.steps[0].usage.prompt_tokens if trajectory.steps else 0
    return Told(
        messages=tuple(messages),
        tools=tools,
        tokens=said or counted,
        schema_tokens=schemas,
        counted="counted by the policy" if said else "counted" if reader.exact else "estimated",
        proved=proved(config, trajectory, 0, messages, words),
    )


def _remade(desk: PageContext, config: Config, trajectory: Trajectory, profile: Profile) -> Told:
    """Return a prompt of a run whose journal does not hold what it told of the world: an earlier version wrote it."""
    words, missing = _shipped(config, trajectory, profile)
    made = _made(desk, config, trajectory, words)
    return replace(made, proved=None, missing=missing) if missing else made


def _shipped(config: Config, trajectory: Trajectory, profile: Profile) -> tuple[WorldTexts, str]:
    """Return the words of a shipped environment. One that a journal names by a path is code that somebody chose."""
    name = config.environment.name
    if name not in SHIPPED:
        return WorldTexts(text="", profile=profile), (
            f"the words of environment {name!r}: the journal of this run does not hold them, "
            "and a page runs no code that a journal names"
        )
    try:
        world = make_environment(config)
    except EvolveError as error:
        return WorldTexts(text="", profile=profile), f"the words of environment {name!r}: {error}"
    text, searching = briefing(world, profile), invitation(config, profile)
    tools = tools_of(world, trajectory.task)
    return WorldTexts(text=text, searching=searching, profile=profile, tools=tools, stop=stop_of(world)), ""
