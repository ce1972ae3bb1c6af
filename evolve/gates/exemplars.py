"""Gate `exemplars`: whether solved tasks help at all, measured for many of them together.

There are hundreds of exemplars, each shown with a few tasks alone: no look could show of one that it helps. So they
wait until there are `FIRST`, and one look at the select split (`evolve.gates.held_out`) says whether tasks go better
with all of these than without. After a no as many more as there are have to come before the next look, and at the third
they are refused. After a yes what follows is let in, unless it is too little trusted to be shown unmeasured.

What decides is the exact test on successes, and protected slices. A conversation that begins otherwise makes a model
answer some borderline tasks otherwise, whatever it begins with; so a cap on the tasks that are lost would refuse every
gain of a small model, also where nothing is lost when the base is run twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from evolve.config.model import Config
from evolve.gates.context import GateContext
from evolve.gates.decisions import Round, rounds_of, verdict_of
from evolve.gates.gate_events import verdicts
from evolve.gates.held_out import PATIENCE, HeldOut
from evolve.gates.held_out import make as make_held_out
from evolve.gates.held_out import rules_of as held_out_rules_of
from evolve.gates.held_out_rules import Rules, options_of, replay
from memory.protocols import KnowledgeView
from memory.records import DeltaOp, Op, Trajectory, Trust, Verdict
from playbooks.kinds.exemplar import Exemplar

FIRST = 8
"""Exemplars of the first look."""


class Exemplars:
    """Judges exemplars as a group, by looks of a held-out gate. Ops of other kinds pass."""

    name = "exemplars"

    def __init__(
        self, held_out: HeldOut, past: Callable[[], Sequence[Verdict]] = tuple, *, floor: Trust = Trust.SELF_JUDGED
    ) -> None:
        self._held_out, self._past, self._floor = held_out, past, floor
        self.tasks = held_out.tasks

    async def judge(self, ops: Sequence[DeltaOp], view: KnowledgeView, trajectories: Sequence[Trajectory]) -> Verdict:
        """Return a verdict on all exemplars among the ops; counters pass."""
        looks = [each for verdict in self._past() if verdict.gate == self.name for each in rounds_of(verdict)]
        helps = any(replay(each).accepted for each in looks)
        own = [op for op in ops if op.kind == Exemplar.kind and op.op is not Op.TAG]
        asked = [op for op in own if not (helps and op.provenance.trust.reaches(self._floor))]
        ids = tuple(op.op_id for op in asked)
        refused = sum(not replay(each).accepted and self._held_out.finished(each) for each in looks)
        wanted = FIRST * 2 ** min(refused, PATIENCE)
        if len(asked) < wanted:
            text = f"waits for more: {len(asked)} of {wanted} exemplars that are measured together"
            return verdict_of(self.name, ops, (), dict.fromkeys(ids, text))
        decision, short = await self._held_out.look(asked, looks)
        if short is not None:  # the same look goes on with a later batch
            made = () if decision is None else (Round(ids, decision),)
            return verdict_of(self.name, ops, made, dict.fromkeys(ids, str(short)))
        assert decision is not None, "a look that can be afforded decides"
        again = not decision.accepted and refused + 1 < PATIENCE
        waiting = dict.fromkeys(ids, f"waits for more: {decision.reason}") if again else {}
        return verdict_of(self.name, ops, (Round(ids, decision),), waiting)


def make(context: GateContext) -> Exemplars:
    """Return the gate. Raises as gate `held_out`."""
    config = context.config
    held_out = make_held_out(context, options_of(config), rules_of(config))
    store, namespace = context.bench_of(Exemplars.name).evaluator.store, config.memory.namespace
    return Exemplars(held_out, lambda: verdicts(store, namespace), floor=config.gate.trust)


def rules_of(config: Config) -> Rules:
    """Return how a look at exemplars is decided."""
    return held_out_rules_of(config).model_copy(update={"cap": 1.0, "progress": False})


MEMBER = make
