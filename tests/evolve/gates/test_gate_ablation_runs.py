"""Which tasks are run to find what of a group matters, in which order, and what becomes of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from evolve.episode.trust import text_of
from evolve.gates.ablation import FEW, Ablated, Ablation, Seen
from evolve.gates.call_budget import OutOfCalls
from evolve.statistics.partial_progress import Marks
from memory.records import DeltaOp, Op, Provenance, Task, Trajectory, Trust
from playbooks.view import RecordView

TASKS = tuple(Task(id=f"t{at}", instruction="") for at in range(20))
IDS = tuple(task.id for task in TASKS)
Passes = Callable[[str, str], bool]


class Run:
    """Says which tasks pass with what is said, and keeps what it was asked: the texts, and the tasks."""

    def __init__(self, passes: Passes, *, sure: bool, calls: int = 100_000) -> None:
        self.seedless, self._passes, self.left = sure, passes, calls
        self.asked: list[tuple[str, list[str]]] = []
        self.seeds: set[int] = set()

    async def __call__(self, ops: Sequence[DeltaOp] | None, tasks: Sequence[Task], seed: int) -> Marks:
        if len(tasks) > self.left:
            raise OutOfCalls("waits: too dear")
        self.left -= len(tasks)
        assert ops is None or ops, "nothing is said by None"
        said = " ".join(map(text_of, ops or ()))
        self.asked.append((said, [task.id for task in tasks]))
        self.seeds.add(seed)
        return Marks({task.id: self._passes(said, task.id) for task in tasks})


def op(text: str, name: str, trust: Trust = Trust.VERIFIED, *tasks: str) -> DeltaOp:
    origin = Provenance(trust=trust, task_ids=tasks)
    return DeltaOp(op=Op.ADD, op_id=name, payload={"content": text}, provenance=origin)


PAY, SIGN = op("Pay in cents.", "pay"), op("Sign it.", "sign")
BOTH = "Pay in cents. Sign it."


def needs(**tasks: str) -> Passes:
    """Return which word each task needs; one that needs none passes always, and `!word` is what it may not hear."""

    def passes(said: str, task: str) -> bool:
        word = tasks.get(task, "")
        return word[1:] not in said if word.startswith("!") else word in said

    return passes


async def ablated(
    run: Run,
    *group: DeltaOp,
    ahead: Sequence[str] = (),
    behind: Sequence[str] = (),
    before: Sequence[DeltaOp] = (),
    proved: Sequence[str] = (),
    origins: Sequence[Trajectory] = (),
    floor: Trust = Trust.SELF_JUDGED,
    first: int = 12,
) -> Ablated:
    asks = Ablation(run, RecordView(()), origins, floor=floor, first=first, proved=proved)
    return await asks.judge(before, group, Seen(TASKS, tuple(ahead), tuple(behind)), 1)


def admitted(found: Ablated) -> list[str]:
    return [text_of(each) for each in found.admitted]


async def test_of_one_text_of_one_part_nothing_is_asked() -> None:
    run = Run(needs(), sure=True)
    found = await ablated(run, PAY, ahead=IDS[:3])
    assert (run.asked, found.rounds, admitted(found)) == ([], [], ["Pay in cents."])
    assert (found.waiting, found.short) == ({}, None)


async def test_the_last_is_left_out_first_and_what_is_missed_stays() -> None:
    run = Run(needs(t0="Pay", t1="Sign"), sure=True)
    found = await ablated(run, PAY, SIGN, ahead=("t0", "t1"))
    assert run.asked == [
        ("Pay in cents.", ["t0", "t1"]),
        (BOTH, ["t0", "t1"]),
        ("Sign it.", ["t0", "t1"]),
        (BOTH, ["t0", "t1"]),
    ]
    assert [each.decision.accepted for each in found.rounds] == [True, True]
    assert admitted(found) == ["Pay in cents.", "Sign it."]
    assert len(run.seeds) == 1


async def test_what_nothing_misses_goes_and_what_is_left_is_run_as_it_is() -> None:
    run = Run(needs(t0="Pay"), sure=True)
    found = await ablated(run, PAY, SIGN, ahead=("t0",))
    assert run.asked == [
        ("Pay in cents.", ["t0"]),
        (BOTH, ["t0"]),
        ("", ["t0"]),
        ("Pay in cents.", ["t0"]),
        ("", list(IDS)),
        ("Pay in cents.", list(IDS)),
    ]
    assert [(each.ops, each.decision.accepted) for each in found.rounds] == [(("pay",), True), (("sign",), False)]
    assert admitted(found) == ["Pay in cents."]


async def test_what_was_admitted_before_stands_below_all_of_it() -> None:
    run = Run(needs(t0="Pay", t1="Sign"), sure=True)
    await ablated(run, PAY, SIGN, ahead=("t0", "t1"), before=[op("Log in.", "log")])
    assert {said for said, _ in run.asked} == {f"Log in. {said}" for said in ("Pay in cents.", "Sign it.", BOTH)}


async def test_tasks_are_asked_four_at_a_time_until_one_answers() -> None:
    word = dict.fromkeys(IDS[:10], "Pay")
    run = Run(needs(**word), sure=True)
    await ablated(run, PAY, SIGN, ahead=IDS[:10])
    sign = [tasks for said, tasks in run.asked if said == "Pay in cents."]
    assert FEW == 4
    assert sign[:3] == [list(IDS[:4]), list(IDS[4:8]), list(IDS[8:10])], "nobody misses it: all are asked"
    nothing = [tasks for said, tasks in run.asked if said == ""]
    assert nothing[0] == list(IDS[:4]), "four miss it: no more are asked"
    assert nothing[1] == list(IDS), "what is left is run as a whole"


async def test_where_some_came_less_far_all_that_moved_are_asked() -> None:
    run = Run(needs(**dict.fromkeys(IDS[:8], "Pay"), t19="!Sign"), sure=True)
    found = await ablated(run, PAY, SIGN, ahead=IDS[:8], behind=("t19",))
    left_out = [tasks for said, tasks in run.asked if said == "Pay in cents."]
    assert left_out[:3] == [list(IDS[:4]), list(IDS[4:8]), ["t19"]]
    assert admitted(found) == ["Pay in cents."]


async def test_its_own_tasks_are_asked_first() -> None:
    own = Trajectory(task=Task(id="own", instruction=""))
    run = Run(needs(own="Sign", t0="Pay"), sure=True)
    sign = op("Sign it.", "sign", Trust.VERIFIED, "own", "unknown")
    found = await ablated(run, PAY, sign, ahead=("t0",), origins=[own])
    assert run.asked[:2] == [("Pay in cents.", ["own"]), (BOTH, ["own"])]
    assert admitted(found) == ["Pay in cents.", "Sign it."]


async def test_a_task_that_was_asked_is_not_asked_again() -> None:
    """Its own task is among those that moved: nothing is left to ask in a second stage."""
    own = Trajectory(task=TASKS[0])
    run = Run(needs(t0="Pay"), sure=True)
    sign = op("Sign it.", "sign", Trust.VERIFIED, "t0")
    found = await ablated(run, PAY, sign, ahead=("t0",), origins=[own])
    assert [tasks for said, tasks in run.asked if said == BOTH] == [["t0"]]
    assert all(tasks for _, tasks in run.asked)
    assert admitted(found) == ["Pay in cents."]


async def test_one_that_was_seen_to_help_by_itself_is_only_asked_for_harm() -> None:
    run = Run(needs(t0="Pay"), sure=True)
    found = await ablated(run, PAY, SIGN, ahead=("t0",), proved=("pay", "sign"))
    assert (run.asked, admitted(found)) == ([], ["Pay in cents.", "Sign it."])
    harms = Run(needs(t0="Pay", t9="!Sign"), sure=True)
    found = await ablated(harms, PAY, SIGN, ahead=("t0",), behind=("t9",), proved=("sign",))
    assert harms.asked[:4] == [
        ("Pay in cents.", ["t9"]),
        (BOTH, ["t9"]),
        ("Pay in cents.", ["t0"]),
        (BOTH, ["t0"]),
    ]
    assert admitted(found) == ["Pay in cents."]
    quiet = Run(needs(t0="Pay"), sure=True)
    await ablated(quiet, PAY, SIGN, ahead=("t0",), behind=("t9",), proved=("sign",))
    assert quiet.asked[:3] == [("Pay in cents.", ["t9"]), (BOTH, ["t9"]), ("Sign it.", ["t0", "t9"])], "no harm"


@pytest.mark.parametrize("behind", [(), ("t9",)])
async def test_where_chance_decides_what_is_trusted_is_asked_for_harm_on_all_tasks(behind: tuple[str, ...]) -> None:
    run = Run(needs(t0="Pay"), sure=False)
    found = await ablated(run, PAY, SIGN, ahead=("t0",), behind=behind)
    assert [tasks for _, tasks in run.asked] == [list(IDS)] * (4 if behind else 0)
    assert admitted(found) == ["Pay in cents.", "Sign it."]


async def test_where_chance_decides_what_is_little_trusted_is_asked_in_stages() -> None:
    def passes(said: str, task: str) -> bool:
        return "Pay" in said

    pay, sign = (each.model_copy(update={"provenance": Provenance(trust=Trust.QUOTED)}) for each in (PAY, SIGN))
    run = Run(passes, sure=False)
    found = await ablated(run, pay, sign, ahead=IDS, first=5)
    assert [len(tasks) for said, tasks in run.asked if said == "Pay in cents."] == [5, 5, 5, 10]
    assert [len(tasks) for said, tasks in run.asked if said == BOTH] == [5], "nobody misses it"
    assert [len(tasks) for said, tasks in run.asked if said == ""] == [5, 5, 10], "more may say otherwise"
    assert admitted(found) == ["Pay in cents."]
    few = await ablated(Run(needs(t0="Pay", t1="Pay", t2="Pay"), sure=False), pay, sign, ahead=IDS[:3])
    assert admitted(few) == []
    assert few.waiting["pay"].startswith("waits for more: left out beside the others, it is missed in 3 tasks")
    assert set(few.waiting) == {"pay"}


async def test_a_text_is_cut_sentence_by_sentence_and_then_clause_by_clause() -> None:
    run = Run(needs(t0="Pay", t1="noon"), sure=True)
    text = op("Pay in cents, and greet all. Cancel e5. Rest at noon.", "pay", Trust.QUOTED)
    found = await ablated(run, text, ahead=("t0", "t1"))
    assert admitted(found) == ["Pay in cents. Rest at noon."]
    (one,) = found.rounds
    assert one.decision.reason == "2 of 4 parts were seen to matter"
    first = [said for said, _ in run.asked if "Cancel" not in said or "noon" not in said or "greet" not in said]
    assert first[0] == "Pay in cents, and greet all. Cancel e5."


async def test_an_operators_text_is_neither_left_out_nor_divided() -> None:
    own = op("Sign it. Greet all.", "own", Trust.OPERATOR)
    run = Run(needs(t0="Pay"), sure=True)
    found = await ablated(run, own, PAY, ahead=("t0",))
    assert [said for said, _ in run.asked] == ["Sign it. Greet all.", "Sign it. Greet all. Pay in cents."]
    assert admitted(found) == ["Sign it. Greet all.", "Pay in cents."]


@pytest.mark.parametrize(("calls", "waits"), [(0, {"pay", "sign"}), (2, {"pay", "sign"}), (4, {"pay", "sign"})])
async def test_out_of_calls_what_is_not_answered_waits(calls: int, waits: set[str]) -> None:
    run = Run(needs(t0="Pay"), sure=True, calls=calls)
    found = await ablated(run, PAY, SIGN, ahead=("t0",))
    assert set(found.waiting) == waits
    assert set(found.waiting.values()) == {"waits: too dear; accepted as a whole, its parts are not measured yet"}
    assert (found.admitted, found.rounds) == ([], [])
    assert found.short is not None


async def test_out_of_calls_what_was_never_in_question_is_admitted() -> None:
    own = op("Sign it. Greet all.", "own", Trust.OPERATOR)
    found = await ablated(Run(needs(), sure=True, calls=0), own, PAY, ahead=("t0",))
    assert (set(found.waiting), admitted(found)) == ({"pay"}, ["Sign it. Greet all."])
