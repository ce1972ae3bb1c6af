"""New notes against the notebook: those about the same subject become one, and the one always supersedes its parents.

The paper's code appends the merged note and keeps its parents, so that duplicates pile up and the older one is found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from memory.operations import op_id
from memory.protocols import Embedder, KnowledgeView, Vector
from memory.records import DeltaOp, Op, Provenance, Record
from playbooks import prompts
from playbooks.asking import ask
from playbooks.kinds.bullet import one_line
from playbooks.kinds.note import LIMITS, MAX_EXAMPLES, Note
from playbooks.notebook.note_drafts import NoteDraft, note_of
from playbooks.notebook.write import Written, params_of
from playbooks.render import neutral
from policies.protocols import Message, Policy, Profile
from policies.templates import render_turns

NEIGHBOURS = 5
SIMILARITY = 0.9
"""Cosine of two subjects from which notes are about the same thing."""


@dataclass(frozen=True)
class Group:
    """Notes about the same subject: those of this batch, and those that the notebook has."""

    written: tuple[Written, ...]
    """Each with its note."""
    parents: tuple[Record[Note], ...] = ()

    def notes(self) -> tuple[Note, ...]:
        """Return all of them, the newest first."""
        fresh = [item.note for item in self.written if item.note is not None]
        old = sorted(self.parents, key=lambda record: -record.number)
        return (*reversed(fresh), *(record.payload for record in old))

    def failure_ids(self) -> tuple[str, ...]:
        """Return the ids of all failures behind them, the oldest first."""
        return tuple(dict.fromkeys(key for note in reversed(self.notes()) for key in note.failure_ids))


def group(
    written: Sequence[Written],
    view: KnowledgeView,
    embedder: Embedder,
    *,
    k: int = NEIGHBOURS,
    threshold: float = SIMILARITY,
) -> tuple[Group, ...]:
    """Return the new notes with their neighbours, in order of the first new one; each record is in one group at most.

    A neighbour is one of the `k` nearest notes of the view whose subject has cosine >= `threshold` with a new note's;
    new notes are neighbours of each other likewise. What the operator pinned is left alone.
    """
    fresh = [item for item in written if item.note is not None]
    known = [record for record in view.records(Note.kind) if not record.pinned]
    if not fresh:
        return ()
    subjects = [item.note.subject for item in fresh if item.note] + [record.payload.subject for record in known]
    labels = _components(embedder.embed(subjects), len(fresh), k, threshold)
    groups: dict[int, Group] = {}
    for label, item in zip(labels, fresh, strict=False):
        so_far = groups.get(label, Group(()))
        groups[label] = replace(so_far, written=(*so_far.written, item))
    for label, record in zip(labels[len(fresh) :], known, strict=True):
        if label in groups:
            groups[label] = replace(groups[label], parents=(*groups[label].parents, record))
    return tuple(groups.values())


def _components(vectors: Vector, fresh: int, k: int, threshold: float) -> list[int]:
    """Return a label for each of `vectors`, of which the first `fresh` are new: equal where a chain of near ones leads.

    Old ones are near a new one only, never each other: what stood side by side is not merged without a reason.
    """
    from scipy.sparse.csgraph import connected_components

    cosine = np.round(vectors[:fresh].astype(np.float64) @ vectors.T.astype(np.float64), 6)
    near = np.zeros((len(vectors), len(vectors)), dtype=bool)
    near[:fresh] = cosine >= threshold
    for row in range(fresh):
        newest_first = -np.arange(len(vectors) - fresh)
        farther = fresh + np.lexsort((newest_first, -cosine[row, fresh:]))[k:]
        near[row, farther] = False
    return [int(label) for label in connected_components(near, directed=False)[1]]


def merge_messages(notes: Sequence[Note], profile: Profile) -> list[Message]:
    """Return the prompt that asks for the one note of several. Pure."""
    shown = [{name: _plain(getattr(note, name)) for name in LIMITS} for note in notes]
    return render_turns(prompts, "note_merge_compact" if profile == "compact" else "note_merge", notes=shown)


async def merged(policy: Policy, members: Group) -> Written:
    """Return the one note of a group, in the policy's words; an unusable answer leaves `note` empty."""
    answer = await ask(policy, merge_messages(members.notes(), policy.profile), NoteDraft, params_of(policy.profile))
    note = None if answer.value is None else note_of(answer.value, members.failure_ids())
    failures = tuple(failure for item in members.written for failure in item.failures)
    return Written(note=note, failures=failures, raw=answer.raw, usage=answer.reply.usage)


def joined(members: Group) -> Note:
    """Return the one note of a group without a model: the newest, with the others' examples and anti-patterns."""
    notes = members.notes()
    draft = NoteDraft.model_validate(
        notes[0].model_dump()
        | {
            "corrected_examples": [text for note in notes for text in note.corrected_examples][:MAX_EXAMPLES],
            "anti_patterns": [text for note in notes for text in note.anti_patterns],
        }
    )
    return note_of(draft, members.failure_ids())


def op_of(members: Group, note: Note, provenance: Provenance) -> DeltaOp:
    """Return the delta: ADD without parents, SUPERSEDE with one, MERGE with more. The store unites their origins."""
    ids = tuple(record.id for record in members.parents)
    fields: dict[str, Any] = {
        "op": Op.MERGE if len(ids) > 1 else Op.SUPERSEDE if ids else Op.ADD,
        "op_id": op_id("note", note.cluster_id, note.text(), *sorted(f"{r.id}@{r.version}" for r in members.parents)),
        "kind": Note.kind,
        "payload": note.model_dump(mode="json"),
        "provenance": provenance,
    }
    if len(ids) > 1:
        fields |= {"parent_ids": ids, "parent_versions": tuple(record.version for record in members.parents)}
    elif ids:
        (parent,) = members.parents
        fields |= {"target_id": parent.id, "base_version": parent.version, "usage": parent.usage}
    if ids:
        fields |= {"reason": f"the same subject as {', '.join(record.label for record in members.parents)}"}
    return DeltaOp(**fields)


def _plain(value: str | tuple[str, ...]) -> str | list[str]:
    return one_line(neutral(value)) if isinstance(value, str) else [one_line(neutral(text)) for text in value]
