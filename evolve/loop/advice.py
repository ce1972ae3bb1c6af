"""Reasons that kept a run from learning, each in one sentence with the key to change. Read from the journal alone.

A run that applied nothing, found no lesson in its failures, or put decisions off says so in its report; one that
learned as it should says nothing here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from evolve.gates.account import GateAccount
from evolve.gates.gate_events import PROPOSAL, WAITING, journalled
from evolve.gates.review import ReviewGate
from evolve.loop.runs import RunRecord
from memory.records import Op, Reflection, Status, Trajectory, Trust
from memory.store import Store

_REASON = 160
"""Most characters of a reason that are repeated."""


def advice(store: Store, record: RunRecord, stream: Sequence[Trajectory], gates: GateAccount) -> tuple[str, ...]:
    """Return the sentences about one run, `stream` being its main arm; none where nothing is learned on purpose."""
    playbook = record.config.get("playbook", {})
    if not stream or not playbook.get("enabled", True):
        return ()
    proposed = _proposed(store, record.run_id)
    said = [*_lessons(store, record, stream, proposed), *_refused(store, record, proposed)]
    said += [*_waiting(store, record), *_review(gates), *_hidden(store, record)]
    return tuple(said)


def _proposed(store: Store, run_id: str) -> list[Mapping[str, Any]]:
    events = store.events(type=PROPOSAL, run_id=run_id)
    return [op for event in events for op in event.data.get("ops", ()) if op["op"] != Op.TAG]


def _lessons(
    store: Store, record: RunRecord, stream: Sequence[Trajectory], proposed: Sequence[Mapping[str, Any]]
) -> Iterator[str]:
    """Say why failures taught nothing."""
    failures = [episode for episode in stream if not episode.success]
    if proposed or not failures:
        return
    made = store.reflections(record.run_id)
    lessons = sum(len(reflection.insights) for reflection in made)
    playbook = record.config.get("playbook", {})
    reflector, curator = playbook.get("reflector", "model"), playbook.get("curator", "model")
    head = f"{len(failures)} failures, {lessons} lessons: "
    if lessons:
        yield head + f"curator {curator!r} made no change of them; look at one with `evolve logs show EPISODE`"
    elif reflector == "none":
        yield head + "reflector 'none' writes none; set playbook.reflector"
    elif made:
        yield head + _blind(reflector, made, failures)
    elif all(episode.error for episode in failures):
        yield head + f"no episode came to a grade, the first ended with {_short(str(failures[0].error))!r}"


def _blind(reflector: str, made: Sequence[Reflection], failures: Sequence[Trajectory]) -> str:
    """Say why a reflector that was asked found nothing."""
    unread = sum(not reflection.parsed for reflection in made)
    if unread:
        return (
            f"{unread} of {len(made)} reflections were no JSON that could be read; raise policy.max_tokens, or let a "
            "stronger model reflect"
        )
    if reflector != "rules":
        return f"reflector {reflector!r} found none; what it said stands in `evolve logs show EPISODE`"
    errors = sum(bool(step.error) for episode in failures for step in episode.steps)
    checks = sum(not check.passed for episode in failures if episode.outcome for check in episode.outcome.checks)
    found = (
        f"found no rule in {errors} errors and {checks} failed checks of them: it reads calls in the actions, errors "
        "that say what must be done, and errors that a later step overcame"
        if errors
        else "reads errors of steps (StepResult.error), and no step of them has one"
    )
    return f"reflector 'rules' {found}; set playbook.reflector = \"model\", or your own as `module:function`"


def _refused(store: Store, record: RunRecord, proposed: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Say who refused, where every change that was proposed was refused."""
    reasons: dict[str, tuple[str, str]] = {}
    for _, verdict in journalled(store, run_id=record.run_id):
        if verdict.gate != ReviewGate.name:
            reasons |= {key: (verdict.gate, reason) for key, reason in verdict.rejected.items()}
    ids = {op["op_id"] for op in proposed}
    if ids and ids <= set(reasons):
        (gate, reason), count = Counter(reasons[key] for key in sorted(ids)).most_common(1)[0]
        yield (
            f"all {len(ids)} proposed changes were refused, {count} of them by gate {gate!r}: {_short(reason)!r}; "
            f"all reasons: `evolve gates log {record.run_id}`"
        )


def _waiting(store: Store, record: RunRecord) -> Iterator[str]:
    """Say what is put off at the end of a run, and why."""
    events = store.events(type=WAITING, run_id=record.run_id)
    waiting = events[-1].data.get("waiting", ()) if events else ()
    if not waiting:
        return
    reason = next((w["reason"] for w in waiting if "calls" in w["reason"]), waiting[0]["reason"])
    ratio = record.config.get("gate", {}).get("calls_ratio")
    key = f"raise gate.calls_advance or gate.calls_ratio ({ratio})" if "calls" in reason else "work through more tasks"
    text = reason.removeprefix("waits: ").removeprefix("waits for more: ")
    yield f"{len(waiting)} changes wait to be judged: {_short(text)}; {key}. The next run takes them up"


def _review(gates: GateAccount) -> Iterator[str]:
    waiting = sum(count.waiting for count in gates.counts)
    if waiting:
        yield f"{waiting} changes wait for a person: `evolve review list`"


def _hidden(store: Store, record: RunRecord) -> Iterator[str]:
    """Say what was applied and stands in no prompt."""
    kinds = ("add", "merge", "supersede")
    events = [event for kind in kinds for event in store.events(type=f"knowledge.{kind}", run_id=record.run_id)]
    records = [found for event in events if (found := store.get(event.subject)) is not None]
    held = sum(found.status is Status.CANDIDATE for found in records)
    if held:
        tainted = sum(found.provenance.trust is Trust.TAINTED for found in records)
        why = "their author was shown text that strangers can have written" if tainted else "they came from outside"
        free = 'Gates that run tasks free them (gate.names = ["default"], or `evolve playbook test`)'
        more = ', and so does your word for all that your agent writes (gate.trust = "tainted")' if tainted else ""
        yield f"{held} of {len(records)} new texts are quarantined and in no prompt: {why}. {free}{more}"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _REASON else line[: _REASON - 3] + "..."
