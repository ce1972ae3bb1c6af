"""Gate `utility`: matched groups of fresh runs; a lower bound above 0 decides, not the sign."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from random import Random

import pytest

from evolve.gates import held_out_rules
from evolve.gates.batch_screen import BatchScreen
from evolve.gates.call_budget import OutOfCalls
from evolve.gates.decisions import redecided
from evolve.gates.held_out import HeldOut
from evolve.gates.held_out_rules import HeldOutTrial
from evolve.gates.utility import Rules, Utility, UtilityTrial, decide, replay
from evolve.statistics.partial_progress import Marks
from memory.errors import BadInput
from memory.records import DeltaOp, Op, Provenance, Status, Task, Trajectory, UsageCounts, Verdict
from playbooks.view import RecordView


def observed(rng: Random, tasks: int, rounds: int, without: float, with_change: float) -> UtilityTrial:
    ids = tuple(f"t{at}" for at in range(tasks))
    groups = [
        tuple({task: rng.random() < rate for task in ids} for _ in range(rounds)) for rate in (without, with_change)
    ]
    return UtilityTrial(cohort=ids, without=groups[0], with_change=groups[1])


def constant(tasks: int, without: bool | None, with_change: bool | None) -> UtilityTrial:
    ids = tuple(f"t{at}" for at in range(tasks))
    return UtilityTrial(
        cohort=ids, without=(dict.fromkeys(ids, without),), with_change=(dict.fromkeys(ids, with_change),)
    )


def test_few_tasks_prove_nothing() -> None:
    assert not decide(constant(6, False, True)).accepted
    decision = decide(constant(7, False, True))
    assert (decision.accepted, decision.status) == (True, Status.ACTIVE)
    assert decision.evidence["statistics"]["mean"] == 1.0
    assert not decide(constant(7, False, True), Rules(alpha=0.01)).accepted


def test_what_is_missing_never_speaks_for_the_change() -> None:
    assert decide(constant(30, None, True)).evidence["statistics"]["mean"] == 0.0
    assert decide(constant(30, True, None)).evidence["statistics"]["mean"] == -1.0
    assert decide(constant(30, None, True)).evidence["statistics"]["coverage"] == 0.5


def test_it_finds_what_helps_and_rarely_errs() -> None:
    rng = Random(1)
    found = [decide(observed(rng, 24, 4, 0.3, 0.7)).accepted for _ in range(60)]
    erred = [decide(observed(rng, 24, 4, 0.5, 0.5)).accepted for _ in range(300)]
    assert sum(found) / 60 > 0.8
    assert sum(erred) / 300 <= 0.05


@pytest.mark.parametrize(
    ("gained", "lost", "accepted", "said"),
    [
        (0, 0, True, "lower bound +0."),
        (3, 0, True, ""),
        (3, 3, True, ""),
        (2, 3, False, "; 1 fewer runs pass"),
        (0, 1, False, "; 1 fewer runs pass"),
    ],
)
def test_code_that_comes_further_may_not_pass_fewer_tasks(gained: int, lost: int, accepted: bool, said: str) -> None:
    """Each round counts: of forty tasks nearly all come further in both, some pass or fail in the second alone."""
    ids = tuple(f"t{at}" for at in range(40))
    without = {task: at >= 40 - lost for at, task in enumerate(ids)}
    with_change = {task: at < gained for at, task in enumerate(ids)}
    even = dict.fromkeys(ids, False)
    far = dict.fromkeys(ids, (0.25, 0.5))
    trial = UtilityTrial(cohort=ids, without=(even, without), with_change=(even, with_change), reach=(far, far))
    decision = decide(trial)
    assert decision.accepted is accepted
    assert said in decision.reason
    assert decision.evidence["statistics"]["mean"] == pytest.approx(1 - lost / 40)
    assert decision.evidence["statistics"]["tasks"]["t0"] == 1.0
    assert ("fewer" in decision.reason) is (lost > gained)


def test_each_task_is_worth_the_mean_of_its_rounds() -> None:
    arms = [{"a": True, "b": False, "c": None}, {"a": True, "b": True, "c": True}]
    trial = UtilityTrial(cohort=("a", "b", "c"), without=(arms[0], arms[0]), with_change=(arms[1], arms[0]))
    found = decide(trial).evidence["statistics"]
    assert found["tasks"] == {"a": 0.0, "b": 0.5, "c": 0.0}
    assert found["mean"] == pytest.approx(0.5 / 3)
    assert found["coverage"] == pytest.approx((2 / 3 + 1 + 2 / 3 + 2 / 3) / 4)
    assert decide(trial).reason.startswith("worth +0.167 a task over 3 tasks, lower bound -")


def test_groups_have_to_match() -> None:
    one = constant(7, False, True)
    with pytest.raises(BadInput, match="1 rounds without and 2 with"):
        decide(one.model_copy(update={"with_change": one.with_change * 2}))
    with pytest.raises(BadInput, match="0 rounds"):
        decide(one.model_copy(update={"with_change": (), "without": ()}))


def test_a_decision_is_made_again_from_its_evidence() -> None:
    rng = Random(2)
    for _ in range(10):
        decision = decide(observed(rng, 15, 3, 0.3, 0.7), Rules(alpha=rng.random()))
        assert replay(json.loads(json.dumps(decision.evidence))) == decision


async def test_the_gate_matches_seeds_round_by_round() -> None:
    asked: list[tuple[bool, int]] = []

    async def evaluate(ops: Sequence[DeltaOp] | None, tasks: Sequence[Task], seed: int) -> Mapping[str, bool | None]:
        asked.append((ops is not None, seed))
        return {task.id: ops is not None for task in tasks}

    add = DeltaOp(op=Op.ADD, op_id="add", payload={"content": "x"})
    tag = DeltaOp(op=Op.TAG, op_id="tag", target_id="r", usage=UsageCounts(helpful=1))
    tasks = [Task(id=f"t{at}", instruction="") for at in range(8)]
    gate = Utility(evaluate, tasks, seed=1, rounds=3)
    verdict = await gate.judge([add, tag], RecordView(()), [])
    assert (verdict.accepted, verdict.status) == (("add", "tag"), Status.ACTIVE)
    without, with_change = ([seed for change, seed in asked if change is arm] for arm in (False, True))
    assert without == with_change
    assert len(set(without)) == 3
    (made,) = verdict.evidence["rounds"]
    assert {"ops": ["add"], **replay(made).evidence} == made
    asked.clear()
    assert (await gate.judge([tag], RecordView(()), [])).accepted == ("tag",)
    assert asked == []


@pytest.mark.parametrize(
    ("tokens", "loses", "status"),
    [((90, 30), 0, Status.ACTIVE), ((30, 90), 0, Status.REJECTED), ((90, 90), 0, None), ((90, 30), 1, Status.REJECTED)],
)
async def test_a_skill_is_worth_something_where_tasks_get_shorter_and_none_is_lost(
    tokens: tuple[int, int], loses: int, status: Status | None
) -> None:
    tasks = [Task(id=f"t{at}", instruction="") for at in range(20)]

    async def evaluate(ops: Sequence[DeltaOp] | None, tasks: Sequence[Task], seed: int) -> Marks:
        lost = {task.id for task in tasks[:loses]} if ops else set[str]()
        marks: dict[str, bool | None] = {task.id: task.id not in lost for task in tasks}
        reach = {key: float(passed is True) for key, passed in marks.items()}
        thrift = any(op.kind == "skill" for op in ops or ())
        return Marks(marks, reach, tokens=dict.fromkeys(marks, tokens[ops is not None]), thrift=thrift)

    text = DeltaOp(op=Op.ADD, op_id="text", payload={"content": "x"})
    skill = DeltaOp(op=Op.ADD, op_id="skill", kind="skill", payload={"source": "x"})
    for gate in (Utility(evaluate, tasks, seed=1, rounds=2), HeldOut(evaluate, tasks, seed=1)):
        verdict = await gate.judge([skill, text], RecordView(()), [])
        assert "text" in {**verdict.rejected, **verdict.deferred}
        assert ("skill" in verdict.accepted) is (status is Status.ACTIVE)
        assert redecided(verdict, replay if gate.name == "utility" else held_out_rules.replay) == verdict


async def test_a_skill_that_makes_failures_shorter_is_worth_nothing() -> None:
    tasks = [Task(id=f"t{at}", instruction="") for at in range(20)]

    async def evaluate(ops: Sequence[DeltaOp] | None, tasks: Sequence[Task], seed: int) -> Marks:
        failed: dict[str, bool | None] = {task.id: False for task in tasks}
        written = dict.fromkeys(failed, 30 if ops else 90)
        return Marks(failed, dict.fromkeys(failed, 0.5), tokens=written, thrift=bool(ops))

    skill = DeltaOp(op=Op.ADD, op_id="skill", kind="skill", payload={"source": "x"})
    for gate in (Utility(evaluate, tasks, seed=1, rounds=2), HeldOut(evaluate, tasks, seed=1)):
        assert not (await gate.judge([skill], RecordView(()), [])).accepted


class Priced:
    """Both kinds help; texts cannot be paid once they were looked at `paid` times."""

    def __init__(self, tasks: Sequence[Task], paid: int) -> None:
        self.tasks, self.paid, self.asked = tasks, paid, list[str]()

    async def __call__(self, ops: Sequence[DeltaOp] | None, tasks: Sequence[Task], seed: int) -> Marks:
        self.asked += [op.op_id for op in ops or ()]
        texts = [op for op in ops or () if op.kind != "skill"]
        self.paid -= bool(texts)
        if texts and self.paid < 0:
            raise OutOfCalls("waits: about 40 calls are needed and 0 are left")
        marks: dict[str, bool | None] = {task.id: True for task in tasks}
        thrift = bool(ops) and not texts
        return Marks(marks, dict.fromkeys(marks, 1.0), tokens=dict.fromkeys(marks, 30 if ops else 90), thrift=thrift)


ORIGIN = Provenance(task_ids=("t0",))
TEXT = DeltaOp(op=Op.ADD, op_id="text", payload={"content": "x"}, provenance=ORIGIN)
SKILL = DeltaOp(op=Op.ADD, op_id="skill", kind="skill", payload={"source": "x"}, provenance=ORIGIN)
TASKS = [Task(id=f"t{at}", instruction="") for at in range(20)]


async def test_skills_wait_for_the_screen_while_a_text_does() -> None:
    priced, episodes = Priced(TASKS, 0), [Trajectory(task=TASKS[0])]
    waits = await BatchScreen(priced, 1).judge([SKILL, TEXT], RecordView(()), episodes)
    assert set(waits.deferred) == {"skill", "text"}
    assert "texts come first" in waits.deferred["skill"]
    assert priced.asked == ["text"]
    alone = await BatchScreen(priced, 1).judge([SKILL], RecordView(()), episodes)
    assert alone.accepted == ("skill",), "alone it need not wait"


async def test_while_a_text_waits_skills_have_half_of_what_is_run() -> None:
    past: list[Verdict] = []
    gate = HeldOut(Priced(TASKS, 0), TASKS, seed=1, past=lambda: past)
    past.append(await gate.judge([SKILL, TEXT], RecordView(()), []))
    assert past[0].accepted == ("skill",), "nothing was run for skills yet"
    assert set(past[0].deferred) == {"text"}
    other = SKILL.model_copy(update={"op_id": "other"})
    waits = await gate.judge([other, TEXT], RecordView(()), [])
    assert "texts come first" in waits.deferred["other"], "all that was run was for skills"
    assert (await gate.judge([other], RecordView(()), [])).accepted == ("other",), "alone it need not wait"


@pytest.mark.parametrize(("texts", "waits"), [(1, True), (2, False)])
async def test_while_a_text_waits_skills_have_half_and_no_more(texts: int, waits: bool) -> None:
    """One look at code and one at a text came before, of as many episodes: half of what was run was for code."""
    marks = dict.fromkeys([task.id for task in TASKS], False)
    trials = [HeldOutTrial(cohort=tuple(marks), base=marks, candidate=marks, thrift=at == 0) for at in range(texts + 1)]
    rounds = [{"ops": [f"old{at}"], **held_out_rules.decide(each).evidence} for at, each in enumerate(trials)]
    past = [Verdict(gate="held_out", accepted=(), evidence={"rounds": rounds})]
    gate = HeldOut(Priced(TASKS, 0), TASKS, seed=1, past=lambda: past)
    verdict = await gate.judge([SKILL, TEXT], RecordView(()), [])
    assert ("skill" in verdict.deferred) is waits
    assert ("skill" in verdict.accepted) is not waits
    assert "text" in verdict.deferred


async def test_what_cannot_be_afforded_waits_and_skills_are_measured_by_themselves() -> None:
    tasks = [Task(id=f"t{at}", instruction="") for at in range(8)]
    add = DeltaOp(op=Op.ADD, op_id="add", payload={"content": "x"})
    skill = DeltaOp(op=Op.ADD, op_id="skill", kind="skill", payload={"source": "x"})

    async def dear(ops: Sequence[DeltaOp] | None, some: Sequence[Task], seed: int) -> Mapping[str, bool | None]:
        if ops and ops[0].op_id == "add":
            raise OutOfCalls("waits: too dear")
        return {task.id: False for task in some}

    verdict = await Utility(dear, tasks, seed=1).judge([add, skill], RecordView(()), [])
    assert (verdict.accepted, set(verdict.rejected), verdict.deferred) == ((), {"skill"}, {"add": "waits: too dear"})
