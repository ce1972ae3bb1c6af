"""Makes proposals of what an agent did with skills in an episode. Pure: gates and commit decide what becomes of them.

In every profile a function that it wrote and called without an error is proposed, and one of a shown skill's name as a
change of that skill (SAGE, arXiv 2512.17102, reads them off the executed code). In the full profile it can also say so,
and ask to delete one (`evolve.episode.skill_runtime.skill_actions`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from evolve.episode.search import SEARCH
from evolve.episode.skill_runtime.skill_actions import Asked, asked, granted, written
from evolve.seeds import id_for
from memory.records import DeltaOp, Op, Provenance, Record, Step, Trajectory
from skills.program import program
from skills.record import Skill, SkillTest


def skill_ops(trajectory: Trajectory, shown: Sequence[Record[Any]], *, success: bool | None) -> tuple[DeltaOp, ...]:
    """Return the ops that an episode asks for, each skill once, callees first; what was said overrides what was done.

    From an episode known to have failed nothing is saved or changed; what it asked to delete is proposed. A change is
    an EDIT against the version that was shown.
    """
    known = {record.payload.name: record for record in shown}
    own = written(trajectory.task, trajectory.steps, [record.payload for record in shown])
    ops: dict[str, DeltaOp] = {}
    for wish in (*_done(own, known), *_said(trajectory)):
        if wish.verb != "delete" and success is False:
            continue
        op = _op(wish, _tested(own.get(wish.name), trajectory), known.get(wish.name), trajectory)
        if op is not None:
            ops[wish.name] = op
    return tuple(ops.values())


def _done(own: dict[str, Skill], known: dict[str, Record[Any]]) -> Iterator[Asked]:
    return (Asked("update" if name in known else "save", name) for name in own)


def _said(trajectory: Trajectory) -> Iterator[Asked]:
    return (wish for step in trajectory.steps if (wish := granted(step)) is not None and wish.verb != "show")


def _tested(skill: Skill | None, trajectory: Trajectory) -> Skill | None:
    """Return the skill with its episode as a test: the same program, where the skill is defined already."""
    if skill is None:
        return None
    done = trajectory.model_copy(update={"steps": tuple(step for step in trajectory.steps if not _aside(step))})
    test = SkillTest(code=program(done, {skill.name, *skill.requires}), task_id=trajectory.task.id)
    return skill.model_copy(update={"tests": (test,)})


def _aside(step: Step) -> bool:
    """Tell whether a step was answered by the loop: a search, or a word about a skill, which no world can run."""
    wish = asked(step.reply)
    return step.action.startswith(f"{SEARCH}(") or (wish is not None and step.action == wish.action)


def _op(wish: Asked, skill: Skill | None, record: Record[Any] | None, trajectory: Trajectory) -> DeltaOp | None:
    """Return the op of a wish; None for one whose function is gone, or is what was shown."""
    fields: dict[str, Any] = {
        "op_id": id_for("op", trajectory.id, *wish),
        "kind": Skill.kind,
        "provenance": Provenance(
            trajectory_ids=(trajectory.id,), task_ids=(trajectory.task.id,), author=trajectory.policy
        ),
    }
    if record is not None:
        fields |= {"target_id": record.id, "base_version": record.version}
    if wish.verb == "delete":
        return DeltaOp(op=Op.REMOVE, reason="the agent asked to delete it", **fields)
    if skill is None:
        return None
    if record is None:
        return DeltaOp(op=Op.ADD, payload=skill.model_dump(mode="json"), **fields)
    changed = {"source": skill.source, "requires": skill.requires, "tests": skill.tests}
    return DeltaOp(op=Op.EDIT, payload=record.payload.model_copy(update=changed).model_dump(mode="json"), **fields)
