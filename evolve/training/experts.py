"""Tells which episodes of the journal another did than the model that is trained: an expert, a teacher, the world.

Their token ids, where there are any, are of another vocabulary. What such a model solved can start a fine-tuning (the
warm-up of SAGE, arXiv 2512.17102), written once in the chat template of the weights (`evolve.training.retokenized`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Literal

from evolve.config.model import Config, PolicySection
from evolve.episode.arms import SHOWN_HOW
from evolve.episode.world_texts import kept
from evolve.errors import ConfigError
from evolve.generations.workspace_registry import model_directory, profile_of
from evolve.loop.runs import settings_of
from evolve.training.turns import TurnReader
from memory.records import Trajectory
from memory.store import Store

Author = Literal["own", "expert", "foreign"]
"""own      the weights that are configured, or what a run does not tell apart from them
expert   another model under prompts of their profile, or the world itself
foreign  another model, under other prompts than these weights read"""


def author_of(config: Config, store: Store) -> Callable[[Trajectory], Author]:
    """Return what tells who did an episode, by the policy that its run was configured with, and by its arm: a teacher's
    attempts, and the world's own solutions, are an expert's."""
    profile = profile_of(config.policy)

    @cache
    def author(run_id: str, taught: bool) -> Author:
        settings = settings_of(store, run_id, config.root)
        if not taught and (settings is None or _same(settings.policy, config.policy)):
            return "own"
        words = kept(store, run_id)
        return "expert" if words is not None and words.profile == profile else "foreign"

    return lambda episode: author(episode.run_id, episode.arm in SHOWN_HOW)


def _same(acted: PolicySection, own: PolicySection) -> bool:
    """Tell whether two policies are one model: by their names, or by the folder of their weights."""
    return (acted.name, acted.model) == (own.name, own.model) or _weights(own) in (None, _weights(acted))


def _weights(section: PolicySection) -> Path | None:
    """Return the folder of a policy's weights; None where they are a server's alone."""
    try:
        return model_directory(section).resolve()
    except ConfigError:
        return None


def either(own: TurnReader, expert: TurnReader, author: Callable[[Trajectory], Author]) -> TurnReader:
    """Return a reader that reads the episodes of another model as `expert` does, all else as `own` does."""
    return lambda episode, replies: (own if author(episode) == "own" else expert)(episode, replies)
