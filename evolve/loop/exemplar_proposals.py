"""Makes proposals of the tasks that a batch solved. Reads only: gates and commit decide what becomes of them.

What counts as solved, and by which of several attempts, is `evolve.loop.nodes.attempt.solution`; where no outcome may
be read the exemplar is self-judged. Of one task, or of two that read nearly the same, one exemplar is kept; a shorter
one that is trusted as much takes its place. What strangers can have written is left out of it (`evolve.episode.taint`);
its agent read that, so it is quarantined as all that such readers write.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any

from evolve.episode.search import SEARCH
from evolve.episode.skill_runtime.skill_actions import asked
from evolve.episode.taint import OUTSIDE, outside_texts, tainted
from evolve.episode.teacher import PLAN
from evolve.episode.trust import runs
from evolve.gates.static import options_of
from evolve.loop.nodes.attempt import solution
from evolve.loop.state import RunContext
from memory.operations import op_id
from memory.records import RECALLABLE, DeltaOp, Op, Provenance, Record, Status, Step, Trajectory, Trust
from playbooks.kinds.exemplar import Exemplar, shortened
from playbooks.texts import TextIndex

LEFT_OUT = "[left out]"
"""Stands for a text that strangers can have written."""
_LIVE = RECALLABLE | {Status.CANDIDATE}


def exemplar_ops(episodes: Sequence[Trajectory], context: RunContext) -> tuple[DeltaOp, ...]:
    """Return an op for each solved task of which there is no exemplar yet, or a worse one, in task order.

    What was retired or refused is not proposed again word by word.
    """
    if not (context.config.exemplars.enabled and context.config.playbook.enabled):
        return ()
    known = [record for record in context.store.records(context.namespace) if record.kind == Exemplar.kind]
    gone = {record.payload.text() for record in known if record.status not in _LIVE}
    shelf = {record.id: record for record in known if record.status in _LIVE}
    return tuple(op for op in _better(_solved(episodes, context), shelf, context) if _payload(op).text() not in gone)


def _solved(episodes: Sequence[Trajectory], context: RunContext) -> Iterator[DeltaOp]:
    """Yield an ADD for each solved task that strangers cannot have written: others would be shown it."""
    for trajectory in (found for first in episodes if (found := solution(first, context))):
        if trajectory.task.metadata.get(OUTSIDE):
            continue
        written = {run for text in outside_texts(context.environment, trajectory) for run in runs(text)}
        steps = [
            step.model_copy(update={"observation": _own(step.observation, written)})
            for step in trajectory.steps
            if not _aside(step)
        ]
        chars, opening = context.config.exemplars.observation_chars, _own(trajectory.opening, written)
        exemplar = shortened(trajectory.task.instruction, opening, steps, chars)
        if exemplar is not None:
            yield DeltaOp(
                op=Op.ADD,
                op_id=op_id("exemplar", trajectory.id),
                kind=Exemplar.kind,
                payload=exemplar.model_dump(mode="json"),
                provenance=_origin(trajectory, context),
                reason="solved the task",
            )


def _own(text: str, written: Set[tuple[str, ...]]) -> str:
    """Return a text that the world wrote, and the mark of what is left out for one with words of strangers."""
    return text if written.isdisjoint(runs(text)) else LEFT_OUT


def _aside(step: Step) -> bool:
    """Tell whether a step is none of the world: a plan, a search in the memory, or a word about a skill."""
    return step.action == PLAN or step.action.startswith(f"{SEARCH}(") or asked(step.reply) is not None


def _origin(trajectory: Trajectory, context: RunContext) -> Provenance:
    label_free = context.config.run.label_free
    agent = (object(),)  # it read all of its episode
    read = tainted(agent, context.environment, trajectory, label_free=label_free)
    return Provenance(
        trust=Trust.TAINTED if read else Trust.SELF_JUDGED if label_free else Trust.VERIFIED,
        trajectory_ids=(trajectory.id,),
        task_ids=(trajectory.task.id,),
        run_id=context.stream.run_id,
        author=trajectory.policy,
    )


def _better(ops: Iterator[DeltaOp], shelf: Mapping[str, Record[Any]], context: RunContext) -> Iterator[DeltaOp]:
    """Yield what is new, and what replaces a worse exemplar of the same task; of several in a batch the best."""
    threshold = options_of(context.config).near_duplicate
    tasks = TextIndex((key, record.payload.asked) for key, record in shelf.items())
    chosen: dict[str, DeltaOp] = {}
    for op in ops:
        same = tasks.duplicate_of(_payload(op).asked, threshold=threshold)
        key = same[0] if same else op.op_id
        if (rival := chosen.get(key)) is not None:
            how = {name: getattr(rival, name) for name in ("op", "target_id", "base_version", "reason")}
            if _cost(op) < _cost(rival):
                chosen[key] = op.model_copy(update=how)
        elif key not in shelf:
            chosen[key] = op
            tasks.add(key, _payload(op).asked)
        elif _replaces(op, shelf[key], context.config.gate.trust):
            change = {"op": Op.SUPERSEDE, "target_id": key, "base_version": shelf[key].version}
            chosen[key] = op.model_copy(update={**change, "reason": "solved the task in fewer words"})
    yield from chosen.values()


def _replaces(op: DeltaOp, record: Record[Any], floor: Trust) -> bool:
    """Tell whether an op is the better exemplar. One that a gate measured or the operator pinned stays."""
    if record.pinned or record.status is Status.ACTIVE or not op.provenance.trust.reaches(floor):
        return False
    shorter = len(_payload(op).text()) < len(record.payload.text())
    return shorter and op.provenance.trust.reaches(record.provenance.trust)


def _cost(op: DeltaOp) -> tuple[int, int]:
    """Return what makes an exemplar the worse one of a batch: less trust, then more characters."""
    return list(Trust).index(op.provenance.trust), len(_payload(op).text())


def _payload(op: DeltaOp) -> Exemplar:
    return Exemplar.model_validate(op.payload)
