"""Exemplars are measured together, and what is not measured stays where it is.

E1  they wait until there are eight; one look then says yes or no to all, in two arms
E1b a gain is not refused for the few tasks that any other beginning of a conversation loses
E2  after a yes later ones need no look; what is too little trusted does
E3  a no makes them wait for as many more; the third refuses them
E4  no other gate that runs tasks admits one
E5  with the default gates the loop measures them, and shows them from then on
E6  on a live stream chance hides one here and there, and what is hidden is in no prompt
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from evolve.config.model import Config
from evolve.gates.call_budget import OutOfCalls
from evolve.gates.decisions import rounds_of
from evolve.gates.exemplars import FIRST, Exemplars, rules_of
from evolve.gates.held_out import HeldOut
from evolve.gates.held_out_rules import replay
from evolve.gates.quarantine import withhold
from evolve.loop.assembly import open_store
from evolve.loop.session import Parts, arun
from evolve.statistics.paired import Passed
from evolve.statistics.partial_progress import Marks
from memory.records import DeltaOp, Op, Provenance, Status, Task, Trust, Verdict
from playbooks.kinds.exemplar import Exemplar, Turn
from playbooks.view import RecordView
from tests.evolve.formulas import Formulas, formulas_config, formulas_policy

TASKS = [Task(id=f"t{at}", instruction=f"Task {at}.") for at in range(40)]


def solved(at: int, trust: Trust = Trust.VERIFIED) -> DeltaOp:
    payload = Exemplar(task=f"Task {100 + at}.", turns=(Turn(said="done"),)).model_dump(mode="json")
    origin = Provenance(trust=trust)
    return DeltaOp(op=Op.ADD, op_id=f"e{at}", kind="exemplar", payload=payload, provenance=origin)


class World:
    """Half of the tasks pass; with exemplars all of them, or no more."""

    def __init__(self, *, helps: bool) -> None:
        self.helps, self.asked, self.past = helps, list[int](), list[Verdict]()
        self.gate = Exemplars(HeldOut(self, TASKS, seed=1), lambda: self.past)

    async def __call__(self, ops: Sequence[DeltaOp] | None, tasks: Sequence[Task], seed: int) -> Passed:
        self.asked.append(len(ops or ()))
        found: Mapping[str, bool] = {task.id: at % 2 == 0 or bool(ops and self.helps) for at, task in enumerate(tasks)}
        return found

    async def judge(self, *ops: DeltaOp) -> Verdict:
        self.past.append(await self.gate.judge(ops, RecordView(), ()))
        return self.past[-1]


def some(count: int, *, first: int = 0, trust: Trust = Trust.VERIFIED) -> list[DeltaOp]:
    return [solved(first + at, trust) for at in range(count)]


async def test_e1_they_wait_for_each_other_and_have_one_look() -> None:
    world = World(helps=True)
    early = await world.judge(*some(FIRST - 1))
    assert (len(early.deferred), early.accepted, world.asked) == (FIRST - 1, (), [])
    verdict = await world.judge(*some(FIRST))
    assert set(verdict.accepted) == {op.op_id for op in some(FIRST)}
    assert set(world.asked) == {0, FIRST}
    assert len(rounds_of(verdict)) == 1


class Shaky(World):
    """With exemplars every second task is gained, and one of the ten that passed before is lost: as a model did."""

    def __init__(self) -> None:
        super().__init__(helps=True)
        self.gate = Exemplars(HeldOut(self, TASKS, seed=1, rules=rules_of(Config())), lambda: self.past)

    async def __call__(self, ops: Sequence[DeltaOp] | None, tasks: Sequence[Task], seed: int) -> Marks:
        numbers = [int(task.id.removeprefix("t")) for task in tasks]
        found = {f"t{n}": (n % 4 == 0 and not (ops and n == 8)) or bool(ops and n % 2 == 1 and n > 2) for n in numbers}
        worse = {f"t{n}": -0.001 if ops and n % 4 == 2 else 0.0 for n in numbers}  # an error more, in tasks that fail
        return Marks(found, {key: worse[key] + passed for key, passed in found.items()})


async def test_e1b_a_gain_is_not_refused_for_the_few_tasks_that_are_lost() -> None:
    world = Shaky()
    verdict = await world.judge(*some(FIRST))
    (look,) = rounds_of(verdict)
    assert look["statistics"]["lost"] == ["t8"]
    assert len(verdict.accepted) == FIRST
    assert replay(look).accepted


async def test_e1b_as_many_gained_as_lost_is_no_gain() -> None:
    class Even(Shaky):
        async def __call__(self, ops: Sequence[DeltaOp] | None, tasks: Sequence[Task], seed: int) -> Marks:
            return Marks({task.id: int(task.id.removeprefix("t")) % 2 == bool(ops) for task in tasks})

    verdict = await Even().judge(*some(FIRST))
    assert len(verdict.deferred) == FIRST


async def test_e2_what_follows_a_yes_needs_no_look_unless_it_is_too_little_trusted() -> None:
    world = World(helps=True)
    await world.judge(*some(FIRST))
    world.asked.clear()
    verdict = await world.judge(solved(50), solved(51, Trust.TAINTED))
    assert (verdict.accepted, set(verdict.deferred), world.asked) == (("e50",), {"e51"}, [])
    verdict = await world.judge(*some(FIRST, first=60, trust=Trust.TAINTED))
    assert len(verdict.accepted) == FIRST
    assert FIRST in world.asked


async def test_e3_a_no_makes_them_wait_for_more_and_the_third_refuses_them() -> None:
    world = World(helps=False)
    for count in (FIRST, 2 * FIRST):
        verdict = await world.judge(*some(count))
        assert (len(rounds_of(verdict)), len(verdict.deferred)) == (1, count)
        assert rounds_of(await world.judge(*some(count + 1))) == ()
    verdict = await world.judge(*some(4 * FIRST))
    assert len(verdict.rejected) == 4 * FIRST


async def test_e3_what_could_not_be_paid_for_is_no_answer_and_goes_on() -> None:
    class Poor(World):
        """Of two looks each ends after its first stage."""

        calls = 24

        async def __call__(self, ops: Sequence[DeltaOp] | None, tasks: Sequence[Task], seed: int) -> Passed:
            if len(tasks) > self.calls:
                raise OutOfCalls("calls are used up")
            return {task.id: False for task in tasks} | ({TASKS[0].id: True} if ops else {})

    world = Poor(helps=False)
    for _ in range(3):
        verdict = await world.judge(*some(FIRST))
        assert set(verdict.deferred.values()) == {"calls are used up"}
        assert len(rounds_of(verdict)) == 1
    Poor.calls = len(TASKS)
    verdict = await world.judge(*some(FIRST))
    assert len(verdict.deferred) == FIRST, "the first answer: they wait for more"
    assert all("waits for more: gained 1" in reason for reason in verdict.deferred.values())


async def test_e4_a_held_out_yes_to_something_else_admits_no_exemplar() -> None:
    world = World(helps=True)
    tainted = solved(0, Trust.TAINTED)
    rule = DeltaOp(op=Op.ADD, op_id="rule", payload={"content": "Be brief."})
    verdict = await HeldOut(world, TASKS, seed=1).judge([tainted, rule], RecordView(), ())
    assert set(verdict.accepted) == {"e0", "rule"}
    (kept,), _ = withhold([tainted], [verdict], Trust.SELF_JUDGED)
    assert kept.status is Status.CANDIDATE


async def test_e5_the_default_gates_measure_them_together_and_show_them_then(tmp_path: Path) -> None:
    config = formulas_config(tmp_path, gate={"names": ("default",)}, run={"attempts": 6})
    result = await arun(config, parts=Parts(policy=formulas_policy(), environment=Formulas()))
    with open_store(config, read_only=True) as store:
        verdicts = [Verdict.model_validate(event.data) for event in store.events(type="gate.verdict")]
        records = [record for record in store.records("default") if record.kind == "exemplar"]
        stream = store.trajectories(run_id=result.run_id, arm="main")
    looks = [each for verdict in verdicts if verdict.gate == "exemplars" for each in rounds_of(verdict)]
    assert [len(each["ops"]) >= FIRST for each in looks] == [True]
    assert (looks[0]["rules"]["cap"], looks[0]["rules"]["progress"]) == (1.0, False)
    assert len(records) > FIRST
    assert not any(episode.injected for episode in stream[:8])
    assert all(episode.success for episode in stream[12:])


async def test_e6_on_a_live_stream_chance_hides_them_one_by_one(tmp_path: Path) -> None:
    config = formulas_config(
        tmp_path, gate={"names": ("static", "online_ab"), "online_ab": {"hide": 0.25}}, run={"attempts": 4}
    )
    await arun(config, parts=Parts(policy=formulas_policy(), environment=Formulas()))
    with open_store(config, read_only=True) as store:
        exemplars = {record.id for record in store.records("default") if record.kind == "exemplar"}
        lots = {task: each for event in store.events(type="recall") for task, each in event.data["lots"].items()}
        episodes = store.trajectories(arm="main")
    hidden = {task: {item.partition("@")[0] for item, gone in each.items() if gone} for task, each in lots.items()}
    assert exemplars & {key for keys in hidden.values() for key in keys}
    for episode in episodes:
        assert hidden[episode.task.id].isdisjoint(item.record_id for item in episode.injected)
