"""Judge recorded replies: read, mended or refused; the lessons in them; which of those gate `static` admits.

`borrowed` reads an admitted lesson by rules of its own, so that the gate is not its own judge. Pure but for the gate.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from pydantic import BaseModel, ValidationError

from benchmarks.real.replies import Entry
from evolve.episode.prompting import actions_of
from evolve.episode.teacher import Advice
from evolve.gates.static import StaticGate
from evolve.loop.nodes.judge import SelfJudgement
from memory.operations import op_id
from memory.protocols import KnowledgeView
from memory.records import DeltaOp, Frozen, Op, Task, Trajectory
from playbooks.compact import CompactDecision, CompactReflection
from playbooks.full import FullCuration, FullReflection
from playbooks.kinds.bullet import clean_text
from policies.protocols import Reply
from policies.roles import ACTING
from policies.structured import parse

ANSWERS: Mapping[tuple[str, str], type[BaseModel]] = {
    ("reflector", "full"): FullReflection,
    ("reflector", "compact"): CompactReflection,
    ("curator", "full"): FullCuration,
    ("curator", "compact"): CompactDecision,
    ("judge", "full"): SelfJudgement,
    ("judge", "compact"): SelfJudgement,
    ("teacher", "full"): Advice,
}
Read = Literal["parsed", "repaired", "refused"]

_FIELDS = {name for model_cls in ANSWERS.values() for name in model_cls.model_fields}
_EXAMPLE = re.compile(r"\b(?:crane|cranes|berth|berths|harbou?r|hbr)\b", re.IGNORECASE)
"""The world that all examples of our prompts are about. Nothing of finance is."""
_ANGLE = re.compile(r"<[A-Za-z][^<>]{0,60}>")
FIRST_CONTACT = ("the rule", "the call to make then", "for ADD, EDIT, MERGE")
"""The first lessons that a real model taught our agent: placeholders of the prompts of that day."""
FEEDBACK = ("holds no json object", "no code was found", "reply is empty", "failed in the same way before")
"""What our agent tells a model of a reply that it cannot use."""
LOOP, TIMES = 4, 4
"""Words that a text says so often are a loop."""


class Judged(Frozen):
    """What became of one reply."""

    entry: Entry
    read: Read
    lessons: tuple[str, ...] = ()
    """Texts of its own that it would have learned."""
    admitted: tuple[str, ...] = ()
    """Those that gate `static` alone lets in, into a memory that holds nothing."""
    usable: bool
    """It can be worked with: an action, a verdict, advice; of a reflection an admitted lesson, of a curation an
    operation of a kind that there is."""


async def judge(entry: Entry, view: KnowledgeView, instructions: Mapping[str, str]) -> Judged:
    """Return what becomes of a reply. `instructions` are the tasks' by id."""
    read, answer = reading(entry)
    lessons = _lessons(answer)
    admitted = await static(
        lessons, view, [instructions[task] for task in entry.task.split(",") if task in instructions]
    )
    usable = read != "refused" and _usable(answer, admitted)
    return Judged(entry=entry, read=read, lessons=lessons, admitted=admitted, usable=usable)


def reading(entry: Entry) -> tuple[Read, BaseModel | None]:
    """Return how a reply could be read, and what was read; of an acting reply that it holds an action."""
    if entry.role == ACTING:
        return ("parsed" if actions_of(Reply(text=entry.reply), "code", entry.profile) else "refused"), None
    model_cls = ANSWERS[entry.role, entry.profile]
    try:
        return "parsed", model_cls.model_validate_json(entry.reply)
    except ValidationError:
        value, _ = parse(entry.reply, model_cls)
        return ("refused" if value is None else "repaired"), value


async def static(texts: Sequence[str], view: KnowledgeView, instructions: Iterable[str]) -> tuple[str, ...]:
    """Return the texts that gate `static` alone admits as bullets, for what was learned in these tasks."""
    ops = [DeltaOp(op=Op.ADD, op_id=op_id("add", text), payload={"content": text}) for text in dict.fromkeys(texts)]
    episodes = [Trajectory(task=Task(id=f"t-{n}", instruction=each)) for n, each in enumerate(instructions)]
    verdict = await StaticGate().judge(ops, view, episodes)
    return tuple(op.payload["content"] for op in ops if op.op_id in verdict.accepted and op.payload)


def borrowed(text: str) -> str:
    """Return what of a lesson is of no world, or "": a placeholder, the name of a field, our examples' harbour, our
    feedback, a number alone, a loop."""
    words = re.findall(r"\w+", text.lower())
    if text.strip() in FIRST_CONTACT or "_".join(words) in _FIELDS:
        return "a placeholder or the name of a field"
    if said := next((said for said in FEEDBACK if said in " ".join(words)), ""):
        return f"our own feedback: {said}"
    if all(word.isdigit() for word in words):
        return "a number alone"
    runs = Counter(tuple(words[at : at + LOOP]) for at in range(len(words) - LOOP + 1))
    if runs and max(runs.values()) >= TIMES:
        return "a loop"
    if found := _ANGLE.search(text):
        return f"a placeholder: {found[0]}"
    found = _EXAMPLE.search(text)
    return f"our examples' world: {found[0]}" if found else ""


def _lessons(answer: BaseModel | None) -> tuple[str, ...]:
    match answer:
        case FullReflection():
            texts = [lesson.content for lesson in answer.insights]
        case CompactReflection():
            texts = list(answer.insights)
        case FullCuration():
            texts = [operation.content for operation in answer.operations]
        case _:
            texts = []
    return tuple(text for text in map(clean_text, texts) if text)


def _usable(answer: BaseModel | None, admitted: Sequence[str]) -> bool:
    match answer:
        case FullReflection() | CompactReflection():
            return bool(admitted)
        case FullCuration():
            return any(operation.type.upper() in Op.__members__ for operation in answer.operations)
        case Advice():
            return bool(answer.advice.strip()) and not borrowed(answer.advice)
        case _:
            return True
