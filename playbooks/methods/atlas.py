"""ATLAS (arXiv 2511.01093): how much a teacher looks at is chosen by how well tasks of a kind went before.

auto    it went well: the teacher is not asked
paired  the teacher checks the final step; also where there is no history
coach   it went badly: the teacher goes through the whole episode

Lanes cost calls and tokens in that order, so supervision fades where it is no longer needed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, field_validator

from memory.protocols import KnowledgeView
from memory.records import DeltaOp, Frozen, Insight, Reflection, Trajectory, Trust
from playbooks import prompts
from playbooks.asking import ask
from playbooks.compact import listed
from playbooks.lessons import Known, collect, direct_op
from playbooks.methods.shown_episode import block, line, steps_of
from playbooks.notebook.failure_judge import by_outcome
from policies.protocols import Message, Policy, SamplingParams
from policies.schemas import most_items
from policies.templates import render_turns

Lane = Literal["auto", "paired", "coach"]
HIGH, LOW, LAST = 0.8, 0.4, 10
MOST: dict[Lane, int] = {"auto": 0, "paired": 1, "coach": 3}
"""Pieces of guidance that a lane may give."""


class Session(Frozen):
    """One episode as the history of its kind keeps it."""

    trajectory_id: str
    key: str
    lane: Lane
    score: float | None
    """Reward; None where nobody graded it, or nobody may read the grade."""


class Guidance(BaseModel):
    """What a teacher answers."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    guidance: Annotated[tuple[str, ...], most_items(MOST["coach"])]

    @field_validator("guidance", mode="before")
    @classmethod
    def _texts(cls, value: Any) -> Any:
        return [item for item in listed(value) if item]


History = Callable[[str], Sequence[Session]]


def learning_key(trajectory: Trajectory) -> str:
    """Return the kind of a task: its family where it has one, else its scenario, else its environment."""
    task = trajectory.task
    return str(task.metadata.get("family") or task.scenario or task.environment)


def lane_of(scores: Sequence[float]) -> Lane:
    """Return the lane for the scores of earlier episodes, oldest first: the mean of the last ten decides."""
    if not scores:
        return "paired"
    recent = scores[-LAST:]
    mean = sum(recent) / len(recent)
    return "auto" if mean >= HIGH else "coach" if mean <= LOW else "paired"


def teacher_messages(trajectory: Trajectory, lane: Lane, *, label_free: bool = False) -> list[Message]:
    """Return the teacher's prompt for a lane. Pure; with `label_free` the outcome is never read."""
    steps = steps_of(trajectory)
    finding = None if label_free else by_outcome(trajectory)
    return render_turns(
        prompts,
        "atlas",
        coach=lane == "coach",
        task=block(trajectory.instruction),
        steps=steps if lane == "coach" else steps[-1:],
        reasons=[line(finding.reason)] if finding is not None and finding.failed and finding.reason else [],
        most=MOST[lane],
    )


class AtlasCurator:
    """Chooses a lane for each episode and adds the teacher's guidance. Implements `playbooks.protocols.Curator`.

    `history` returns the earlier sessions of a kind, oldest first; each session of this batch is handed to `record`.
    Episodes of one batch do not see each other's history. What the teacher said and could not be used is handed to
    `keep` as a raw reflection.
    """

    def __init__(
        self,
        policy: Policy,
        episodes: Callable[[str], Trajectory | None],
        history: History,
        *,
        record: Callable[[Session], object] = lambda _: None,
        keep: Callable[[Reflection], object] = lambda _: None,
        label_free: bool = False,
    ) -> None:
        self._policy = policy
        self._episodes = episodes
        self._history = history
        self._record = record
        self._keep = keep
        self._label_free = label_free

    @property
    def name(self) -> str:
        return f"atlas:{self._policy.name}"

    async def curate(self, reflections: Sequence[Reflection], view: KnowledgeView) -> tuple[DeltaOp, ...]:
        """Return what the guidance changes: new rules, agreement with known ones, replaced ones."""
        found = [t for r in reflections if (t := self._episodes(r.trajectory_id)) is not None]
        batch = {trajectory.id for trajectory in found}
        sessions = [self._session(trajectory, batch) for trajectory in found]
        taught = await asyncio.gather(*(self._teach(t, s.lane) for t, s in zip(found, sessions, strict=True)))
        for session, reflection in zip(sessions, taught, strict=True):
            self._record(session)
            if not reflection.parsed:
                self._keep(reflection)
        known, trust = Known(view), Trust.SELF_JUDGED if self._label_free else Trust.VERIFIED
        ops = [direct_op(lesson, known, trust) for lesson in collect(taught)]
        return tuple({op.op_id: op for op in ops if op is not None}.values())

    def _session(self, trajectory: Trajectory, batch: set[str]) -> Session:
        key = learning_key(trajectory)
        past = [s.score for s in self._history(key) if s.trajectory_id not in batch and s.score is not None]
        outcome = None if self._label_free else trajectory.outcome
        score = None if outcome is None else outcome.reward
        return Session(trajectory_id=trajectory.id, key=key, lane=lane_of(past), score=score)

    async def _teach(self, trajectory: Trajectory, lane: Lane) -> Reflection:
        blank = Reflection(trajectory_id=trajectory.id, task_id=trajectory.task.id, author=self.name)
        if lane == "auto":
            return blank
        messages = teacher_messages(trajectory, lane, label_free=self._label_free)
        answer, reply, raw = await ask(self._policy, messages, Guidance, SamplingParams(max_tokens=512))
        if answer is None:
            return blank.model_copy(update={"parsed": False, "raw": raw, "usage": reply.usage})
        insights = tuple(Insight(content=line(text)) for text in answer.guidance[: MOST[lane]])
        return blank.model_copy(update={"insights": insights, "usage": reply.usage})
