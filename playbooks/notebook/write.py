"""One note for each cluster of failures, in the words of a policy. An unusable answer is kept raw, never dropped."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from memory.records import Insight, Reflection, Usage
from playbooks import prompts
from playbooks.asking import ask
from playbooks.kinds.note import Note
from playbooks.notebook.failure_clusters import Cluster
from playbooks.notebook.failure_evidence import Failure, shown
from playbooks.notebook.note_drafts import NoteDraft, note_of
from policies.protocols import Message, Policy, Profile, SamplingParams
from policies.templates import render_turns

SHOWN: dict[Profile, int] = {"full": 6, "compact": 3}
"""Failures of one cluster that a prompt shows."""


@dataclass(frozen=True)
class Written:
    """What came of writing: the note, or what was said instead."""

    note: Note | None
    failures: tuple[Failure, ...]
    raw: str
    usage: Usage

    def kept(self, author: str) -> tuple[Reflection, ...]:
        """Return a raw reflection for each failure that has no note, so that it can be tried again."""
        if self.note is not None:
            return ()
        return tuple(
            Reflection(
                trajectory_id=failure.trajectory_id,
                task_id=failure.task_id,
                insights=tuple(Insight(content=text) for text in failure.lessons or (failure.mistake(),)),
                raw=self.raw,
                parsed=False,
                author=author,
                usage=self.usage if at == 0 else Usage(),
            )
            for at, failure in enumerate(self.failures)
        )


def params_of(profile: Profile) -> SamplingParams:
    """Return how notes are sampled: greedy, with room for one."""
    return SamplingParams(max_tokens=768 if profile == "compact" else 1024)


def note_messages(cluster: Cluster, profile: Profile) -> list[Message]:
    """Return the prompt that asks for a cluster's note. Pure."""
    failures = [shown(failure, profile) for failure in cluster.failures[: SHOWN[profile]]]
    if profile == "compact":
        return render_turns(prompts, "note_compact", failures=failures)
    return render_turns(prompts, "note", failures=failures, left_out=len(cluster.failures) - len(failures))


async def write_note(policy: Policy, cluster: Cluster) -> Written:
    """Return a cluster's note, after one re-ask if need be."""
    answer = await ask(policy, note_messages(cluster, policy.profile), NoteDraft, params_of(policy.profile))
    note = None if answer.value is None else note_of(answer.value, cluster.trajectory_ids)
    return Written(note=note, failures=cluster.failures, raw=answer.raw, usage=answer.reply.usage)


async def write_notes(policy: Policy, clusters: Sequence[Cluster]) -> list[Written]:
    """Return what came of each cluster, in order; one that fails does not spoil the others."""
    return list(await asyncio.gather(*(write_note(policy, cluster) for cluster in clusters)))
