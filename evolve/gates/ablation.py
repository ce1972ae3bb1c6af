"""Leaves out, one by one, the changes of a group that was accepted, and the parts of their texts.

Every look measures a whole: a group of changes, each a whole text. What it admits is what the whole did, and a change
that does nothing, or harm elsewhere, comes in with it; so does a sentence that waits for something that no trial shows.
Here each change of the group is left out in turn, then each sentence of what remains, then each clause, the last first
(backward elimination). What is left out and not missed stays out, so of two that say the same one is kept, and a
condition goes with what it governs. What is admitted has then been run as it is.

Where no episode depends on chance, the tasks that a change was written from are asked first and those that the look saw
move after them: at the first that comes less far without it, the question is answered. A change that `batch_screen` saw
help by itself is only asked for harm, in the tasks that came less far. Elsewhere all tasks of the look
are run afresh, since those that luck made better would fall back without any change. There a text that is trusted is
not divided, and only asked for harm if a task came less far: to show of each rule by itself that it helps would take
more tasks than there are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from evolve.gates.ablation_rules import AblationTrial, Left, Rules, cut_of, decide, promising, reduced
from evolve.gates.call_budget import OutOfCalls
from evolve.gates.decisions import Round
from evolve.seeds import seed_for
from evolve.statistics.decision import Evaluate
from evolve.statistics.partial_progress import reaches
from evolve.statistics.spending import stages
from memory.protocols import KnowledgeView
from memory.records import RECALLABLE, DeltaOp, Task, Trajectory, Trust
from playbooks.parts import Part, parts, said

FEW = 4
"""Tasks that are asked at a time where one answer is enough."""


@dataclass(frozen=True)
class Seen:
    """What a look that accepted a group had run."""

    tasks: tuple[Task, ...]
    ahead: tuple[str, ...]
    """Tasks that came further with the group."""
    behind: tuple[str, ...]
    """Tasks that came less far."""


@dataclass
class Ablated:
    """What came of a group."""

    rounds: list[Round] = field(default_factory=list[Round])
    """A decision for each change that was asked about."""
    waiting: dict[str, str] = field(default_factory=dict[str, str])
    admitted: list[DeltaOp] = field(default_factory=list[DeltaOp])
    """What may be used, as it was measured."""
    short: OutOfCalls | None = None


@dataclass
class _Asked:
    """One change while it is asked about."""

    op: DeltaOp
    parts: tuple[tuple[Part, ...], ...]
    left: list[Left] = field(default_factory=list[Left])
    cut: list[Part] = field(default_factory=list[Part])
    member: bool = False
    """It is known whether the others miss it."""
    divided: bool = False
    """It is known which of its parts matter."""

    @property
    def answered(self) -> bool:
        """Tell whether nothing is left to ask: it is out, or all of it was asked about."""
        return self.member and self.divided

    def shown(self, more: Iterable[Part] = ()) -> DeltaOp | None:
        """Return the change without what was cut, and without `more`; None when it would say nothing."""
        return reduced(self.op, {*self.cut, *more})


class Ablation:
    """Asks what an accepted group owes to each of its changes and to each part of them."""

    def __init__(
        self,
        evaluate: Evaluate,
        view: KnowledgeView,
        trajectories: Sequence[Trajectory],
        *,
        floor: Trust = Trust.SELF_JUDGED,
        first: int = 12,
        proved: Collection[str] = (),
    ) -> None:
        self._evaluate, self._view, self._floor, self._first = evaluate, view, floor, first
        self._proved = frozenset(proved)
        self._origins = {each.task.id: each.task for each in trajectories}
        exact = bool(getattr(evaluate, "seedless", False))
        self._rules = Rules(exact=exact)

    async def judge(self, before: Sequence[DeltaOp], group: Sequence[DeltaOp], seen: Seen, seed: int) -> Ablated:
        """Return what may be used of a group that was accepted on top of `before`; what cannot be afforded waits."""
        asked = [_Asked(op, self._parts(op)) for op in group]
        trial = _Run(self._evaluate, self._rules, before, seen, seed_for(seed, "ablation"), self._first)
        short: OutOfCalls | None = None
        rest: Left | None = None
        try:
            kept = await self._members(asked, trial)
            for each in kept:
                await self._divide(each, kept, trial)
            whole = len(kept) == len(asked) and not any(each.cut for each in kept)
            if self._rules.exact and not whole and kept:
                rest = await trial.rest(_shown(kept))
        except OutOfCalls as out:
            short = out
        return self._conclude(asked, rest, short)

    def _conclude(self, asked: Sequence[_Asked], rest: Left | None, short: OutOfCalls | None) -> Ablated:
        result = Ablated(short=short)
        for each in asked:
            if short is not None and (each.left or not each.answered):
                text = f"{short}; accepted as a whole, its parts are not measured yet"
                result.waiting[each.op.op_id] = text
                continue
            if not each.left and rest is None:
                result.admitted.append(each.op)
                continue
            flat = tuple(part for sentence in each.parts for part in sentence)
            decision = decide(AblationTrial(parts=flat, left=tuple(each.left), rest=rest), self._rules)
            result.rounds.append(Round((each.op.op_id,), decision))
            if decision.accepted:
                each.cut = list(cut_of(decision))
                result.admitted += [op] if (op := each.shown()) else []
            elif not self._rules.exact and promising(each.left):
                result.waiting[each.op.op_id] = f"waits for more: {decision.reason}"
        return result

    def _parts(self, op: DeltaOp) -> tuple[tuple[Part, ...], ...]:
        """Return the parts that have to be seen to matter: none of an operator's, or in use already."""
        trust = op.provenance.trust
        if trust is Trust.OPERATOR or (not self._rules.exact and trust.reaches(self._floor)):
            return ()
        found = (self._view.get(key) for key in (op.target_id, *op.parent_ids) if key)
        known = "\n".join(each.payload.text() for each in found if each is not None and each.status in RECALLABLE)
        new = (
            tuple(part for part in sentence if said(op.kind, op.payload, part) not in known)
            for sentence in parts(op.kind, op.payload)
        )
        return tuple(sentence for sentence in new if sentence) if known else tuple(parts(op.kind, op.payload))

    async def _members(self, asked: Sequence[_Asked], trial: _Run) -> list[_Asked]:
        """Return the changes that are missed when they are left out; of a group of one there is nothing to ask."""
        kept = list(asked)
        for each in asked:
            helps = self._helps(each.op) and not trial.seen.behind
            each.member = len(asked) == 1 or each.op.provenance.trust is Trust.OPERATOR or helps
            each.divided = sum(map(len, each.parts)) <= 1
        for each in [each for each in reversed(asked) if not each.member]:
            others = [other for other in kept if other is not each]
            if self._helps(each.op):
                each.left.append(await trial.harm(_shown(kept), _shown(others)))
            else:
                each.left.append(await trial.leave_out((), _shown(kept), _shown(others), self._written(each)))
            each.member = True
            if not each.left[-1].matters(self._rules):
                each.divided = True
                kept = others
        return kept

    def _helps(self, op: DeltaOp) -> bool:
        """Tell whether a change need not be seen to help once more: it is only asked for harm, if something did any."""
        return op.op_id in self._proved if self._rules.exact else op.provenance.trust.reaches(self._floor)

    async def _divide(self, each: _Asked, kept: Sequence[_Asked], trial: _Run) -> None:
        """Leave out the sentences of a change, then the clauses of those that stay until no more can go."""
        await self._cut([s for s in each.parts if len(each.parts) > 1], each, kept, trial)
        for sentence in reversed(each.parts):
            clauses = [(part,) for part in sentence if part not in each.cut]
            while len(clauses) > 1:
                before = len(each.cut)
                await self._cut(clauses, each, kept, trial)
                if len(each.cut) == before:
                    break
                clauses = [clause for clause in clauses if clause[0] not in each.cut]
        each.divided = True

    async def _cut(
        self, stretches: Sequence[tuple[Part, ...]], each: _Asked, kept: Sequence[_Asked], trial: _Run
    ) -> None:
        for stretch in reversed(stretches):
            if each.shown(stretch) is None:
                continue  # the last that it says: that the change as a whole matters is known
            rest = [op for other in kept if (op := other.shown(stretch if other is each else ()))]
            each.left.append(await trial.leave_out(stretch, _shown(kept), rest, self._written(each)))
            if not each.left[-1].matters(self._rules):
                each.cut += stretch

    def _written(self, each: _Asked) -> list[Task]:
        """Return the tasks that a change was written from."""
        return [self._origins[key] for key in each.op.provenance.task_ids if key in self._origins]


def _shown(some: Iterable[_Asked]) -> list[DeltaOp]:
    return [op for each in some if (op := each.shown())]


@dataclass
class _Run:
    """Runs the tasks of one group."""

    evaluate: Evaluate
    rules: Rules
    before: Sequence[DeltaOp]
    seen: Seen
    seed: int
    first: int

    async def leave_out(
        self, what: tuple[Part, ...], with_it: Sequence[DeltaOp], rest: Sequence[DeltaOp], written: Sequence[Task]
    ) -> Left:
        """Return how tasks went with and without something, as many as the answer takes."""
        found = Left(parts=what, cohort=(), without={}, with_it={})
        for tasks in self._stages(written):
            found = await self._more(found, tasks, with_it, rest)
            ahead, behind, _ = found.signs()
            if self._answered(ahead, behind):
                break
        return found

    async def harm(self, with_it: Sequence[DeltaOp], rest: Sequence[DeltaOp]) -> Left:
        """Return how tasks go with and without something that may harm.

        Where chance decides, all are asked; else those that came less far, and if some gain all that moved.
        """
        found = Left(cohort=(), without={}, with_it={}, harm_only=True)
        if not self.rules.exact:
            return await self._more(found, self.seen.tasks, with_it, rest)
        tasks = [[task for task in self.seen.tasks if task.id in ids] for ids in (self.seen.behind, self.seen.ahead)]
        found = await self._more(found, tasks[0], with_it, rest)
        return found if found.matters(self.rules) else await self._more(found, tasks[1], with_it, rest)

    async def rest(self, shown: Sequence[DeltaOp]) -> Left:
        """Return how the tasks of the look go with what is left of the group, beside none of it."""
        return await self._more(Left(cohort=(), without={}, with_it={}), self.seen.tasks, shown, ())

    def _stages(self, written: Sequence[Task]) -> Iterable[Sequence[Task]]:
        if not self.rules.exact:
            sizes = (0, *stages(len(self.seen.tasks), self.first))
            return [self.seen.tasks[a:b] for a, b in pairwise(sizes)]
        moved = {*self.seen.ahead, *self.seen.behind}
        tasks = [task for task in self.seen.tasks if task.id in moved]
        return [some for some in (written, *(tasks[at : at + FEW] for at in range(0, len(tasks), FEW))) if some]

    def _answered(self, ahead: int, behind: int) -> bool:
        """Tell whether more tasks would not change the answer, or are not worth it."""
        if not self.rules.exact:
            return ahead <= behind
        return ahead > behind and not self.seen.behind

    async def _more(
        self, found: Left, tasks: Sequence[Task], with_it: Sequence[DeltaOp], rest: Sequence[DeltaOp]
    ) -> Left:
        tasks = [task for task in tasks if task.id not in found.cohort]
        if not tasks:
            return found
        without = await self.evaluate([*self.before, *rest] or None, tasks, self.seed)
        having = await self.evaluate([*self.before, *with_it], tasks, self.seed)
        return Left(
            parts=found.parts,
            harm_only=found.harm_only,
            cohort=(*found.cohort, *(task.id for task in tasks)),
            without=found.without | dict(without),
            with_it=found.with_it | dict(having),
            reach=found.reach | reaches(without, having),
        )
