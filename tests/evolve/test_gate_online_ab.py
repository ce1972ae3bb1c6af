"""Gate `online_ab`: new items are under test at once; the answer that comes first stands, whenever one looks."""

from __future__ import annotations

import json
from random import Random

import pytest
from pydantic import ValidationError

from benchmarks.gate_trials import Live, stream
from evolve.gates.online_ab import OnlineAB, OnlineTrial, Rules, decide, hides, replay
from memory.records import DeltaOp, Op, Status
from playbooks.view import RecordView

HELPS = Live(shown=(0.8,), hidden=(0.2,))
HARMS = Live(shown=(0.2,), hidden=(0.8,))
USELESS = Live(shown=(0.5,), hidden=(0.5,))


def trial(live: Live, tasks: int, seed: int = 1) -> OnlineTrial:
    return OnlineTrial(exposures=stream(Random(seed), live, tasks))


@pytest.mark.parametrize(
    ("live", "tasks", "rules", "status", "said"),
    [
        (HELPS, 200, Rules(), Status.ACTIVE, "seen to help after"),
        (HARMS, 200, Rules(), Status.REJECTED, "seen to harm after"),
        (USELESS, 200, Rules(), Status.PROVISIONAL, "under test for 200 tasks"),
        (USELESS, 200, Rules(patience=200), Status.REJECTED, "not seen to help in 200 tasks"),
        (HELPS, 200, Rules(patience=5), Status.REJECTED, "not seen to help in 5 tasks"),
        (HELPS, 3, Rules(), Status.PROVISIONAL, "under test for 3 tasks"),
        (HELPS, 0, Rules(), Status.PROVISIONAL, "under test for 0 tasks"),
    ],
)
def test_what_it_decides(live: Live, tasks: int, rules: Rules, status: Status, said: str) -> None:
    decision = decide(trial(live, tasks), rules)
    assert (decision.status, decision.accepted) == (status, status is Status.ACTIVE)
    assert decision.reason.startswith(said)


def test_the_first_answer_stands() -> None:
    first = trial(HELPS, 200)
    for then in (HARMS, USELESS):
        both = OnlineTrial(exposures=first.exposures + trial(then, 800).exposures)
        assert decide(both).reason.split(" (")[0] == decide(first).reason.split(" (")[0]


def test_stopping_when_it_looks_best_keeps_the_error() -> None:
    """Ask after every task, stop at the first yes: the same as asking once at the end."""
    yes = [decide(trial(USELESS, 150, seed)).accepted for seed in range(200)]
    assert sum(yes) / len(yes) <= 0.05
    one = trial(HELPS, 60, 4)
    asked = [decide(OnlineTrial(exposures=one.exposures[:at])).accepted for at in range(61)]
    assert asked == sorted(asked)
    assert asked[-1]


def test_a_decision_is_made_again_from_its_evidence() -> None:
    for live in (HELPS, HARMS, USELESS):
        decision = decide(trial(live, 120), Rules(alpha=0.1, probability=0.2))
        assert replay(json.loads(json.dumps(decision.evidence))) == decision


def test_each_item_has_its_own_lot() -> None:
    keys = [f"t{at}" for at in range(2000)]
    one, other = ([hides(1, item, key, 0.25) for key in keys] for item in ("a", "b"))
    assert 0.22 < sum(one) / 2000 < 0.28
    assert 0.04 < sum(x and y for x, y in zip(one, other, strict=True)) / 2000 < 0.09
    assert one == [hides(1, "a", key, 0.25) for key in keys] != [hides(2, "a", key, 0.25) for key in keys]


def test_no_more_than_a_quarter_is_hidden() -> None:
    with pytest.raises(ValidationError):
        Rules(probability=0.3)


async def test_the_gate_lets_new_items_in_under_test() -> None:
    add = DeltaOp(op=Op.ADD, op_id="add", payload={"content": "x"})
    verdict = await OnlineAB(Rules(probability=0.1)).judge([add], RecordView(()), [])
    assert (verdict.accepted, verdict.status) == (("add",), Status.PROVISIONAL)
    assert Rules.model_validate(verdict.evidence["rules"]).probability == 0.1
