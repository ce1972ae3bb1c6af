"""The Reflector that asks a policy: one trajectory in, lessons and tags out. It changes nothing.

The prompt follows the policy's profile (`playbooks.full`, `playbooks.compact`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

from memory.records import Insight, Record, Reflection, Tag, Trajectory
from playbooks import compact, full
from playbooks.citations import resolve
from playbooks.kinds.bullet import clean_text
from policies.protocols import Message, Policy, Profile, SamplingParams
from policies.structured import generate_structured

__all__ = ["ModelReflector", "reflect_messages"]


def reflect_messages(
    trajectory: Trajectory, injected: Sequence[Record[Any]], profile: Profile, label_free: bool = False
) -> list[Message]:
    """Return the prompt of the reflect role for `profile`. Pure; with `label_free` the outcome is never read."""
    build = compact.reflect_prompt if profile == "compact" else full.reflect_prompt
    return build(trajectory, injected, label_free=label_free)


class ModelReflector:
    """Asks `policy` what a trajectory teaches. Implements `playbooks.protocols.Reflector`."""

    def __init__(self, policy: Policy, params: SamplingParams | None = None) -> None:
        self._policy = policy
        self._params = params or SamplingParams(max_tokens=256 if policy.profile == "compact" else 2048)

    @property
    def name(self) -> str:
        return f"model:{self._policy.name}"

    def reads(self, trajectory: Trajectory, *, label_free: bool = False) -> str:
        """Return the prompt: task, actions and observations as far as it shows them."""
        return "\n".join(m.content for m in reflect_messages(trajectory, (), self._policy.profile, label_free))

    async def reflect(
        self, trajectory: Trajectory, injected: Sequence[Record[Any]], *, label_free: bool = False
    ) -> Reflection:
        """Return the reflection; output that cannot be parsed is kept as `raw` with `parsed=False`."""
        messages = reflect_messages(trajectory, injected, self._policy.profile, label_free)
        blank = Reflection(trajectory_id=trajectory.id, task_id=trajectory.task.id, author=self.name)
        if self._policy.profile == "compact":
            answer, reply, raw = await generate_structured(
                self._policy, messages, compact.CompactReflection, self._params
            )
            found = None if answer is None else _from_compact(answer, injected)
        else:
            answer, reply, raw = await generate_structured(self._policy, messages, full.FullReflection, self._params)
            found = None if answer is None else _from_full(answer, injected)
        rest: dict[str, Any] = {"parsed": False} if found is None else found
        return blank.model_copy(update={"raw": raw, "usage": reply.usage, "reply_key": reply.key, **rest})


def _from_compact(answer: compact.CompactReflection, injected: Sequence[Record[Any]]) -> dict[str, Any]:
    harmful = [record for record in injected if record.number in answer.harmful]
    return {
        "insights": tuple(Insight(content=text) for text in map(clean_text, answer.insights) if text),
        "tags": {record.id: "harmful" for record in harmful},
    }


def _from_full(answer: full.FullReflection, injected: Sequence[Record[Any]]) -> dict[str, Any]:
    lessons = [
        Insight(content=text, section=lesson.section, cue=lesson.cue, action=lesson.action)
        for lesson in answer.insights
        if (text := clean_text(lesson.content))
    ]
    tags: dict[str, Tag] = {}
    for item in answer.bullet_tags:
        record, tag = resolve(item.id, injected), item.tag.strip().lower()
        if record is not None and tag in get_args(Tag):
            tags[record.id] = tag  # pyright: ignore[reportArgumentType] - checked against the literal's members
    return {"root_cause": answer.root_cause or answer.correct_approach, "insights": tuple(lessons), "tags": tags}
