"""Choose exemplars for a task: those of the tasks most like it, the most similar last, nearest to the task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from evolve.config.model import Config
from evolve.episode import prompts
from evolve.errors import ConfigError
from evolve.protocols import Demonstration
from memory.fusion import reciprocal_ranks, within_budget
from memory.records import Recalled, RecallQuery, Record
from memory.store import Store
from playbooks.kinds.exemplar import Exemplar, messages, shown_text
from policies.protocols import Message, Policy
from policies.templates import render

POOL = 64
"""Exemplars recalled before those most like the task are taken."""


def check(config: Config, policy: Policy) -> None:
    """Raise `ConfigError` where exemplars are on and the policy's prompts have no turns to show them as."""
    if config.exemplars.enabled and policy.profile == "compact":
        raise ConfigError(
            f"[exemplars] enabled needs full prompts, and policy {policy.name!r} reads compact ones, which hold no "
            "earlier turns: set exemplars.enabled = false, or choose a policy with full prompts"
        )


def nearest(
    store: Store, config: Config, task_id: str, text: str, policy: Policy, *, snapshot_id: str | None = None
) -> tuple[Recalled, ...]:
    """Return the exemplars of the tasks most like one that reads so, best first, within their own count and tokens.

    Frozen at a snapshot, what was learned from the task itself is left out.
    """
    settings = config.exemplars
    if not settings.enabled or policy.profile == "compact":
        return ()
    found = store.recall(
        RecallQuery(
            text=text,
            namespace=config.memory.namespace,
            kinds=(Exemplar.kind,),
            k=POOL,
            exclude_task_ids=(task_id,) if snapshot_id else (),
            snapshot_id=snapshot_id,
            mmr_lambda=1.0,
        )
    )
    best = _by_likeness(found)[: settings.k]
    tokens = [policy.count_tokens(shown_text([item.record])) for item in best]
    kept = within_budget(tokens, settings.token_budget)
    return tuple(best[at].model_copy(update={"tokens": tokens[at], "rank": at + 1}) for at in kept)


def _by_likeness(found: Sequence[Recalled]) -> list[Recalled]:
    """Return what was recalled in the order of words and vectors alone: utility would put less similar tasks first."""
    if not found:
        return []
    sides = [np.array([item.scores[name] for item in found]) for name in ("lexical", "vector")]
    order = np.argsort(-reciprocal_ranks([(side, 1.0) for side in sides]), kind="stable")
    return [found[at] for at in order]


def with_examples(
    opening: Sequence[Message], exemplars: Sequence[Record[Any]], demonstration: Demonstration | None = None
) -> list[Message]:
    """Return the conversation before the first action with solved tasks between the system message and the task.

    Without exemplars the world's demonstration stands there, where it has one.
    """
    system, *rest = opening
    if not exemplars and demonstration is None:
        return list(opening)
    if not exemplars and demonstration is not None:
        asked = Message(role="user", content=demonstration.instruction)
        return [system, asked, Message(role="assistant", content=demonstration.reply), *rest]
    told = f"{system.content}\n\n{render(prompts, 'exemplars').strip()}"
    return [system.model_copy(update={"content": told}), *messages(exemplars), *rest]
