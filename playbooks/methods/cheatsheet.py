"""Dynamic Cheatsheet, cumulative (arXiv 2504.07952): after each episode the sheet is written anew, without labels.

The new sheet becomes deltas: an item that says the same stays, one that nearly does is edited, a new one is added, and
what was not copied is retired. The loss that the paper's rewriting risks is real here too, but it can be read in the
journal and undone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, field_validator

from memory.operations import op_id, removal
from memory.protocols import KnowledgeView
from memory.records import DeltaOp, Insight, Provenance, Record, Reflection, Trajectory
from playbooks import prompts
from playbooks.asking import ask
from playbooks.compact import listed
from playbooks.kinds.bullet import DEFAULT_SECTION, Bullet
from playbooks.lessons import Lesson, add_op, edit_op
from playbooks.methods.method_roles import EpisodeCurator
from playbooks.methods.shown_episode import block, line, steps_of
from playbooks.similarity import exact_key
from playbooks.texts import TextIndex
from playbooks.view import bullets
from policies.protocols import Message, SamplingParams
from policies.schemas import most_chars, most_items
from policies.templates import render_turns

WORDS = 2500
"""Most words of a sheet."""
NEAR = 0.6
"""TF-IDF cosine from which a rewritten item is the old one in other words."""
_CUT_OFF = ("length", "max_tokens")
"""Why a reply ended that was to be longer, as servers call it: the end of its sheet is missing."""


class Item(BaseModel):
    """One entry of a sheet. The paper's count of uses is kept by the journal, not by the model."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    description: Annotated[str, most_chars(300)]
    example: Annotated[str, most_chars(150)] = ""

    @field_validator("description")
    @classmethod
    def _said(cls, value: str) -> str:
        if not value.strip():
            raise ValueError("an item without a description says nothing")
        return value

    def text(self) -> str:
        """Return the entry as the text of a bullet."""
        return line(self.description) + (f" Example: {line(self.example)}" if self.example.strip() else "")


class Sheet(BaseModel):
    """What a model answers. It is no sheet without `items`, nor with one that is no item."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    items: Annotated[tuple[Item, ...], most_items(64)]

    @field_validator("items", mode="before")
    @classmethod
    def _items(cls, value: Any) -> Any:
        if value is None:
            raise ValueError("a sheet without items would forget everything; an empty one is []")
        return [{"description": item} if isinstance(item, str) else item for item in listed(value)]

    def texts(self) -> list[str]:
        """Return the entries that fit into `WORDS` words, each once, in order."""
        kept, used = dict[str, str](), 0
        for text in (item.text() for item in self.items):
            count = len(text.split())
            if used + count <= WORDS:
                used += count
                kept.setdefault(exact_key(text), text)
        return list(kept.values())


def sheet_messages(items: Sequence[str], trajectory: Trajectory) -> list[Message]:
    """Return the prompt that asks for the new sheet. Pure; the outcome is never read."""
    return render_turns(
        prompts,
        "cheatsheet",
        items=[line(item) for item in items],
        task=block(trajectory.instruction),
        steps=steps_of(trajectory),
        words=WORDS,
    )


class CheatsheetCurator(EpisodeCurator):
    """Rewrites the sheet after each episode, in order. Implements `playbooks.protocols.Curator`.

    A reply that was cut off or cannot be parsed leaves the sheet as it is and is handed to `keep`.
    """

    @property
    def name(self) -> str:
        return f"cheatsheet:{self._policy.name}"

    async def curate(self, reflections: Sequence[Reflection], view: KnowledgeView) -> tuple[DeltaOp, ...]:
        """Return the deltas from the view's sheet to the one after the last episode. What is pinned stays."""
        known = [record for record in bullets(view) if not record.pinned]
        before = [record.payload.content for record in known]
        sheet, read = before, list[Reflection]()
        for reflection in reflections:
            trajectory = self._episodes(reflection.trajectory_id)
            if trajectory is not None:
                read.append(reflection)
                sheet = await self._rewritten(sheet, trajectory)
        return self._deltas(known, sheet, read) if sheet != before else ()

    async def _rewritten(self, sheet: Sequence[str], trajectory: Trajectory) -> list[str]:
        messages = sheet_messages(sheet, trajectory)
        answer, reply, raw = await ask(self._policy, messages, Sheet, SamplingParams(max_tokens=8192))
        if answer is not None and reply.finish_reason.lower() not in _CUT_OFF:
            return answer.texts()
        self._keep(
            Reflection(
                trajectory_id=trajectory.id,
                task_id=trajectory.task.id,
                raw=raw,
                parsed=False,
                author=self.name,
                usage=reply.usage,
            )
        )
        return list(sheet)

    def _deltas(
        self, known: Sequence[Record[Bullet]], sheet: Sequence[str], read: Sequence[Reflection]
    ) -> tuple[DeltaOp, ...]:
        """Return the ops that make `sheet` of what is known, the removals first."""
        by_id = {record.id: record for record in known}
        trajectory_ids = tuple(reflection.trajectory_id for reflection in read)
        kept = {exact_key(text) for text in sheet} & {exact_key(record.payload.content) for record in known}
        left = TextIndex((r.id, r.payload.content) for r in known if exact_key(r.payload.content) not in kept)
        gone = {record.id for record in known if exact_key(record.payload.content) not in kept}
        ops: list[DeltaOp] = []
        for text in sheet:
            if exact_key(text) in kept:
                continue
            lesson = Lesson(
                insight=Insight(content=text, section=DEFAULT_SECTION),
                trajectory_ids=trajectory_ids,
                task_ids=tuple(dict.fromkeys(reflection.task_id for reflection in read)),
                author=self.name,
            )
            old = left.duplicate_of(text, threshold=NEAR)
            if old is None:
                ops.append(add_op(lesson, self._trust))
                continue
            left.remove(old[0])
            gone.discard(old[0])
            ops.append(edit_op(lesson, by_id[old[0]], self._trust))
        return (*(_drop(by_id[key], trajectory_ids) for key in by_id if key in gone), *ops)


def _drop(record: Record[Bullet], trajectory_ids: Sequence[str]) -> DeltaOp:
    key = op_id("drop", f"{record.id}@{record.version}", *trajectory_ids)
    return removal(record, key, "not copied into the new sheet", Provenance())
