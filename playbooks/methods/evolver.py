"""EvolveR (arXiv 2510.16079): one principle from each episode, scored by what happened where it was shown.

A guiding principle comes from a success, a cautionary one (section COMMON MISTAKES) from a failure. A principle that
the store has already is linked instead of added; one whose score (successes + 1) / (uses + 2) is below 0.3 is pruned.
Searching for principles while acting is `evolve.episode.search`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, field_validator

from memory.operations import op_id, removal
from memory.protocols import Embedder, KnowledgeView
from memory.records import DeltaOp, Insight, Op, Provenance, Record, Reflection, Trajectory, Trust, UsageCounts
from playbooks import prompts
from playbooks.asking import ask
from playbooks.compact import listed
from playbooks.kinds.bullet import Bullet
from playbooks.lessons import Lesson, add_op, collect, tag_ops
from playbooks.methods.method_roles import opened
from playbooks.methods.shown_episode import block, line, steps_of
from playbooks.notebook.failure_judge import Finding
from playbooks.view import bullets
from policies.protocols import Message, Policy, SamplingParams
from policies.schemas import most_chars, most_items
from policies.templates import render_turns

NEIGHBOURS = 3
SIMILARITY = 0.85
"""Cosine from which the policy is asked whether two principles are the same."""
FLOOR = 0.3
GUIDING, CAUTIONARY = "STRATEGIES AND HARD RULES", "COMMON MISTAKES AND CORRECT STRATEGIES"


class Principle(BaseModel):
    """What a model answers."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    description: str = Field(min_length=1)
    structure: Annotated[
        tuple[Annotated[tuple[Annotated[str, most_chars(40)], ...], most_items(3)], ...], most_items(4)
    ] = ()

    @field_validator("structure", mode="before")
    @classmethod
    def _triples(cls, value: Any) -> Any:
        rows = [item for item in listed(value) if isinstance(item, list | tuple)]
        return [[str(part) for part in row] for row in rows if len(row) == 3]  # pyright: ignore[reportUnknownArgumentType]

    def text(self) -> str:
        """Return description and structure as the text of a bullet."""
        triples = " ".join(f"({line(', '.join(triple))})" for triple in self.structure)
        return f"{line(self.description)} {triples}".strip()


class Same(BaseModel):
    """Whether two principles are one."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    same: bool


def score(usage: UsageCounts) -> float:
    """Return (s + 1) / (n + 2): s successes among the n graded episodes that a principle was shown in."""
    return (usage.success + 1) / (usage.success + usage.failure + 2)


def principle_messages(trajectory: Trajectory, finding: Finding) -> list[Message]:
    """Return the prompt that asks for an episode's principle. Pure; of the outcome only `finding` is told."""
    return render_turns(
        prompts,
        "evolver",
        task=block(trajectory.instruction),
        steps=steps_of(trajectory),
        success=not finding.failed,
        reasons=[line(finding.reason)] if finding.failed and finding.reason else [],
    )


def same_messages(first: str, second: str) -> list[Message]:
    """Return the prompt that compares two principles. Pure."""
    return render_turns(prompts, "evolver_same", first=line(first), second=line(second))


class EvolverReflector:
    """Distils a principle. Implements `playbooks.protocols.Reflector`."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    @property
    def name(self) -> str:
        return f"evolver:{self._policy.name}"

    async def reflect(
        self, trajectory: Trajectory, injected: Sequence[Record[Any]], *, label_free: bool = False
    ) -> Reflection:
        """Return one lesson. An episode without a label gives none."""
        blank, finding = await opened(self._policy, self.name, trajectory, label_free)
        if finding.missing:
            return blank
        messages = principle_messages(trajectory, finding)
        answer, reply, raw = await ask(self._policy, messages, Principle, SamplingParams(max_tokens=512))
        update: dict[str, Any] = {"raw": raw, "usage": reply.usage, "parsed": answer is not None}
        if answer is not None:
            section = CAUTIONARY if finding.failed else GUIDING
            update["insights"] = (Insight(content=answer.text(), section=section),)
        return blank.model_copy(update=update)


class EvolverCurator:
    """Links or adds principles and prunes spent ones. Implements `playbooks.protocols.Curator`."""

    def __init__(self, policy: Policy, embedder: Embedder, *, trust: Trust = Trust.SELF_JUDGED) -> None:
        self._policy = policy
        self._embedder = embedder
        self._trust = trust

    @property
    def name(self) -> str:
        return f"evolver:{self._policy.name}"

    async def curate(self, reflections: Sequence[Reflection], view: KnowledgeView) -> tuple[DeltaOp, ...]:
        """Return the reflections' tags, an op for each principle, then a REMOVE for each spent one."""
        spent = [record for record in bullets(view) if not record.pinned and score(record.usage) < FLOOR]
        known = [record for record in bullets(view) if record not in spent]
        ops = [*tag_ops(reflections, view)]
        ops += [await self._place(lesson, known) for lesson in collect(reflections)]
        ops += [self._prune(record) for record in spent]
        return tuple({op.op_id: op for op in ops}.values())

    async def _place(self, lesson: Lesson, known: Sequence[Record[Bullet]]) -> DeltaOp:
        """Return a link to the nearest principle that the policy calls the same, else an ADD."""
        for record in self._neighbours(lesson, known):
            messages = same_messages(lesson.insight.content, record.payload.content)
            answer, _, _ = await ask(self._policy, messages, Same, SamplingParams(max_tokens=128))
            if answer is not None and answer.same:
                return self._link(lesson, record)
        added = add_op(lesson, self._trust)
        polarity = "avoid" if lesson.insight.section == CAUTIONARY else "do"
        return added.model_copy(update={"payload": {**(added.payload or {}), "polarity": polarity}})

    def _neighbours(self, lesson: Lesson, known: Sequence[Record[Bullet]]) -> list[Record[Bullet]]:
        if not known:
            return []
        vectors = self._embedder.embed([lesson.insight.content, *(record.payload.content for record in known)])
        cosine = np.round(vectors[1:] @ vectors[0], 6)
        order = sorted(range(len(known)), key=lambda at: (-cosine[at], known[at].number))
        return [known[at] for at in order[:NEIGHBOURS] if cosine[at] >= SIMILARITY]

    def _link(self, lesson: Lesson, record: Record[Bullet]) -> DeltaOp:
        """Return a TAG: drawn again. The score stays; it is of episodes that the principle was shown in."""
        return DeltaOp(
            op=Op.TAG,
            op_id=op_id("link", record.id, *lesson.trajectory_ids),
            kind=record.kind,
            target_id=record.id,
            usage=UsageCounts(helpful=1),
            provenance=lesson.provenance(self._trust),
            reason="the same principle, drawn again",
        )

    def _prune(self, record: Record[Bullet]) -> DeltaOp:
        key = op_id("prune", f"{record.id}@{record.version}")
        return removal(
            record,
            key,
            f"score {score(record.usage):.2f} below {FLOOR}",
            Provenance(trust=self._trust, author=self.name),
        )
