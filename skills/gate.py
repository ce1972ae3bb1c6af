"""The gate that reads proposed skills: code that may be kept, and a library that still holds together with it.

Nothing is run. Ops of other kinds pass; the gate `static` asks this one about skills.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from pydantic import ValidationError

from memory.errors import BadInput, NotFound
from memory.protocols import KnowledgeView
from memory.records import DeltaOp, Op, Record, Trajectory, Trust, Verdict
from skills.hosts import documented
from skills.library import Library, Overlay
from skills.record import Skill
from skills.static import complaints
from skills.triggers import triggers


class SkillGate:
    """Accepts skills without complaints whose names are free, whose requirements are met, and removals nobody misses.

    Ops are judged in order, each against the library as those before it leave it. `described` returns what an operator
    and the environment say: the host functions there are, where it names any, and words that skills may hold.
    """

    name = "skill"

    def __init__(self, described: Callable[[], str] = str) -> None:
        self._described = described

    async def judge(self, ops: Sequence[DeltaOp], view: KnowledgeView, trajectories: Sequence[Trajectory]) -> Verdict:
        """Return a verdict with a reason for every op refused."""
        library = Library(view.records(Skill.kind)).overlay()
        rejected: dict[str, str] = {}
        for op in ops:
            changed = library.overlay()
            try:
                self._take(op, changed, view, trajectories)
            except (BadInput, NotFound) as refused:
                rejected[op.op_id] = str(refused)
            else:
                library = changed
        accepted = tuple(op.op_id for op in ops if op.op_id not in rejected)
        return Verdict(gate=self.name, accepted=accepted, rejected=rejected, evidence={"view": view.version})

    def _take(self, op: DeltaOp, library: Overlay, view: KnowledgeView, trajectories: Sequence[Trajectory]) -> None:
        """Change the library as the op would. Raises `BadInput` or `NotFound` with the reason where it may not."""
        targets = [each for key in (op.target_id, *op.parent_ids) if (each := _skill(view, key))]
        ids = {each.id for each in targets}
        replaced = {record.payload.name for record in library.records if record.id in ids}
        if op.op is Op.REMOVE:
            for name in replaced:
                library.delete(name)
        elif op.op is Op.RESTORE and targets and not replaced:
            library.save(targets[0].payload)
        elif op.payload is not None and op.kind == Skill.kind:
            skill = _parsed(op)
            if op.provenance.trust is not Trust.OPERATOR:
                self._read(skill, library, trajectories, strict=not op.provenance.trust.reaches(Trust.TAINTED))
            library.update(skill) if skill.name in replaced else library.save(skill)
            for name in replaced - {skill.name}:
                library.delete(name)

    def _read(self, skill: Skill, library: Overlay, trajectories: Sequence[Trajectory], *, strict: bool) -> None:
        """Raise `BadInput` with all complaints; `strict` asks of code of little trust that it waits for no value."""
        tasks = [trajectory.task.instruction for trajectory in trajectories]
        found = objections(skill, self._described(), library.names, tasks)
        waits = dict.fromkeys(triggers(skill)) if strict else ()
        if found := (*found, *(f"line {line}: {said}" for line, said in waits)):
            raise BadInput("; ".join(found))


def objections(skill: Skill, described: str, known: Collection[str], tasks: Sequence[str] = ()) -> tuple[str, ...]:
    """Return `complaints` about a skill in a world that says `described` of itself, beside skills named `known`."""
    return complaints(skill, documented=documented(described), known=known, tasks=tasks, allowed=described)


def _skill(view: KnowledgeView, record_id: str | None) -> Record[Any] | None:
    record = view.get(record_id) if record_id else None
    return record if record is not None and record.kind == Skill.kind else None


def _parsed(op: DeltaOp) -> Skill:
    try:
        return Skill.model_validate(op.payload)
    except ValidationError as invalid:
        first = invalid.errors(include_url=False)[0]
        raise BadInput(
            f"payload is no skill: {'.'.join(map(str, first['loc'])) or 'object'}: {first['msg']}"
        ) from invalid
