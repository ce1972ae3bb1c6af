"""What a run's gates said and spent is read back from the journal, and made again from its own evidence."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evolve.config.model import Config
from evolve.gates import batch_screen, held_out_rules, utility
from evolve.gates.account import GateAccount, GateCount, account, exposures, lines
from evolve.gates.batch_screen import ScreenTrial
from evolve.gates.decision_ledger import GateDecision, entries, last_words, replay, spent
from evolve.gates.decisions import Round, held_back, redecided, rounds_of, verdict_of
from evolve.gates.evaluator import episodes_of, run_of
from evolve.gates.gate_events import ALLOWANCE, PROPOSAL, VERDICT, WAITING
from evolve.gates.held_out_rules import HeldOutTrial
from evolve.gates.review_queue import reject, submit
from evolve.gates.utility import UtilityTrial
from evolve.loop.assembly import open_store
from memory.erasing import ERASED_PAYLOAD
from memory.records import DeltaOp, Event, Op, Outcome, Status, Task, Trajectory, Usage, UsageCounts, Verdict
from memory.store import Store

GOOD = DeltaOp(op=Op.ADD, op_id="good", payload={"content": "Pay in cents."})
BAD = DeltaOp(op=Op.ADD, op_id="bad", payload={"subject": "Mails"})
GONE = DeltaOp(op=Op.REMOVE, op_id="gone", target_id="r7")
WHY = DeltaOp(op=Op.REMOVE, op_id="why", target_id="r7", reason="nobody needs it")
TAG = DeltaOp(op=Op.TAG, op_id="tag", target_id="r1", usage=UsageCounts(helpful=1))
OPS = (GOOD, BAD, GONE, WHY, TAG)


def screened(*op_ids: str, gained: int = 2, lost: int = 0) -> Round:
    ids = tuple(f"t{at}" for at in range(4))
    base: dict[str, bool | None] = {task: at >= 4 - lost for at, task in enumerate(ids)}
    candidate: dict[str, bool | None] = {task: at < gained for at, task in enumerate(ids)}
    return Round(op_ids, batch_screen.decide(ScreenTrial(cohort=ids, base=base, candidate=candidate)))


def worth(*op_ids: str, tasks: int) -> Round:
    ids = tuple(f"t{at}" for at in range(tasks))
    trial = UtilityTrial(cohort=ids, without=(dict.fromkeys(ids, False),), with_change=(dict.fromkeys(ids, True),))
    return Round(op_ids, utility.decide(trial))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(Config.model_validate({"root": tmp_path, "memory": {"index": "exact"}})) as made:
        yield made


def note(store: Store, kind: str, run_id: str = "run", **data: Any) -> int:
    event = Event(type=kind, namespace="default", run_id=run_id, subject="batch", data=data)
    return store.append(event).seq


def judged(store: Store, verdict: Verdict, run_id: str = "run") -> int:
    return note(store, VERDICT, run_id, **verdict.model_dump(mode="json"))


SCREENED = verdict_of("batch_screen", OPS, [screened("good"), screened("bad", gained=0)], {"gone": "waits: dear"})


def test_every_answer_is_told_with_its_text_and_reason(store: Store) -> None:
    note(store, PROPOSAL, ops=[op.model_dump(mode="json") for op in OPS])
    seq = judged(store, SCREENED)
    judged(store, Verdict(gate="static", accepted=("unknown",)))
    judged(store, Verdict(gate="static", accepted=("good",)), "another run")
    found = entries(store, "run")
    told = [(each.op_id, each.op, each.text, each.answer, each.reason, each.status) for each in found]
    assert told == [
        ("good", "ADD", "Pay in cents.", "accepted", "gained 2 and lost 0 of 4 tasks, p = 0.25", "provisional"),
        ("why", "REMOVE", "nobody needs it", "accepted", "", "provisional"),
        ("bad", "ADD", "Mails", "rejected", "gained 0 and lost 0 of 4 tasks of the batch", ""),
        ("gone", "REMOVE", "r7", "deferred", "waits: dear", ""),
        ("unknown", "?", "", "accepted", "", "provisional"),
    ]
    assert {(each.seq, each.batch, each.gate) for each in found[:4]} == {(seq, "batch", "batch_screen")}


def test_a_text_that_was_erased_is_told_as_such_and_what_waited_is_known(store: Store) -> None:
    erased = GOOD.model_copy(update={"payload": ERASED_PAYLOAD})
    note(store, WAITING, waiting=[{"op": erased.model_dump(mode="json")}])
    judged(store, Verdict(gate="static", accepted=("good",)))
    assert [each.text for each in entries(store, "run")] == ["[erased]"]


def test_a_text_that_was_purged_is_told_as_such_though_a_part_of_it_was_cut(store: Store) -> None:
    kept, cut = "Amounts are given in cents.", " Greet the porter of the northern harbour first."
    op = DeltaOp(op=Op.ADD, op_id="good", payload={"content": kept + cut})
    note(store, PROPOSAL, ops=[op.model_dump(mode="json")])
    parts = {"good": (("content", len(kept), len(kept + cut)),)}
    judged(store, Verdict(gate="held_out", accepted=("good",), cut=parts))
    assert [(each.text, each.left_out) for each in entries(store, "run")] == [(kept + cut, (cut.strip(),))]
    (made,) = store.commit("default", [op.model_copy(update={"payload": {"content": kept}})], actor="test").results
    store.forget(made.record_id or "", purge=True)
    assert [(each.text, each.left_out) for each in entries(store, "run")] == [("[erased]", ())]


def test_the_p_that_is_told_is_the_one_that_decided(store: Store) -> None:
    note(store, PROPOSAL, ops=[GOOD.model_dump(mode="json")])
    ids = tuple(f"t{at}" for at in range(20))
    arm: dict[str, bool | None] = dict.fromkeys(ids, False)
    reach = {task: (0.5, 0.75 if at < 6 else 0.5) for at, task in enumerate(ids)}
    found = held_out_rules.decide(HeldOutTrial(cohort=ids, base=arm, candidate=arm, reach=reach))
    assert (found.accepted, found.evidence["statistics"]["p_better"]) == (True, 1.0)
    judged(store, verdict_of("held_out", [GOOD], [Round(("good",), found)], {}))
    (told,) = entries(store, "run")
    assert told.reason == "gained 0 and lost 0 of 20 tasks, further in 6 and less far in 0, p = 0.0156"
    assert [each.p for each in exposures(store, "default")] == [1 / 64]


def test_a_gate_of_ones_own_may_tell_rounds_without_counts(store: Store) -> None:
    rounds = [{"ops": ["good"], "trial": {}, "rules": {}, "statistics": {}}]
    judged(store, Verdict(gate="mine", accepted=("good",), evidence={"rounds": rounds}))
    assert [(each.gate, each.answer, each.reason) for each in entries(store, "run")] == [("mine", "accepted", "")]


def test_the_last_words_of_each_gate_come_latest_first() -> None:
    def said(seq: int, gate: str, op_id: str) -> GateDecision:
        empty: dict[str, Any] = dict.fromkeys(("batch", "op", "text", "answer", "reason", "status"), "")
        return GateDecision(seq=seq, gate=gate, op_id=op_id, **empty)

    some = [said(1, "static", "a"), said(2, "static", "b"), said(3, "canary", "a"), said(4, "static", "b")]
    assert [each.seq for each in last_words(some)] == [3, 4, 1]


def test_only_verdicts_that_rest_on_runs_are_made_again(store: Store) -> None:
    judged(store, SCREENED)
    judged(store, Verdict(gate="batch_screen", accepted=("tag",)))
    judged(store, Verdict(gate="static", accepted=("good",), evidence={"trial": {}}))
    found = replay(store, "run")
    assert (found.verdicts, found.decisions, found.differences) == (1, 2, ())
    wrong = SCREENED.model_copy(update={"accepted": ("good", "bad", "why", "tag"), "rejected": {}})
    seq = judged(store, wrong)
    (difference,) = replay(store, "run").differences
    assert (difference.seq, difference.gate) == (seq, "batch_screen")
    assert "'good', 'bad'" in difference.journalled
    assert "'good', 'bad'" not in difference.again


def test_evidence_that_differs_alone_is_said(store: Store) -> None:
    data = SCREENED.model_dump(mode="json")
    data["evidence"]["rounds"][0]["statistics"]["delta"] = 0.75
    note(store, VERDICT, **data)
    (difference,) = replay(store, "run").differences
    assert (difference.journalled, difference.again) == ("evidence as journalled", "evidence that differs")


def test_what_was_held_back_is_made_again_too() -> None:
    rounds = [screened("good", "why"), screened("bad", gained=0)]
    verdict = held_back(verdict_of("batch_screen", OPS, rounds, {"gone": "waits"}), {"good": "no trial exercised it"})
    assert (verdict.accepted, set(verdict.rejected)) == (("why", "tag"), {"good", "bad"})
    again = redecided(verdict, batch_screen.replay)
    assert set(again.accepted) == {"why", "tag"}
    assert (again.rejected, again.deferred) == (verdict.rejected, verdict.deferred)
    assert held_back(verdict, {}) is verdict
    assert len(rounds_of(verdict)) == 2


@pytest.mark.parametrize(("tasks", "accepted"), [(20, ("good", "tag")), (3, ("tag",))])
def test_a_verdict_of_one_decision_is_made_again_too(tasks: int, accepted: tuple[str, ...]) -> None:
    (made,) = (worth("good", tasks=tasks).decision,)
    verdict = made.verdict("utility", [GOOD, TAG])
    assert verdict.accepted == accepted
    assert rounds_of(verdict) == (verdict.evidence,)
    assert redecided(verdict, utility.replay) == verdict
    swapped = verdict.model_copy(update={"accepted": ("good", "tag"), "rejected": {}, "status": Status.ACTIVE})
    assert (redecided(swapped, utility.replay) == swapped) is (tasks == 20)
    refused = verdict.model_copy(update={"accepted": ("tag",), "rejected": {"good": made.reason}})
    assert (redecided(refused, utility.replay) == refused) is (tasks == 3)
    reworded = verdict.model_copy(update={"rejected": dict.fromkeys(verdict.rejected, "no"), "status": Status.REJECTED})
    assert redecided(reworded, utility.replay) == verdict


def test_what_gates_may_spend_is_what_the_last_batch_said(store: Store) -> None:
    assert spent(store, "run", 3.0) is None
    note(store, ALLOWANCE, calls=10)
    found = spent(store, "run", 3.0)
    assert found is not None
    assert (found.calls, found.allowed, found.waiting) == (0, 30.0, 0)
    note(store, ALLOWANCE, calls=20, allowed=25.0)
    note(store, WAITING, waiting=[])
    note(store, WAITING, waiting=[{"op": op.model_dump(mode="json")} for op in (GOOD, BAD)])
    store.add_trajectory(episode("e1", 4))
    store.add_trajectory(episode("e2", 3))
    found = spent(store, "run", 3.0)
    assert found is not None
    assert (found.calls, found.allowed, found.waiting) == (7, 25.0, 2)


def episode(name: str, calls: int) -> Trajectory:
    usage = Usage(prompt_tokens=10 * calls, completion_tokens=calls, calls=calls)
    task = Task(id=name, instruction="Pay.")
    outcome = Outcome(success=True, reward=1.0)
    return Trajectory(id=name, task=task, run_id=episodes_of("run"), usage=usage, outcome=outcome)


def test_episodes_of_gates_stand_beside_the_run() -> None:
    assert episodes_of("run") != "run"
    assert run_of(episodes_of("run")) == run_of("run") == "run"


def test_the_account_counts_changes_and_not_counters(store: Store) -> None:
    assert account(store, "run") == GateAccount()
    note(store, PROPOSAL, ops=[op.model_dump(mode="json") for op in OPS])
    judged(store, Verdict(gate="static", accepted=("good", "bad", "gone", "why", "tag")))
    judged(store, SCREENED)
    judged(store, SCREENED)
    judged(store, Verdict(gate="online_ab", accepted=("good",)))
    judged(store, Verdict(gate="online_ab", accepted=("bad",), evidence={"trial": {}}))
    judged(store, Verdict(gate="review", accepted=(), rejected={"good": "waits for a person"}))
    submit(store, "default", "run", (GOOD, BAD, WHY))
    submit(store, "default", "another run", (GONE,))
    reject(store, "bad", actor="me")
    store.add_trajectory(episode("e1", 4))
    found = account(store, "run")
    assert found.counts == (
        GateCount(gate="static", accepted=4, rejected=0),
        GateCount(gate="batch_screen", accepted=4, rejected=2, deferred=2, looks=4),
        GateCount(gate="online_ab", accepted=1, rejected=0, looks=1),
        GateCount(gate="review", accepted=0, rejected=1, waiting=2),
    )
    assert (found.episodes, found.usage.calls) == (1, 4)
    assert lines(found) == [
        "gate static: 4 changes accepted, 0 rejected",
        "gate batch_screen: 4 changes accepted, 2 rejected, put off 2 times, decided from runs 4 times",
        "gate online_ab: 1 changes accepted, 0 rejected, decided from runs 1 times",
        "gate review: 0 changes accepted, 1 rejected, 2 wait for `evolve review`",
        "spent by gates, beside the stream: 1 episodes, 4 calls, 44 tokens",
    ]
    assert lines(GateAccount()) == []


def test_each_look_at_the_select_split_is_told(store: Store) -> None:
    judged(store, SCREENED)
    judged(store, verdict_of("utility", OPS, [worth("good", tasks=20), worth("bad", tasks=3)], {}))
    found = exposures(store, "default")
    assert [(each.run_id, each.batch, each.tasks, each.p, each.level, each.accepted) for each in found] == [
        ("run", "batch", 20, None, None, True),
        ("run", "batch", 3, None, None, False),
    ]
    assert exposures(store, "elsewhere") == ()
