"""AgentDevel (arXiv 2601.04620): improvement as a release line. One candidate a batch, with a stated intent.

A critic that does not know the agent labels each failure with a symptom (`SymptomReflector`); a script, no model,
diagnoses by counting labels; one candidate is written against the most frequent one (`ReleaseCurator`). Whether it is
released is for the gates: `held_out` counts what it fixes and caps what it breaks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from memory.protocols import KnowledgeView
from memory.records import DeltaOp, Insight, Record, Reflection, Trajectory, Trust
from playbooks import prompts
from playbooks.asking import ask
from playbooks.citations import resolve
from playbooks.compact import listed, sound
from playbooks.kinds.bullet import Bullet, clean_text
from playbooks.lessons import Lesson, add_op, edit_op, tag_ops
from playbooks.likeness import nearest
from playbooks.methods.method_roles import EpisodeCurator, opened
from playbooks.methods.shown_episode import block, labelled, line, steps_of
from playbooks.notebook.failure_judge import by_outcome
from policies.protocols import Message, Policy, SamplingParams
from policies.schemas import most_chars, most_items
from policies.templates import render_turns

EXAMPLES = 4
MOST_CHANGES = 4
NEAR = 12
"""Rules in force that a release is shown: those nearest to each example."""


class Symptom(BaseModel):
    """What the critic answers."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    symptom: Annotated[str, most_chars(80)] = Field(min_length=1)


class Change(BaseModel):
    """One rule of a release."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    content: str = Field(min_length=1)
    target: Annotated[str, most_chars(16)] = ""

    @field_validator("target", mode="before")
    @classmethod
    def _absent(cls, value: Any) -> Any:
        return "" if value is None else str(value)


class Release(BaseModel):
    """What the release engineer answers."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    intent: str = ""
    changes: Annotated[tuple[Change, ...], most_items(MOST_CHANGES)]

    @field_validator("changes", mode="before")
    @classmethod
    def _few(cls, value: Any) -> Any:
        return sound(listed(value), lambda item: isinstance(item, dict) and bool(item.get("content")))[:MOST_CHANGES]


def diagnose(symptoms: Sequence[str]) -> tuple[str, int] | None:
    """Return (symptom, count) of the most frequent label, the first one among equals; case and spaces do not count."""
    labels = [" ".join(symptom.lower().split()) for symptom in symptoms if symptom.strip()]
    if not labels:
        return None
    counts = Counter(labels)
    worst = max(counts, key=lambda label: (counts[label], -labels.index(label)))
    return worst, counts[worst]


def symptom_messages(trajectory: Trajectory, reason: str) -> list[Message]:
    """Return the critic's prompt: no knowledge of the agent stands in it. Pure."""
    shown = _example(trajectory, reason)
    return render_turns(prompts, "symptom", **shown)


class SymptomReflector:
    """Labels a failure and teaches nothing; a success needs no label. Implements `playbooks.protocols.Reflector`."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    @property
    def name(self) -> str:
        return f"symptoms:{self._policy.name}"

    async def reflect(
        self, trajectory: Trajectory, injected: Sequence[Record[Any]], *, label_free: bool = False
    ) -> Reflection:
        """Return a reflection whose root cause is the symptom; empty for a success, unparsed where nobody judged it."""
        blank, finding = await opened(self._policy, self.name, trajectory, label_free)
        if finding.missing or not finding.failed:
            return blank
        messages = symptom_messages(trajectory, finding.reason)
        answer, reply, raw = await ask(self._policy, messages, Symptom, SamplingParams(max_tokens=64))
        if answer is None:
            return blank.model_copy(update={"parsed": False, "raw": raw, "usage": reply.usage})
        return blank.model_copy(update={"root_cause": line(answer.symptom), "raw": raw, "usage": reply.usage})


class ReleaseCurator(EpisodeCurator):
    """Writes one candidate against the most frequent symptom. Implements `playbooks.protocols.Curator`."""

    @property
    def name(self) -> str:
        return f"release:{self._policy.name}"

    async def curate(self, reflections: Sequence[Reflection], view: KnowledgeView) -> tuple[DeltaOp, ...]:
        """Return the reflections' tags, then the candidate's changes, each with the release's intent as its reason."""
        labelled_ = [r for r in reflections if r.parsed and r.root_cause]
        found = diagnose([reflection.root_cause for reflection in labelled_])
        if found is None:
            return tag_ops(reflections, view)
        shown = [r for r in labelled_ if " ".join(r.root_cause.lower().split()) == found[0]]
        episodes = [t for r in shown if (t := self._episodes(r.trajectory_id)) is not None][:EXAMPLES]
        near = {r.id: r for t in episodes for r in nearest(t.task.instruction, view, Bullet.kind)}
        rules = tuple(near.values())[:NEAR]
        messages = self._messages(found, len(labelled_), episodes, rules)
        answer, reply, raw = await ask(self._policy, messages, Release, SamplingParams(max_tokens=2048))
        if answer is None:
            kept = shown[0].model_copy(update={"raw": raw, "parsed": False, "author": self.name, "usage": reply.usage})
            self._keep(kept)
            return tag_ops(reflections, view)
        ops = [self._op(change, answer.intent, shown, rules) for change in answer.changes]
        return tuple({op.op_id: op for op in (*tag_ops(reflections, view), *ops)}.values())

    def _messages(
        self, found: tuple[str, int], failures: int, episodes: Sequence[Trajectory], rules: Sequence[Record[Any]]
    ) -> list[Message]:
        label_free = self._trust is Trust.SELF_JUDGED
        return render_turns(
            prompts,
            "release",
            symptom=line(found[0]),
            count=found[1],
            failures=failures,
            examples=[_example(t, "" if label_free else by_outcome(t).reason) for t in episodes],
            rules=labelled(rules),
            most=MOST_CHANGES,
        )

    def _op(self, change: Change, intent: str, shown: Sequence[Reflection], rules: Sequence[Record[Any]]) -> DeltaOp:
        lesson = Lesson(
            insight=Insight(content=clean_text(change.content)),
            trajectory_ids=tuple(reflection.trajectory_id for reflection in shown),
            task_ids=tuple(dict.fromkeys(reflection.task_id for reflection in shown)),
            author=self.name,
        )
        target = resolve(change.target, rules) if change.target.strip() else None
        op = add_op(lesson, self._trust) if target is None else edit_op(lesson, target, self._trust)
        return op.model_copy(update={"reason": line(intent)})


def _example(trajectory: Trajectory, reason: str) -> dict[str, Any]:
    return {
        "task": block(trajectory.instruction),
        "steps": steps_of(trajectory),
        "reasons": [line(reason)] if reason else [],
    }
