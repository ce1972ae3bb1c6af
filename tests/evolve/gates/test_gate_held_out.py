"""Gate `held_out`: what each mode asks for, what it records, and how often it errs.

H1  strict accepts at the level that the looks before leave, and its looks can be read back from the verdicts
H2  practical: net gain, the level of the stage, cap above the A/A floor, protected slices, few tasks give provisional
H3  every decision is made again, to the last bit, from its evidence as JSON
H4  a look ends when the answer is plain; good ops are found among bad ones; what waits does not wait for ever
H5  a change that does nothing is accepted in under 5 % of lives, alone or in groups, and a good one much more often
H6  all looks at a change spend of one error, which comes back from the journal
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import pytest

from benchmarks.gate_trials import Truth, arms
from benchmarks.gate_worlds import USELESS, Effect, World, lives, share
from evolve.gates.call_budget import OutOfCalls
from evolve.gates.decisions import redecided
from evolve.gates.held_out import PLACEBO, HeldOut, left_of, share_of_code
from evolve.gates.held_out_rules import HeldOutTrial, Rules, decide, looks, replay
from evolve.statistics.alpha import Look, level
from evolve.statistics.partial_progress import Marks
from memory.errors import BadInput
from memory.records import DeltaOp, Op, Status, Task, UsageCounts, Verdict
from playbooks.view import RecordView

STRICT = Rules(mode="strict")
ONCE = Rules(first=60)
"""One stage."""


def trial(n: int, won: int, lost: int, flips: int = 0, **fields: Any) -> HeldOutTrial:
    """Return a trial: the first `won` tasks are gained, the last `lost` lost, and `flips` gained in the A/A run."""
    ids = tuple(f"t{at}" for at in range(n))
    base: dict[str, bool | None] = {task: at >= n - lost for at, task in enumerate(ids)}
    candidate: dict[str, bool | None] = {task: at < won for at, task in enumerate(ids)}
    again: dict[str, bool | None] = {task: passed or at < flips for at, (task, passed) in enumerate(base.items())}
    return HeldOutTrial(cohort=ids, base=base, candidate=candidate, **{"again": again} | fields)


@pytest.mark.parametrize(
    ("shape", "rules", "status", "said"),
    [
        ((50, 5, 0), ONCE, Status.ACTIVE, "gained 5 and lost 0 of 50"),
        ((49, 5, 0), ONCE, Status.PROVISIONAL, ""),
        ((49, 5, 0), Rules(first=60, enough=49), Status.ACTIVE, ""),
        ((50, 4, 0), ONCE, Status.REJECTED, "p = 0.0625 is above 0.05"),
        ((50, 4, 0), Rules(first=60, error=0.125), Status.ACTIVE, ""),
        ((50, 0, 0), ONCE, Status.REJECTED, "the net gain 0 is below 1; nothing was gained"),
        ((50, 5, 0), Rules(first=60, min_delta=0.12), Status.REJECTED, "the net gain 5 is below 6"),
        ((50, 6, 0), Rules(first=60, min_delta=0.12), Status.ACTIVE, ""),
        ((42, 5, 0), Rules(first=60, min_delta=0.12), Status.REJECTED, "the net gain 5 is below 5.04"),
        ((50, 1, 0), ONCE, Status.REJECTED, "of 50 held-out tasks; p = 0.5 is above 0.05, the level of this look"),
        ((50, 1, 1, 1), ONCE, Status.REJECTED, "tasks; the net gain 0 is below 1; p = 0.75 is above 0.05"),
        ((50, 8, 1), ONCE, Status.ACTIVE, ""),
        ((50, 9, 2), ONCE, Status.REJECTED, "lost more than 0 (floor) + 0.02"),
        ((50, 9, 2, 2), ONCE, Status.ACTIVE, ""),
        ((50, 11, 3, 2), ONCE, Status.REJECTED, "lost more than 0.02 (floor) + 0.02"),
        ((50, 9, 2), Rules(first=60, cap=0.04), Status.ACTIVE, ""),
    ],
)
def test_h2_practical(shape: tuple[int, ...], rules: Rules, status: Status, said: str) -> None:
    decision = decide(trial(*shape), rules)
    assert (decision.status, decision.accepted) == (status, status is not Status.REJECTED)
    assert said in decision.reason
    assert decision.evidence["statistics"]["p_better"] <= 1


def test_h2_nothing_is_accepted_where_protected_tasks_are_still_to_run() -> None:
    assert decide(trial(12, 12, 0)).evidence["trial"]["guarded"] == 0
    for guarded, accepted in ((0, True), (11, True), (12, True), (13, False)):
        decision = decide(trial(12, 12, 0, guarded=guarded))
        assert decision.accepted is accepted
        assert decision.evidence["statistics"]["max_p"] == (0.05 if accepted else 0)
        assert decision.evidence["statistics"]["left"] == (pytest.approx(0.1, abs=0.06) if accepted else 0.1)


def test_h2_stages_share_one_error_and_the_same_flips_are_no_second_chance() -> None:
    """Twelve tasks, twice as many, all: what is seen at first is asked for 0.05, what comes later for less."""
    levels = [
        decide(trial(n, 3, 0), Rules(first=first)).evidence["statistics"]["max_p"]
        for n, first in ((60, 60), (60, 12), (13, 12), (12, 12))
    ]
    assert levels == [0.05] * 4, "nothing moved after the first stage"
    late = trial(60, 0, 0)
    late = late.model_copy(
        update={
            "candidate": late.candidate | dict.fromkeys((*(f"t{at}" for at in range(6)), "t20", "t21", "t50"), True)
        }
    )
    found = decide(late, Rules(first=12)).evidence["statistics"]
    assert found["max_p"] < 0.05
    assert found["left"] < decide(late, Rules(first=60)).evidence["statistics"]["left"]
    assert decide(late.model_copy(update={"left": 0.02}), Rules(first=60)).evidence["statistics"]["max_p"] == 0.01


def test_h1_strict_tells_no_progress() -> None:
    ids = tuple(f"t{at}" for at in range(4))
    arm: dict[str, bool | None] = dict.fromkeys(ids, False)
    observed = HeldOutTrial(cohort=ids, base=arm, candidate=arm, reach=dict.fromkeys(ids, (0.1, 0.9)))
    assert decide(observed, STRICT).reason.startswith("gained 0 and lost 0 of 4 held-out tasks; p = 1 is above")
    assert "further in 4 and less far in 0" in decide(observed).reason


def test_h6_the_share_of_code_is_that_of_its_episodes() -> None:
    text, code = (decide(trial(60, 5, 0, thrift=thrift)).evidence for thrift in (False, True))
    usual = decide(trial(60, 5, 0)).evidence
    assert [share_of_code(each) for each in ([], [text], [usual], [code], [text, code], [text, text, code])] == [
        0, 0, 0, 1, 0.5, pytest.approx(1 / 3)
    ]  # fmt: skip
    old = {"trial": {"base": {"t": True}, "candidate": {"t": True, "u": True}}}
    assert share_of_code([old, code]) == 120 / 123


def test_h6_what_is_left_is_that_of_the_change_that_has_least() -> None:
    def look(*ops: str, left: float | None, spent: float, won: int) -> dict[str, Any]:
        made = trial(20, won, 0).model_copy(update={"left": left})
        statistics = {} if left is None else {"left": left - spent}
        return {"ops": list(ops), "trial": made.model_dump(mode="json"), "statistics": statistics}

    now = look("a", "b", left=0.1, spent=0, won=9)
    some = [look("a", left=0.1, spent=0.03, won=1), look("b", "c", left=0.1, spent=0.04, won=2)]
    assert left_of([], now, 0.1) == 0.1
    assert left_of(some[:1], now, 0.1) == pytest.approx(0.07)
    assert left_of(some, now, 0.1) == pytest.approx(0.06)
    assert left_of([*some, look("a", left=0.07, spent=0.02, won=3)], now, 0.1) == pytest.approx(0.05)
    assert left_of([look("c", left=0.1, spent=0.09, won=1)], now, 0.1) == 0.1
    assert left_of([look("a", left=None, spent=0, won=1)], now, 0.1) == 0.1, "a strict look spends none of it"
    same = look("a", "b", left=0.1, spent=0.05, won=9)
    assert left_of([same], now, 0.1) == 0.1, "the look itself, taken up again"
    begun = {**same, "trial": trial(12, 9, 0).model_dump(mode="json") | {"left": 0.1}}
    assert left_of([begun, same], now, 0.1) == 0.1, "taken up again after fewer tasks"
    later = {**same, "trial": trial(20, 9, 1).model_dump(mode="json") | {"left": 0.1}}
    assert left_of([later], now, 0.1) == pytest.approx(0.05), "as the first tasks, and otherwise after them"


def test_h2_the_floor_is_half_of_what_flips_without_a_change() -> None:
    both_ways = trial(50, 9, 2, 2)
    assert both_ways.again is not None
    again = both_ways.again | {"t48": False, "t49": None}
    decision = decide(both_ways.model_copy(update={"again": again}))
    assert decision.evidence["statistics"]["floor"] == 4 / 100
    assert decide(trial(50, 12, 3, 4)).accepted
    assert not decide(trial(50, 12, 3, 1)).accepted


def test_h2_where_a_a_flips_nothing_the_floor_is_that_of_a_text_that_says_nothing() -> None:
    greedy = trial(50, 9, 2)
    assert greedy.again == greedy.base
    placebo = greedy.base | {"t48": False, "t20": True}
    decision = decide(greedy.model_copy(update={"placebo": placebo}))
    assert decision.evidence["statistics"]["floor"] == 2 / 100
    assert decision.accepted
    assert not decide(greedy.model_copy(update={"placebo": greedy.base})).accepted
    assert replay(json.loads(json.dumps(decision.evidence))) == decision


class Greedy:
    """An evaluation that gives the same for the same prompt; any text flips `flips` tasks, and the change gains 9."""

    def __init__(self, flips: int) -> None:
        self.flips, self.asked = flips, list[tuple[str, ...]]()

    async def __call__(
        self, ops: Sequence[DeltaOp] | None, tasks: Sequence[Task], seed: int
    ) -> Mapping[str, bool | None]:
        names = tuple(op.op_id for op in ops or ())
        self.asked.append(names)
        passed = {task.id: at >= 40 for at, task in enumerate(tasks)}
        lost = [f"t{at}" for at in range(58, 60)] if names else []
        if names == ("add",):
            passed |= dict.fromkeys((f"t{at}" for at in range(9)), True) | dict.fromkeys(lost, False)
        elif names:
            passed |= dict.fromkeys((f"t{at}" for at in range(30, 30 + self.flips)), True)
        return passed


@pytest.mark.parametrize(("flips", "accepted"), [(0, False), (4, True)])
async def test_h2_a_greedy_policy_is_asked_with_a_text_that_says_nothing(flips: int, accepted: bool) -> None:
    runs = Greedy(flips)
    verdict = await HeldOut(runs, TASKS, seed=1, rules=ONCE).judge([ADD], RecordView(()), [])
    assert (verdict.accepted == ("add",)) is accepted
    assert runs.asked[:4] == [(), ("add",), (), ("placebo",)]
    assert PLACEBO.pinned  # it is in every prompt
    assert redecided(verdict, replay) == verdict


def test_h5_with_a_greedy_policy_a_good_change_passes_and_a_useless_one_rarely() -> None:
    greedy = World(0, 0, prompts=0.06)
    assert share(lives(16, 60, [[Effect(helps=0.4)]], 60, greedy, screen=False), "0.0") > 0.75
    assert share(lives(16, 200, [[USELESS]] * 3, 60, greedy, screen=False), "0.0") < 0.05


def test_h2_a_protected_slice_may_not_fall() -> None:
    observed = trial(60, 12, 1, slices={"mail": ("t0", "t59"), "safety": ("t30", "t59")})
    decision = decide(observed)
    assert not decision.accepted
    assert decision.reason.endswith("protected slice 'safety' fell by 1")
    assert decision.evidence["statistics"]["slices"] == {"mail": 0, "safety": -1}


@pytest.mark.parametrize("slices", [{"mail": ("elsewhere",)}, {"mail": ()}])
def test_h2_a_slice_that_was_not_run_is_refused(slices: dict[str, tuple[str, ...]]) -> None:
    with pytest.raises(BadInput, match="slice 'mail'"):
        decide(trial(60, 12, 1, slices=slices))


def test_h2_practical_needs_to_know_the_noise() -> None:
    with pytest.raises(BadInput, match="A/A"):
        decide(trial(60, 12, 2, again=None))
    spared = decide(trial(60, 12, 1, again=None))
    assert spared.accepted, "one of 60 is below the cap whatever the noise"
    assert spared.evidence["statistics"]["floor"] is None


def test_h2_progress_counts_where_success_is_the_same() -> None:
    ids = tuple(f"t{at}" for at in range(20))
    base: dict[str, bool | None] = dict.fromkeys(ids, False)
    far = {task: (0.5, 0.75 if at < 5 else 0.5) for at, task in enumerate(ids)}
    observed = HeldOutTrial(cohort=ids, base=base, candidate=base, reach=far)
    decision = decide(observed, ONCE)
    assert decision.accepted
    assert decision.reason == "gained 0 and lost 0 of 20 held-out tasks, further in 5 and less far in 0"
    assert not decide(observed.model_copy(update={"reach": {}})).accepted
    lost = {**base, "t19": True}
    worse = decide(observed.model_copy(update={"base": lost, "again": lost}), Rules(cap=0.1))
    assert worse.reason.endswith("1 fewer tasks pass"), "progress does not pay for a task that was lost"


def test_h1_strict_takes_its_level_from_the_past() -> None:
    first = decide(trial(200, 6, 0, again=None), STRICT)
    assert (first.accepted, first.status) == (True, Status.ACTIVE)
    assert first.evidence["statistics"]["level"] == level([])
    refused = [Look(p=0.5, accepted=False)] * 5
    later = decide(trial(200, 6, 0, again=None, past=tuple(refused)), STRICT)
    assert "p = 0.0156 is above 0.00435" in later.reason
    assert decide(trial(200, 8, 0, past=tuple(refused)), STRICT).accepted
    assert decide(trial(20, 8, 0), STRICT).status is Status.PROVISIONAL


def test_h3_every_decision_is_made_again_from_json() -> None:
    rng = Random(3)
    past = (Look(p=0.01, accepted=True), Look(p=1 / 3, accepted=False, level=0.01))
    seen: set[bool] = set()
    for at in range(40):
        base, candidate, again = arms(rng, 30 + at, Truth(0.2, 0.05))
        candidate[f"t{at}"] = None
        slices = {"first": tuple(base)[:9]}
        observed = HeldOutTrial(
            cohort=tuple(base), base=base, candidate=candidate, again=again, slices=slices, past=past
        )
        decision = decide(observed, STRICT if at % 2 else Rules(cap=0.1 * rng.random()))
        assert replay(json.loads(json.dumps(decision.evidence))) == decision
        seen.add(decision.accepted)
    assert seen == {True, False}


@pytest.mark.parametrize("world", [World(0.05, 1), World(0.25, 0), World(0.25, 1)])
def test_h5_a_useless_change_rarely_passes_the_default_stack(world: World) -> None:
    """Looked at up to three times: each batch brings another useless change beside it."""
    assert 0 < share(lives(16, 500, [[USELESS]] * 4, 16, world), "0.0") < 0.05


def test_h5_nor_do_useless_changes_that_come_together() -> None:
    assert share(lives(16, 40, [[USELESS] * 16], 16), *(f"0.{place}" for place in range(16))) < 0.05


def test_h5_a_good_change_passes_it_more_often() -> None:
    calm = World(0.02, 0)
    assert share(lives(16, 60, [[Effect(helps=0.4)]], 16, calm), "0.0") > 0.6
    assert share(lives(16, 60, [[Effect(helps=0.11)]], 72, World(0, 0), screen=False), "0.0") > 0.75


ADD = DeltaOp(op=Op.ADD, op_id="add", payload={"content": "x"})
TAG = DeltaOp(op=Op.TAG, op_id="tag", target_id="r1", usage=UsageCounts(helpful=1))
TASKS = [Task(id=f"t{at}", instruction="", split="dev") for at in range(60)]


class Sixty:
    """An evaluation: the change gains `won` tasks. Keeps what it was asked."""

    def __init__(self, won: int) -> None:
        self.won = won
        self.asked: list[tuple[bool, int]] = []

    async def __call__(
        self, ops: Sequence[DeltaOp] | None, tasks: Sequence[Task], seed: int
    ) -> Mapping[str, bool | None]:
        """Return the marks of the arm."""
        self.asked.append((ops is not None, seed))
        return {task.id: ops is not None and at < self.won for at, task in enumerate(tasks)}


async def test_the_gate_pairs_seeds_and_gives_each_look_its_own() -> None:
    runs = Sixty(7)
    gate = HeldOut(runs, TASKS, seed=1, rules=Rules(first=60), slices={"all": ["t0", "t1"]})
    verdict = await gate.judge([ADD, TAG], RecordView(()), [])
    assert (verdict.accepted, verdict.status) == (("add", "tag"), Status.ACTIVE)
    (_, base), (changed, candidate) = runs.asked
    assert changed
    assert base == candidate
    await gate.judge([ADD.model_copy(update={"op_id": "of another run"})], RecordView(()), [])
    assert runs.asked[2][1] == base
    await gate.judge([ADD.model_copy(update={"payload": {"content": "y"}})], RecordView(()), [])
    later = ADD.provenance.model_copy(update={"task_ids": ("t7",)})
    await gate.judge([ADD.model_copy(update={"provenance": later})], RecordView(()), [])
    assert len({base, runs.asked[4][1], runs.asked[6][1]}) == 3
    assert redecided(verdict, replay) == verdict


async def test_h1_looks_are_read_back_from_the_verdicts() -> None:
    verdicts = [Verdict(gate="static", accepted=()), Verdict(gate="held_out", accepted=("tag",))]
    for at, won in enumerate((7, 2, 0)):
        gate = HeldOut(Sixty(won), TASKS, seed=1, rules=STRICT, past=lambda: verdicts)
        verdicts.append(await gate.judge([ADD.model_copy(update={"op_id": str(at)})], RecordView(()), []))
    practical = await HeldOut(Sixty(3), TASKS, seed=1).judge([ADD], RecordView(()), [])
    past = looks([*verdicts, practical])
    assert [(look.p, look.accepted) for look in past] == [(1 / 128, True), (0.25, False), (1.0, False)]
    assert [look.level for look in past] == [level(past[:at]) for at in range(3)]
    assert [len(v.evidence["rounds"][0]["trial"]["past"]) for v in verdicts[2:]] == [0, 1, 2]
    assert verdicts[3].deferred["1"].startswith("waits for more: gained 2 and lost 0 of 60 held-out tasks; p = 0.25")


async def test_h1_alpha_may_be_lowered_after_something_was_accepted() -> None:
    verdicts: list[Verdict] = []
    for at, rules in enumerate((STRICT, Rules(mode="strict", alpha=0.02))):
        gate = HeldOut(Sixty(7), TASKS, seed=1, rules=rules, past=lambda: verdicts)
        verdicts.append(await gate.judge([ADD.model_copy(update={"op_id": str(at)})], RecordView(()), []))
    assert verdicts[0].accepted == ("0",)
    assert verdicts[1].deferred["1"].endswith("p = 0.00781 is above 0.00282, the level of this look")
    assert [redecided(each, replay) for each in verdicts] == verdicts


async def test_counters_alone_spend_no_look() -> None:
    runs = Sixty(0)
    verdict = await HeldOut(runs, TASKS, seed=1).judge([TAG], RecordView(()), [])
    assert (verdict.accepted, verdict.evidence, runs.asked) == (("tag",), {}, [])


class Mixed:
    """An evaluation: odd tasks pass, others where a `good` op helps; a `bad` one fails a third. Counts its episodes."""

    def __init__(self, calls: int = 10_000) -> None:
        self.left = calls
        self.known: set[tuple[object, ...]] = set()

    async def __call__(
        self, ops: Sequence[DeltaOp] | None, tasks: Sequence[Task], seed: int
    ) -> Mapping[str, bool | None]:
        names = tuple(op.op_id for op in ops or ())
        new = {(names, task.id, seed) for task in tasks} - self.known
        if len(new) > self.left:
            raise OutOfCalls("waits: too dear")
        self.left -= len(new)
        self.known |= new
        return {task.id: self.passes(names, at) for at, task in enumerate(tasks)}

    def passes(self, names: Sequence[str], at: int) -> bool:
        helped = {at for name in names if name.startswith("good") for at in range(2 * int(name[-1]), 60, 4)}
        harmed = {at for name in names if name.startswith("bad") for at in range(int(name[-1]), 60, 3)}
        return (at % 2 == 1 or at in helped) and at not in harmed


def op(name: str) -> DeltaOp:
    return DeltaOp(op=Op.ADD, op_id=name, payload={"content": name})


async def test_h4_a_look_ends_when_the_answer_is_plain() -> None:
    runs = Mixed()
    verdict = await HeldOut(runs, TASKS, seed=1).judge([op("good0"), op("good1")], RecordView(()), [])
    assert verdict.accepted == ("good0", "good1")
    assert len(verdict.evidence["rounds"][0]["trial"]["cohort"]) == 12
    assert verdict.evidence["rounds"][0]["statistics"]["max_p"] == 0.05
    assert verdict.status is Status.PROVISIONAL


async def test_h4_the_good_are_found_among_the_bad() -> None:
    ops = [op(name) for name in ("good0", "bad0", "good1")]
    verdict = await HeldOut(Mixed(), TASKS, seed=1).judge(ops, RecordView(()), [])
    assert (set(verdict.rejected), verdict.deferred) == ({"bad0"}, {})
    assert set(verdict.accepted) == {"good0", "good1"}
    assert redecided(verdict, replay) == verdict
    tampered = verdict.model_copy(update={"accepted": (*verdict.accepted, "bad0"), "rejected": {}})
    assert redecided(tampered, replay) != tampered


async def test_h6_each_look_at_a_change_starts_with_what_the_others_left() -> None:
    verdicts: list[Verdict] = []
    for company in ("new0", "new1"):
        gate = HeldOut(Sixty(4), TASKS, seed=1, past=lambda: verdicts)
        verdicts.append(await gate.judge([ADD, op(company)], RecordView(()), []))
    first, second = (verdict.evidence["rounds"][0] for verdict in verdicts)
    assert (first["trial"]["left"], first["statistics"]["left"]) == (0.1, 0.1), "four flips cost nothing"
    assert second["trial"]["left"] == 0.1
    gate = HeldOut(Sixty(5), TASKS, seed=1, rules=Rules(min_delta=0.5), past=lambda: verdicts)
    verdicts.append(await gate.judge([ADD, op("new2")], RecordView(()), []))
    spent = verdicts[-1].evidence["rounds"][0]["statistics"]["left"]
    assert spent == 0.1 - 1 / 32, "the same five flips are paid once"
    verdicts.append(await gate.judge([ADD, op("new3")], RecordView(()), []))
    assert verdicts[-1].evidence["rounds"][0]["trial"]["left"] == spent
    alone = await gate.judge([op("new4")], RecordView(()), [])
    assert alone.evidence["rounds"][0]["trial"]["left"] == 0.1
    assert all(redecided(each, replay) == each for each in (*verdicts, alone))


async def test_h6_a_look_that_is_taken_up_again_pays_once() -> None:
    verdicts: list[Verdict] = []
    rules = Rules(min_delta=0.6)
    for calls, company in ((30, "good1"), (30, "good1"), (1000, "good1"), (30, "good2")):
        gate = HeldOut(Mixed(calls), TASKS, seed=1, rules=rules, past=lambda: verdicts)
        verdicts.append(await gate.judge([op("good0"), op(company)], RecordView(()), []))
    found = [verdict.evidence["rounds"][0] for verdict in verdicts]
    assert [len(each["trial"]["cohort"]) for each in found] == [12, 12, 60, 12]
    assert [each["trial"]["left"] for each in found[:3]] == [0.1] * 3
    assert found[3]["trial"]["left"] == found[2]["statistics"]["left"] < found[1]["statistics"]["left"]
    assert all(redecided(each, replay) == each for each in verdicts)


async def test_h4_out_of_calls_the_undecided_wait_and_nothing_is_dropped() -> None:
    ops = [op(name) for name in ("good0", "bad0", "good1")]
    for calls in (0, 30, 80, 1000):
        verdict = await HeldOut(Mixed(calls), TASKS, seed=1).judge(ops, RecordView(()), [])
        assert {*verdict.accepted, *verdict.rejected, *verdict.deferred} == {"good0", "bad0", "good1"}
        assert "bad0" not in verdict.accepted
        assert redecided(verdict, replay) == verdict
        assert bool(verdict.deferred) is (calls < 1000), calls


async def test_h4_nothing_waits_for_ever() -> None:
    verdicts: list[Verdict] = []
    answers: list[str] = []
    for at in range(3):
        gate = HeldOut(Sixty(2), TASKS, seed=1, past=lambda: verdicts)
        company = [op(f"new{at}")] if at % 2 == 0 else []
        verdicts.append(await gate.judge([ADD, *company], RecordView(()), []))
        answers.append("deferred" if "add" in verdicts[-1].deferred else "rejected")
    assert answers == ["deferred", "deferred", "rejected"]


async def test_h2_nothing_is_accepted_before_the_protected_slices_were_run() -> None:
    late = {"safety": ("t40", "t59")}
    verdict = await HeldOut(Sixty(12), TASKS, seed=1, slices=late).judge([ADD], RecordView(()), [])
    (found,) = verdict.evidence["rounds"]
    assert (verdict.accepted, len(found["trial"]["cohort"]), found["trial"]["guarded"]) == (("add",), 60, 60)
    early = {"safety": ("t0", "t5")}
    verdict = await HeldOut(Sixty(12), TASKS, seed=1, slices=early).judge([ADD], RecordView(()), [])
    found = verdict.evidence["rounds"][0]["trial"]
    assert (len(found["cohort"]), found["guarded"]) == (12, 6)
    verdict = await HeldOut(Sixty(12), TASKS, seed=1).judge([ADD], RecordView(()), [])
    assert verdict.evidence["rounds"][0]["trial"]["guarded"] == 0


def looked(*ops: str, tasks: int = 60) -> dict[str, Any]:
    """Return the evidence of a look that found two tasks better, which is too little."""
    return {"ops": list(ops), **decide(trial(tasks, 2, 0, left=0.1)).evidence}


@pytest.mark.parametrize(
    ("looks", "ablated", "waits"),
    [
        ([looked("add", "a")], [], True),
        ([looked("add", "a"), looked("add", "b")], [], False),
        ([looked("add", "a"), looked("add", "b", tasks=12)], [], True),
        ([looked("add", "a"), looked("a", "b")], [], True),
        ([], [{"ops": ["add"]}], True),
        ([], [{"ops": ["add"]}, {"ops": ["add"]}], False),
        ([], [{"ops": ["add"]}, {"ops": ["a"]}], True),
        ([looked("add", "a")], [{"ops": ["add"]}], False),
    ],
)
async def test_h4_looks_at_all_tasks_and_questions_about_its_parts_wear_patience_out(
    looks: list[dict[str, Any]], ablated: list[dict[str, Any]], waits: bool
) -> None:
    """The third that says too little is the last. A look that ended early for want of calls is none."""
    past = [Verdict(gate="held_out", accepted=(), evidence={"rounds": looks, "ablated": ablated})]
    past.append(Verdict(gate="other", accepted=(), evidence={"rounds": [looked("add", "c")] * 2}))
    verdict = await HeldOut(Sixty(2), TASKS, seed=1, past=lambda: past).judge([ADD], RecordView(()), [])
    assert ("add" in verdict.deferred) is waits
    assert ("add" in verdict.rejected) is not waits


async def test_h4_the_same_changes_are_not_looked_at_again_as_long_as_nothing_is_new() -> None:
    verdicts: list[Verdict] = []
    runs = Sixty(2)
    gate = HeldOut(runs, TASKS, seed=1, rules=ONCE, past=lambda: verdicts)
    verdicts.append(await gate.judge([ADD], RecordView(()), []))
    assert verdicts[0].deferred["add"].startswith("waits for more: gained 2 and lost 0")
    asked = len(runs.asked)
    again = await gate.judge([ADD], RecordView(()), [])
    assert again.deferred == {"add": "waits for more: looked at, and nothing new since"}
    assert (len(runs.asked), again.evidence) == (asked, {})
    more = await gate.judge([ADD, op("other")], RecordView(()), [])
    assert len(runs.asked) > asked
    assert set(more.deferred) == {"add", "other"}


@pytest.mark.parametrize(("lost", "arms"), [(0, 2), (1, 2), (2, 4)])
async def test_h2_the_noise_is_measured_only_where_the_answer_hangs_on_it(lost: int, arms: int) -> None:
    asked: list[tuple[bool, int]] = []

    async def run(ops: Sequence[DeltaOp] | None, tasks: Sequence[Task], seed: int) -> Mapping[str, bool | None]:
        asked.append((ops is not None, seed))
        changed = bool(ops) and PLACEBO not in (ops or ())
        return {task.id: (at >= lost) if changed else (at < lost or at >= 9) for at, task in enumerate(tasks)}

    verdict = await HeldOut(run, TASKS, seed=1, rules=ONCE).judge([ADD], RecordView(()), [])
    assert [changed for changed, _ in asked] == [False, True, False, True][:arms]
    assert len({seed for _, seed in asked}) == arms // 2
    assert ("add" in verdict.accepted) is (lost < 2)


class Measures:
    """All tasks pass; with a change the first `lost` fail and the next `behind` come less far; chance flips `flips`."""

    def __init__(self, lost: int, behind: int = 0, flips: int = 0) -> None:
        self.lost, self.behind, self.flips = lost, behind, flips
        self.seeds: list[int] = []

    async def __call__(self, ops: Sequence[DeltaOp] | None, tasks: Sequence[Task], seed: int) -> Marks:
        self.seeds.append(seed)
        again, changed = seed != self.seeds[0], bool(ops) and PLACEBO not in (ops or ())
        failed = self.lost if changed else self.flips if again else 0
        places = {task.id: int(task.id[1:]) for task in tasks}
        reach = {key: 0.25 if changed and at < self.lost + self.behind else 0.5 for key, at in places.items()}
        return Marks({key: at >= failed for key, at in places.items()}, reach)


@pytest.mark.parametrize(
    ("rules", "runs", "changes", "tasks"),
    [
        (Rules(error=0.125), Measures(0, behind=4), 1, 12),
        (Rules(error=0.125), Measures(0, behind=3), 1, 60),
        (Rules(), Measures(0, behind=5), 1, 12),
        (Rules(), Measures(0, behind=4), 1, 60),
        (Rules(), Measures(1), 1, 60),
        (Rules(), Measures(1), 2, 12),
        (Rules(), Measures(0), 2, 60),
        (Rules(), Measures(2), 1, 12),
        (Rules(), Measures(2, flips=1), 1, 60),
        (Rules(), Measures(2, flips=1), 2, 60),
        (Rules(cap=0.05), Measures(3), 1, 60),
        (Rules(cap=0.05), Measures(4), 1, 12),
        (Rules(cap=0.95 / 60), Measures(1), 1, 12),
        (Rules(cap=0.1), Measures(1), 2, 60),
    ],
)
async def test_h4_a_look_ends_early_where_harm_is_seen_or_what_is_lost_is_no_noise(
    rules: Rules, runs: Measures, changes: int, tasks: int
) -> None:
    """Two changes are halved all the same: no more is asked of them once one task is lost that chance spares."""
    runs.seeds.clear()
    ops = [op(f"new{at}") for at in range(changes)]
    verdict = await HeldOut(runs, TASKS, seed=1, rules=rules).judge(ops, RecordView(()), [])
    (look,) = verdict.evidence["rounds"]
    assert (verdict.accepted, len(look["trial"]["cohort"])) == ((), tasks)


@pytest.mark.parametrize(("cap", "noise"), [(2 / 60, False), (1.9 / 60, True)])
async def test_h2_the_noise_is_not_asked_for_where_as_many_may_be_lost(cap: float, noise: bool) -> None:
    runs = Measures(2)
    verdict = await HeldOut(runs, TASKS, seed=1, rules=Rules(first=60, cap=cap)).judge([ADD], RecordView(()), [])
    assert (len(set(runs.seeds)) == 2) is noise
    assert (verdict.evidence["rounds"][0]["trial"]["again"] is not None) is noise
