"""Gate `batch_screen`: the whole cohort, missing = failure, more gained than lost, no cluster worse."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import pytest

from evolve.gates.batch_screen import BatchScreen, ScreenTrial, decide, family, replay
from evolve.gates.call_budget import OutOfCalls
from evolve.gates.decisions import redecided
from evolve.statistics.partial_progress import Marks as Measured
from memory.errors import BadInput
from memory.records import DeltaOp, Op, Provenance, Status, Task, Trajectory, UsageCounts
from playbooks.view import RecordView

Marks = dict[str, bool | None]


def trial(base: str, candidate: str, clusters: str = "") -> ScreenTrial:
    """Return a trial from marks: `+` pass, `-` fail, `?` missing; one letter per task for its cluster."""
    ids = [f"t{at}" for at in range(len(base))]
    marks = {"+": True, "-": False, "?": None}
    arms: list[Marks] = [{i: marks[m] for i, m in zip(ids, arm, strict=True)} for arm in (base, candidate)]
    named = dict(zip(ids, clusters, strict=True)) if clusters else {}
    return ScreenTrial(cohort=tuple(ids), base=arms[0], candidate=arms[1], clusters=named)


@pytest.mark.parametrize(
    ("base", "candidate", "clusters", "accepted"),
    [
        ("--+", "++-", "", True),
        ("-+", "+-", "", False),
        ("---", "---", "", False),
        ("--+", "++?", "", True),
        ("-++", "+??", "", False),
        ("?-", "+-", "", False),
        ("---+", "+++-", "aabb", True),
        ("---+", "+++-", "aaab", False),
        ("+---", "-+++", "abbb", False),
    ],
)
def test_what_it_accepts(base: str, candidate: str, clusters: str, accepted: bool) -> None:
    decision = decide(trial(base, candidate, clusters))
    assert decision.accepted is accepted
    assert decision.status is (Status.PROVISIONAL if accepted else Status.REJECTED)


def test_the_reason_names_the_cluster() -> None:
    decision = decide(trial("---+", "+++-", "aaab"))
    assert decision.reason == "gained 3 and lost 1 of 4 tasks of the batch; worse in 'b' -1"
    assert decision.evidence["statistics"]["clusters"] == {"a": 3, "b": -1}


def test_a_decision_is_made_again_from_its_evidence() -> None:
    for decision in (decide(trial("--+?", "++-?", "aabb")), decide(trial("-+", "+-"))):
        assert replay(json.loads(json.dumps(decision.evidence))) == decision


def test_a_batch_without_tasks_is_refused() -> None:
    with pytest.raises(BadInput, match="cohort of 0"):
        decide(trial("", ""))


TASKS = [
    Task(id="a", instruction="", metadata={"family": "mail"}),
    Task(id="b", instruction="", metadata={"family": "mail"}),
    Task(id="c", instruction=""),
]
ADD = DeltaOp(op=Op.ADD, op_id="add", payload={"content": "x"})
TAG = DeltaOp(op=Op.TAG, op_id="tag", target_id="r1", usage=UsageCounts(helpful=1))


class Runs:
    """An evaluation that knows its answers, and what it was asked."""

    def __init__(self, base: Marks, candidate: Marks) -> None:
        self.base, self.candidate = base, candidate
        self.asked: list[tuple[tuple[str, ...] | None, list[str], int]] = []

    async def __call__(
        self, ops: Sequence[DeltaOp] | None, tasks: Sequence[Task], seed: int
    ) -> Mapping[str, bool | None]:
        """Return the marks of the arm."""
        self.asked.append((None if ops is None else tuple(op.op_id for op in ops), [t.id for t in tasks], seed))
        return self.base if ops is None else self.candidate


async def test_the_gate_runs_the_batch_afresh_with_one_seed() -> None:
    runs = Runs({"a": False, "b": False, "c": True}, {"a": True, "c": True})
    episodes = [Trajectory(task=task, seed=7) for task in (*TASKS, TASKS[0])]
    verdict = await BatchScreen(runs, seed=1).judge([ADD, TAG], RecordView(()), episodes)
    assert (verdict.gate, verdict.accepted, verdict.rejected) == ("batch_screen", ("add", "tag"), {})
    (base, tasks, seed), (candidate, same, equal) = runs.asked
    assert (base, candidate) == (None, ("add",))
    assert tasks == same == ["a", "b", "c"]
    assert seed == equal != 7
    (evidence,) = verdict.evidence["rounds"]
    assert evidence["ops"] == ["add"]
    assert evidence["trial"]["clusters"] == {"a": "mail", "b": "mail", "c": ""}
    assert replay(evidence).accepted
    assert redecided(verdict, replay) == verdict


async def test_a_refused_change_takes_no_counter_with_it() -> None:
    runs = Runs({"a": True}, {"a": False})
    gate = BatchScreen(runs, seed=1)
    verdict = await gate.judge([TAG, ADD], RecordView(()), [Trajectory(task=TASKS[0])])
    assert verdict.accepted == ("tag",)
    assert verdict.rejected == {"add": "gained 0 and lost 1 of 1 tasks of the batch; worse in 'mail' -1"}
    assert family(TASKS[2]) == ""


async def test_counters_alone_run_nothing() -> None:
    runs = Runs({}, {})
    verdict = await BatchScreen(runs, seed=1).judge([TAG], RecordView(()), [])
    assert (verdict.accepted, runs.asked) == (("tag",), [])


def written_from(op_id: str, *tasks: str) -> DeltaOp:
    return DeltaOp(op=Op.ADD, op_id=op_id, payload={"content": op_id}, provenance=Provenance(task_ids=tasks))


async def test_each_op_is_judged_by_the_tasks_it_was_written_from() -> None:
    asked: list[tuple[list[str], list[str]]] = []

    async def evaluate(ops: Sequence[DeltaOp] | None, tasks: Sequence[Task], seed: int) -> Marks:
        names = [op.op_id for op in ops or ()]
        asked.append((names, [task.id for task in tasks]))
        return {task.id: "good" in names and "bad" not in names for task in tasks}

    ops = [written_from("good", "a"), written_from("bad", "b"), written_from("both", "a", "c"), TAG]
    verdict = await BatchScreen(evaluate, seed=1).judge(ops, RecordView(()), [Trajectory(task=t) for t in TASKS])
    assert asked[:2] == [([], ["a", "b", "c"]), (["good", "both"], ["a"])]
    assert asked[2:] == [(["good"], ["a"]), (["bad"], ["b"]), (["both"], ["c"])]
    assert verdict.accepted == ("good", "tag")
    assert set(verdict.rejected) == {"bad", "both"}, "task a comes as far without `both`"
    assert redecided(verdict, replay) == verdict


async def test_one_of_two_missing_rules_is_seen_to_help() -> None:
    async def evaluate(ops: Sequence[DeltaOp] | None, tasks: Sequence[Task], seed: int) -> Measured:
        reach = {"useless": 0.5, "half": 0.75}.get(ops[0].op_id if ops else "", 0.5)
        return Measured({task.id: False for task in tasks}, {task.id: reach for task in tasks})

    ops = [written_from("half", "a"), written_from("useless", "b")]
    verdict = await BatchScreen(evaluate, seed=1).judge(ops, RecordView(()), [Trajectory(task=t) for t in TASKS[:2]])
    assert (verdict.accepted, set(verdict.rejected)) == (("half",), {"useless"})


async def test_what_cannot_be_afforded_waits() -> None:
    async def evaluate(ops: Sequence[DeltaOp] | None, tasks: Sequence[Task], seed: int) -> Marks:
        raise OutOfCalls("waits: too dear")

    verdict = await BatchScreen(evaluate, seed=1).judge([ADD, TAG], RecordView(()), [Trajectory(task=TASKS[0])])
    assert (verdict.accepted, verdict.rejected) == (("tag",), {})
    assert verdict.deferred == {"add": "waits: too dear"}


@pytest.mark.parametrize(
    ("reach", "idle", "reason"),
    [
        ({}, (), "gained 1 and lost 0 of 4 tasks of the batch"),
        (
            {"t1": (0.5, 0.75), "t2": (0.5, 0.75), "t3": (1.0, 0.5)},
            (),
            "gained 1 and lost 0 of 4 tasks of the batch, further in 3 and less far in 1",
        ),
        (
            {"t1": (0.5, 0.75), "t2": (0.5, 0.75), "t3": (1.0, 0.5)},
            ("t2",),
            "gained 1 and lost 0 of 4 tasks of the batch, further in 2 and less far in 1, without it as far in 1",
        ),
    ],
)
def test_the_reason_counts_how_far_tasks_came_and_which_do_not_speak_for_it(
    reach: dict[str, tuple[float, float]], idle: tuple[str, ...], reason: str
) -> None:
    seen = trial("---+", "+--+").model_copy(update={"reach": reach, "idle": idle})
    decision = decide(seen)
    assert (decision.accepted, decision.reason) == (True, reason)


@pytest.mark.parametrize(("names", "missed"), [(("one",), ("a",)), (("one", "two"), ())])
async def test_where_all_went_well_several_are_not_told_apart_and_one_alone_is_what_helped(
    names: tuple[str, ...], missed: tuple[str, ...]
) -> None:
    asked: list[int] = []

    async def evaluate(ops: Sequence[DeltaOp] | None, tasks: Sequence[Task], seed: int) -> Measured:
        asked.append(len(ops or ()))
        return Measured({task.id: bool(ops) for task in tasks}, {task.id: 1.0 if ops else 0.5 for task in tasks})

    ops = [written_from(name, "a") for name in names]
    verdict = await BatchScreen(evaluate, seed=1).judge(ops, RecordView(()), [Trajectory(task=TASKS[0])])
    assert (verdict.accepted, asked) == (names, [0, len(names)])
    (evidence,) = verdict.evidence["rounds"]
    assert (tuple(evidence["trial"]["missed"]), evidence["trial"]["idle"]) == (missed, [])


@pytest.mark.parametrize(("reach", "passed", "asked"), [(1.0, True, 2), (0.999, True, 4), (1.0, None, 4)])
async def test_each_is_left_out_in_turn_unless_the_run_was_perfect(
    reach: float, passed: bool | None, asked: int
) -> None:
    runs: list[int] = []

    async def evaluate(ops: Sequence[DeltaOp] | None, tasks: Sequence[Task], seed: int) -> Measured:
        runs.append(len(ops or ()))
        marks = {task.id: (passed if len(ops) > 1 else False) if ops else False for task in tasks}
        return Measured(marks, {task.id: (reach if len(ops) > 1 else 0.5) if ops else 0.25 for task in tasks})

    ops = [written_from("one", "a"), written_from("two", "a")]
    verdict = await BatchScreen(evaluate, seed=1).judge(ops, RecordView(()), [Trajectory(task=TASKS[0])])
    assert (verdict.accepted, len(runs)) == (("one", "two"), asked)
