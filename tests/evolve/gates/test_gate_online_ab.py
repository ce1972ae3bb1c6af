"""Gate `online_ab`: new items are under test at once; the answer that comes first stands, whenever one looks."""

from __future__ import annotations

import json
import re
from random import Random

import pytest
from pydantic import ValidationError

from benchmarks.gate_trials import Live, stream
from evolve.gates.online_ab import OnlineAB, OnlineTrial, Rules, decide, draw, hides, item_of, replay, under_test
from evolve.seeds import seed_for
from evolve.statistics.evalues import wealth
from memory.records import DeltaOp, Op, Record, Status
from playbooks.kinds.bullet import Bullet
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
        (USELESS, 999, Rules(), Status.PROVISIONAL, "under test for 999 tasks"),
        (USELESS, 1000, Rules(), Status.REJECTED, "not seen to help in 1000 tasks"),
        (USELESS, 1001, Rules(), Status.REJECTED, "not seen to help in 1000 tasks"),
        (HELPS, 0, Rules(), Status.PROVISIONAL, "under test for 0 tasks"),
    ],
)
def test_what_it_decides(live: Live, tasks: int, rules: Rules, status: Status, said: str) -> None:
    decision = decide(trial(live, tasks), rules)
    assert (decision.status, decision.accepted) == (status, status is Status.ACTIVE)
    assert decision.reason.startswith(said)


@pytest.mark.parametrize(
    ("live", "rules", "needed"),
    [
        (HELPS, Rules(), 20),
        (HARMS, Rules(), 20),
        (USELESS, Rules(), 20),
        (HELPS, Rules(alpha=0.1), 10),
        (HELPS, Rules(harm_alpha=0.1), 20),
        (HARMS, Rules(harm_alpha=0.1), 10),
        (HARMS, Rules(alpha=0.1), 20),
    ],
)
def test_the_evidence_is_said_beside_what_is_needed(live: Live, rules: Rules, needed: float) -> None:
    decision = decide(trial(live, 200), rules)
    found = re.search(r"\(evidence ([\d.e+]+), needed ([\d.]+)\)", decision.reason)
    assert found is not None
    assert float(found[2]) == needed
    assert (float(found[1]) >= needed) is (live is not USELESS)


def test_an_answer_holds_from_the_task_that_gave_it() -> None:
    for live, said in ((HELPS, "seen to help"), (HARMS, "seen to harm")):
        first = next(at for at in range(1, 200) if decide(trial(live, at)).reason.startswith(said))
        for count in (first, first + 1, 200):
            assert decide(trial(live, count)).reason.startswith(f"{said} after {first} tasks")
        assert decide(trial(live, first), Rules(patience=first)).reason.startswith(f"{said} after {first} tasks")
        last = decide(trial(live, first), Rules(patience=first - 1))
        assert last.reason.startswith(f"not seen to help in {first - 1} tasks")


@pytest.mark.parametrize("live", [HELPS, HARMS, USELESS])
def test_the_wealth_of_both_bets_is_recorded(live: Live) -> None:
    observed = trial(live, 50)
    found = decide(observed).evidence["statistics"]
    helps, harms = wealth(observed.exposures), wealth(observed.exposures, harm=True)
    assert (found["helps"], found["harms"]) == (helps[-1], harms[-1])
    assert found["p"] == min(1.0, 1 / max(helps))
    assert (found["shown"] + found["hidden"], 0 < found["hidden"] < found["shown"]) == (50, True)
    none = decide(OnlineTrial()).evidence["statistics"]
    assert none == {"helps": 1.0, "harms": 1.0, "p": 1.0, "shown": 0, "hidden": 0}
    assert decide(OnlineTrial()).reason == "under test for 0 tasks (evidence 1, needed 20)"


def record(number: int, status: Status = Status.PROVISIONAL, *, pinned: bool = False) -> Record[Bullet]:
    payload = Bullet(content=f"Rule {number}.")
    return Record(
        id=f"r{number}",
        kind="bullet",
        slug="rule",
        number=number,
        payload=payload,
        status=status,
        pinned=pinned,
        version=2,
    )


@pytest.mark.parametrize(
    ("status", "pinned", "tested"),
    [
        (Status.PROVISIONAL, False, True),
        (Status.PROVISIONAL, True, False),
        (Status.ACTIVE, False, False),
        (Status.ACTIVE, True, False),
    ],
)
def test_what_is_provisional_and_not_pinned_is_under_test(status: Status, pinned: bool, tested: bool) -> None:
    one = record(1, status, pinned=pinned)
    assert under_test(one) is tested
    assert item_of(one) == "r1@2"
    found = draw([one, record(2, Status.ACTIVE)], "t", 1, 0.25)
    assert set(found) == ({"r1@2"} if tested else set())


def test_a_task_is_never_done_without_all_of_its_knowledge() -> None:
    shown = [record(number) for number in (1, 2, 3)]
    kept: set[str] = set()
    for at in range(60):
        lots = draw(shown, f"t{at}", 1, 0.25)
        assert len(lots) == 2
        kept |= {item_of(each) for each in shown} - set(lots)
        assert lots == {key: hides(1, key[1], f"t{at}", 0.25) for key in lots}
        beside = draw([*shown, record(4, Status.ACTIVE)], f"t{at}", 1, 0.25)
        assert set(beside) == {item_of(each) for each in shown}
    assert len(kept) == 3, "each of them is spared at times"
    assert draw(shown[:1], "t", 1, 0.25) == {}
    assert draw((), "t", 1, 0.25) == {}


def test_a_lot_hides_below_its_share_and_not_at_it() -> None:
    lot = seed_for(1, "hide", "7", "t") / 2**31
    assert 0 < lot < 1
    assert not hides(1, "7", "t", lot)
    assert hides(1, "7", "t", lot + 2**-31)


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
    usual = await OnlineAB().judge([add], RecordView(()), [])
    assert usual.evidence["rules"]["probability"] == 0.2
