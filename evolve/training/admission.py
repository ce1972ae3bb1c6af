"""Admission of a text that matched groups measured: the rule of `utility` decides, once, when a training ends.

The decision and all it rests on are journalled as a gate's, so that they can be shown and made again. A text that is
not seen to help stays in quarantine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from evolve.config.model import Config
from evolve.gates import utility
from evolve.gates.gate_events import PROPOSAL, VERDICT
from evolve.gates.quarantine import restoring
from evolve.gates.review import ReviewGate
from evolve.gates.review_queue import submit
from evolve.statistics.decision import Decision
from evolve.training.ab_groups import GATE, Candidate, Matched, Matching, matched
from memory.records import DeltaOp, Event, Frozen, Status
from memory.store import Store
from playbooks.parts import parts


class Weighed(Frozen):
    """What became of one text."""

    label: str
    content: str
    tasks: int
    """Tasks whose groups were matched for it."""
    answer: Literal["admitted", "in review", "refused", "not measured"]
    reason: str = ""


def weigh(config: Config, matching: Matching) -> tuple[Weighed, ...]:
    """Decide about each text of a training that ended, and admit what is seen to help; what was decided stays so.

    With `review` among the configured gates a person has the last word, and about a text of several parts in any case:
    no group was run without one of them. A text that somebody changed, admitted or
    forgot meanwhile stays as they left it.
    """
    told = matched(matching.folder)
    return tuple(
        _weigh(config, matching, each, [m for m in told if m.record_id == each.record_id])
        for each in matching.candidates
    )


def _weigh(config: Config, matching: Matching, candidate: Candidate, told: Sequence[Matched]) -> Weighed:
    store = matching.store
    record = store.get(candidate.record_id)
    if record is None:
        return Weighed(label=candidate.record_id, content="", tasks=0, answer="not measured", reason="forgotten")
    label, content, count = record.label, record.payload.text(), len({each.task for each in told})
    if candidate.refused:
        return Weighed(label=label, content=content, tasks=0, answer="refused", reason=candidate.refused)
    if not told:
        reason = f"none of its groups was drawn; {len(candidate.shown)} tasks could tell about it"
        return Weighed(label=label, content=content, tasks=0, answer="not measured", reason=reason)
    options = config.gate.of(utility.Utility.name, utility.Options)
    decision = utility.decide(trial(told), utility.Rules(alpha=options.error))
    subject = f"{matching.folder.name}/{candidate.record_id}"
    about = {"base_version": candidate.version, "status": Status.ACTIVE}
    op = restoring(record, subject).model_copy(update=about)
    _journal(config, store, op, decision, matching.folder.name)
    if not decision.accepted:
        return Weighed(label=label, content=content, tasks=count, answer="refused", reason=decision.reason)
    several = sum(map(len, parts(record.kind, op.payload))) > 1
    if several or ReviewGate.name in config.gate.names:
        submit(store, config.memory.namespace, matching.folder.name, [op])
        why = f"{decision.reason}; measured as a whole, so a person reads its parts" if several else decision.reason
        return Weighed(label=label, content=content, tasks=count, answer="in review", reason=why)
    done = store.commit(config.memory.namespace, [op], actor=GATE, run_id=matching.folder.name)
    (result,) = done.results
    answer, reason = ("admitted", decision.reason) if result.applied else ("refused", result.reason)
    return Weighed(label=label, content=content, tasks=count, answer=answer, reason=reason)


def trial(told: Sequence[Matched]) -> utility.UtilityTrial:
    """Return what matched groups of one text observed: each task by its first group, by as many rounds as all have."""
    first = {each.task: each for each in reversed(told)}
    rounds = range(min(len(each.without) for each in first.values()))
    return utility.UtilityTrial(
        cohort=tuple(sorted(first)),
        without=tuple({task: each.without[k] for task, each in first.items()} for k in rounds),
        with_change=tuple({task: each.with_candidate[k] for task, each in first.items()} for k in rounds),
    )


def _journal(config: Config, store: Store, op: DeltaOp, decision: Decision, training: str) -> None:
    """Journal the proposal and the verdict, once."""
    namespace = config.memory.namespace
    verdict = decision.verdict(GATE, [op])
    data = {PROPOSAL: {"ops": [op.model_dump(mode="json")]}, VERDICT: verdict.model_dump(mode="json")}
    with store.journal.transaction():
        if store.events(type=VERDICT, subject=op.op_id, limit=1):
            return
        for kind, each in data.items():
            store.append(Event(type=kind, namespace=namespace, run_id=training, subject=op.op_id, data=each))
