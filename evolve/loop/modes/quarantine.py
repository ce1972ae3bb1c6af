"""Mode `quarantine`: the configured gates judge what is kept out of all prompts; what passes is admitted.

One after the other, on top of what was admitted before: among texts that help, one that harms where no trial looks
would be carried in, and `batch_screen` cannot stand in its way where no task is known that it was written from. There
is no stream to measure the gates' calls by: their limit is `[budget]`. What is refused stays where it is, with the
reason in the journal; so does what was written from tasks that the gates would run. What looks good and is too little
to tell is judged once more beside the next one, at last by the next run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evolve.episode.trust import text_of
from evolve.errors import ConfigError
from evolve.gates.decision_ledger import entries
from evolve.gates.gate_events import PROPOSAL
from evolve.gates.quarantine import ADMITS, restoring
from evolve.loop.evaluate import EvalReport
from evolve.loop.nodes.commit import commit
from evolve.loop.nodes.curate import proposed, submit
from evolve.loop.nodes.gate import gate
from evolve.loop.nodes.waiting import tainted
from evolve.loop.runs import Run
from evolve.loop.state import RunContext, State
from evolve.progress import Notice
from memory.records import DeltaOp, Frozen, Record, Status
from memory.store import Store
from playbooks.lessons import op_id

UNMEASURED = "no gate measured it; answer with `evolve review`"
ASKED = "its origin is among the tasks that the gates run; name another run.dev_split"


class Judged(Frozen):
    """What became of one text."""

    label: str
    content: str
    trust: str
    answer: str
    """`admitted`, `refused`, `waits`, or `left` where no gate was asked."""
    reason: str


async def quarantine(run: Run) -> tuple[EvalReport, ...]:
    """Judge what is quarantined when the run starts. Raises `ConfigError` where no gate could admit it."""
    context = run.context
    names = {member.name for member in context.gates}
    if not context.config.playbook.enabled or not ADMITS & names:
        raise ConfigError(
            f"gates {', '.join(sorted(names))} cannot admit what is quarantined; it takes playbook.enabled and one of "
            f"{', '.join(sorted(ADMITS))} in gate.names ('default' has one), or `evolve playbook restore`"
        )
    if not run.reached("start"):
        _propose(context)
        run.mark("start", context.store.snapshot(context.namespace))
    count = len(context.store.events(type=PROPOSAL, run_id=run.record.run_id))
    for batch in range(count):
        (op,) = proposed(context.batch(batch))
        context.observers.notify(Notice(run_id=run.record.run_id, text=f"text {batch + 1} of {count}: {text_of(op)}"))
        state: State = {"batch": batch}
        await gate(state, context)
        await commit(state, context)
    return ()


def judged(store: Store, namespace: str, run_id: str) -> tuple[Judged, ...]:
    """Return what became of each text that was in quarantine when a run began to judge, or is there now."""
    events = store.events(type=PROPOSAL, run_id=run_id)
    ops = {op["op_id"]: op["target_id"] for event in events for op in event.data.get("ops", ())}
    answers = {ops[entry.op_id]: entry for entry in entries(store, run_id) if entry.op_id in ops}
    said = {"accepted": "admitted", "rejected": "refused", "deferred": "waits", "waiting": "waits"}
    found: list[Judged] = []
    for record in store.records(namespace):
        entry = answers.get(record.id)
        if entry is None and record.status is not Status.CANDIDATE:
            continue
        answer, reason = (said[entry.answer], entry.reason) if entry else ("left", ASKED)
        if answer == "admitted" and record.status is Status.CANDIDATE:
            answer, reason = "waits", UNMEASURED
        text, trust = record.payload.text(), record.provenance.trust.value
        found.append(Judged(label=record.label, content=text, trust=trust, answer=answer, reason=reason))
    return tuple(found)


def _propose(context: RunContext) -> None:
    """Journal a batch for each quarantined text, with the proposal to restore it; once."""
    held = [record for record in context.store.records(context.namespace) if record.status is Status.CANDIDATE]
    with context.store.journal.transaction():
        if context.store.events(type=PROPOSAL, run_id=context.stream.run_id, limit=1):
            return
        for batch, op in enumerate(_ops(held, context)):
            submit([op], context.batch(batch))


def _ops(records: Sequence[Record[Any]], context: RunContext) -> list[DeltaOp]:
    run_id = context.stream.run_id
    ops = [restoring(each, op_id("quarantine", run_id, each.id, str(each.version))) for each in records]
    return [op for op in ops if not tainted(op, context)]
