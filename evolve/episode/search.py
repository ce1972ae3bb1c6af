"""The search action: while it acts, the agent asks for experience and is shown the nearest records (arXiv 2510.16079).

A reply that holds `<search_experience>...</search_experience>` is a search and no action of the world. What was found
is shown as data under its ids, and it counts as injected like what stood in the prompt from the start.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from evolve.config.model import Config
from evolve.episode import prompts
from evolve.episode.injection import injection_of
from evolve.episode.instrumentation import watched
from evolve.episode.skill_runtime.shown_skills import text_kinds
from memory.records import Injection, RecallQuery, Task
from memory.store import Store
from playbooks.render import render_record
from policies.protocols import Profile
from policies.templates import render

NOTHING = "Nothing was found."
SEARCH = "search_experience"
"""Name under which a search stands among the actions of an episode."""
_ASKED = re.compile(r"<search_experience>(.*?)</search_experience>", re.DOTALL)


@dataclass(frozen=True)
class Found:
    """What one search brought: a text for the agent, and the records that stand in it."""

    text: str
    injected: tuple[Injection, ...] = ()


@dataclass(frozen=True)
class Search:
    """How one episode searches. Without its store it is data, and can be sent to where the episode is done."""

    wanted: RecallQuery
    """All but its text."""
    profile: Profile
    told: str
    """What the agent is told about searching."""
    hidden: frozenset[str] = frozenset()
    """Records that chance hides from the task."""
    store: Store | None = None

    def __call__(self, query: str) -> Found:
        """Return what is found."""
        assert self.store is not None, "sent, and given no store"
        return _found(query, self, self.store)


@watched("search")
def _found(query: str, search: Search, store: Store) -> Found:
    recalled = store.recall(search.wanted.model_copy(update={"text": query}))
    found = tuple(item for item in recalled if item.record.id not in search.hidden)
    if not found:
        return Found(NOTHING)
    shown = tuple(injection_of(item.record, item.rank, item.scores, searched=True) for item in found)
    return Found("\n".join(render_record(item.record, search.profile) for item in found), shown)


def asked(reply: str) -> str:
    """Return what a reply searches for; empty when it is no search."""
    match = _ASKED.search(reply)
    return " ".join(match[1].split()) if match else ""


def invitation(config: Config, profile: Profile) -> str:
    """Return what the agent is told about searching; empty where it cannot."""
    able = config.playbook.search_k and config.playbook.enabled and profile == "full"
    return "\n\n" + render(prompts, "search").strip() if able else ""


def search_for(
    store: Store,
    config: Config,
    task: Task,
    profile: Profile,
    *,
    snapshot_id: str | None = None,
    hidden: frozenset[str] = frozenset(),
) -> Search | None:
    """Return the search of one episode, live or frozen at a snapshot; None where the agent cannot search.

    Left out are the records that chance hides from the task, and, frozen, what was learned from the task itself.
    """
    told = invitation(config, profile)
    if not (told and text_kinds(config)):
        return None
    wanted = RecallQuery(
        text="",
        namespace=config.memory.namespace,
        kinds=text_kinds(config),
        k=config.playbook.search_k,
        token_budget=config.playbook.token_budget,
        exclude_task_ids=(task.id,) if snapshot_id else (),
        snapshot_id=snapshot_id,
    )
    return Search(wanted, profile, told, hidden, store)
