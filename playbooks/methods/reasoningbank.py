"""ReasoningBank (arXiv 2509.25140): up to three memory items from each episode, from successes and failures alike.

The episode is labelled first: by its grade, or by a judge where nobody grades. Success and failure are asked about in
different words. Items are only ever appended (`AppendCurator`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, field_validator

from memory.protocols import KnowledgeView
from memory.records import DeltaOp, Insight, Record, Reflection, Trajectory, Trust
from playbooks import prompts
from playbooks.compact import listed, sound
from playbooks.lessons import add_op, collect, tag_ops
from playbooks.methods.method_roles import opened
from playbooks.methods.shown_episode import block, line, steps_of
from playbooks.notebook.failure_judge import Finding
from policies.protocols import Message, Policy, SamplingParams
from policies.schemas import most_chars, most_items
from policies.structured import generate_structured
from policies.templates import render_turns

MAX_ITEMS = 3


class Item(BaseModel):
    """One memory item as a model wrote it."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    title: Annotated[str, most_chars(80)]
    description: Annotated[str, most_chars(200)] = ""
    content: Annotated[str, most_chars(500)]

    def text(self) -> str:
        """Return the item as the text of a bullet."""
        applies = f" (applies: {line(self.description)})" if self.description.strip() else ""
        return f"{line(self.title)}: {line(self.content)}{applies}"


class Items(BaseModel):
    """What a model answers: more items than asked for are cut off."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    items: Annotated[tuple[Item, ...], most_items(MAX_ITEMS)]

    @field_validator("items", mode="before")
    @classmethod
    def _first_three(cls, value: Any) -> Any:
        return sound(listed(value), lambda item: isinstance(item, dict) and bool(item.get("content")))[:MAX_ITEMS]


def item_messages(trajectory: Trajectory, finding: Finding) -> list[Message]:
    """Return the prompt that asks for an episode's items. Pure; of the outcome only `finding` is told."""
    return render_turns(
        prompts,
        "reasoningbank",
        task=block(trajectory.instruction),
        steps=steps_of(trajectory),
        success=not finding.failed,
        reasons=[line(finding.reason)] if finding.failed and finding.reason else [],
    )


class ReasoningBankReflector:
    """Writes memory items. Implements `playbooks.protocols.Reflector`."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._params = SamplingParams(max_tokens=1024)

    @property
    def name(self) -> str:
        return f"reasoningbank:{self._policy.name}"

    async def reflect(
        self, trajectory: Trajectory, injected: Sequence[Record[Any]], *, label_free: bool = False
    ) -> Reflection:
        """Return up to three lessons. An episode without a label gives none: nobody knows what it is an example of."""
        blank, finding = await opened(self._policy, self.name, trajectory, label_free)
        if finding.missing:
            return blank
        answer, reply, raw = await generate_structured(
            self._policy, item_messages(trajectory, finding), Items, self._params
        )
        update: dict[str, Any] = {"raw": raw, "usage": reply.usage, "parsed": answer is not None}
        if answer is not None:
            update["insights"] = tuple(Insight(content=item.text()) for item in answer.items)
        return blank.model_copy(update=update)


class AppendCurator:
    """Adds every lesson and touches nothing else: no merge, no deletion. Implements `playbooks.protocols.Curator`."""

    name = "append"

    def __init__(self, *, trust: Trust = Trust.SELF_JUDGED) -> None:
        self._trust = trust

    async def curate(self, reflections: Sequence[Reflection], view: KnowledgeView) -> tuple[DeltaOp, ...]:
        """Return the reflections' tags, then an ADD for each lesson."""
        ops = [*tag_ops(reflections, view), *(add_op(lesson, self._trust) for lesson in collect(reflections))]
        return tuple({op.op_id: op for op in ops}.values())
