"""Skills that a task is shown, and records that are shown as text: skills are functions, exemplars are turns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from evolve.config.model import Config
from memory.errors import BadInput, NotFound
from memory.kinds import known_kinds
from memory.protocols import KnowledgeView
from memory.records import Record, Task
from memory.store import Store
from playbooks.kinds.exemplar import Exemplar
from policies.protocols import Policy
from skills.library import Library
from skills.listing import catalogue
from skills.record import Skill
from skills.retrieval import Choice, Choosing, choose

NO_TEXT = frozenset({Skill.kind, Exemplar.kind})
"""Kinds that are shown otherwise than as text."""


def text_kinds(config: Config) -> tuple[str, ...]:
    """Return the kinds that are recalled as text, of those configured, or of all."""
    return tuple(kind for kind in config.memory.kinds or known_kinds() if kind not in NO_TEXT)


def texts(view: KnowledgeView) -> tuple[Record[Any], ...]:
    """Return the records of a view that are shown as text."""
    return tuple(record for record in view.records() if record.kind not in NO_TEXT)


def skills_for(store: Store, config: Config, task: Task, policy: Policy, *, snapshot_id: str | None = None) -> Choice:
    """Return the skills that a task is shown and all that they require: live, or frozen at a snapshot.

    Frozen, those made from the task itself are left out, and what requires them with them.
    """
    settings = config.skills
    if not settings.enabled:
        return Choice()
    library = Library(store.view(config.memory.namespace, snapshot_id).records(Skill.kind))
    how = Choosing(k=settings.k, budget=settings.token_budget, ways=settings.ways, leave_out=snapshot_id is not None)

    def cost(records: Sequence[Record[Any]]) -> int:
        return policy.count_tokens(catalogue(records, policy.profile))

    return choose(library, task, how, cost=cost, embedder=store.embedder)


def usable(records: Iterable[Record[Any]]) -> Library:
    """Return the library of those skills whose requirements are all among them."""
    library = Library(records)
    return Library(record for record in library.records if _closes(library, record.payload.name))


def _closes(library: Library, name: str) -> bool:
    try:
        library.closure([name])
    except (BadInput, NotFound):
        return False
    return True
