"""One suite for every Gate: those that ship are found by their files, and what runs tasks is made here.

K1  every op is accepted, or rejected or deferred with a reason
K2  the same input gives the same verdict; the view is left as it was
K3  a verdict survives the journal: as JSON it comes back equal
K4  counters (TAG) are never refused
K5  without ops there is nothing to refuse and nothing to run
K6  what was not measured never becomes active
K7  a measured decision is made again from the verdict's evidence
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import pytest

from evolve import gates
from evolve.config.model import Config
from evolve.environments.office.environment import Office, OfficeConfig
from evolve.gates.account import REPLAYS
from evolve.gates.batch_screen import BatchScreen
from evolve.gates.canary import Canary
from evolve.gates.context import GateContext
from evolve.gates.decisions import redecided
from evolve.gates.exemplars import Exemplars
from evolve.gates.held_out import HeldOut
from evolve.gates.held_out_rules import Rules
from evolve.gates.replay import Replay
from evolve.gates.static import ExemplarGate
from evolve.gates.utility import Utility
from evolve.loop.assembly import shipped_gate
from evolve.registry import members
from memory.protocols import Gate
from memory.records import DeltaOp, Op, Record, Status, Task, Trajectory, UsageCounts, Verdict
from playbooks.kinds.bullet import Bullet
from playbooks.view import RecordView
from skills.skill_gate import SkillGate

TASKS = [Task(id=f"t{at}", instruction=f"Task number {at}.") for at in range(60)]
EPISODES = [Trajectory(task=task) for task in TASKS[:16]]
GOOD = DeltaOp(op=Op.ADD, op_id="good", payload={"content": "Dates are written 2026-11-20."})
BAD = DeltaOp(op=Op.ADD, op_id="bad", payload={"content": ""})
TAG = DeltaOp(op=Op.TAG, op_id="tag", target_id="r1", usage=UsageCounts(helpful=1))


async def evaluate(ops: Sequence[DeltaOp] | None, tasks: Sequence[Task], seed: int) -> Mapping[str, bool | None]:
    """Half of the tasks pass; a change without the bad op makes three quarters pass, one with it none."""
    if ops is not None and BAD in ops:
        return dict.fromkeys((task.id for task in tasks), False)
    return {task.id: at % 2 == 0 if ops is None else at % 4 != 3 for at, task in enumerate(tasks)}


MAKERS: dict[str, Callable[[], Gate]] = {
    **{name: partial(shipped_gate, name, GateContext(Config())) for name in members(gates)},
    "batch_screen": lambda: BatchScreen(evaluate, seed=1),
    "held_out": lambda: HeldOut(evaluate, TASKS, seed=1, rules=Rules(first=60)),
    "held_out-strict": lambda: HeldOut(evaluate, TASKS, seed=1, rules=Rules(mode="strict")),
    "exemplars": lambda: Exemplars(HeldOut(evaluate, TASKS, seed=1)),
    "exemplar": ExemplarGate,
    "canary": lambda: Canary(evaluate, TASKS, seed=1),
    "utility": lambda: Utility(evaluate, TASKS, seed=1),
    "skill": SkillGate,
    "replay": lambda: Replay(Office(OfficeConfig()), seed=1),
}
MEASURES = {"batch_screen", "held_out", "held_out-strict", "canary", "utility"}
SCREENS = {"batch_screen", "canary"}
ADMITS_ALL = {"none", "online_ab", "skill", "exemplar", "exemplars", "replay"}
HUMAN = {"review"}
"""Gates that admit nothing by themselves."""


@pytest.fixture(params=MAKERS)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def view() -> RecordView:
    return RecordView([Record(id="r1", kind="bullet", number=1, slug="shr", payload=Bullet(content="Be brief."))])


async def judged(name: str, view: RecordView, *ops: DeltaOp) -> Verdict:
    return await MAKERS[name]().judge(ops, view, EPISODES)


@pytest.mark.parametrize("ops", [(GOOD, TAG), (BAD, TAG), (GOOD, BAD, TAG)], ids=["good", "bad", "both"])
async def test_k1_k2_k3_k4_every_op_is_judged(name: str, ops: tuple[DeltaOp, ...], view: RecordView) -> None:
    before = view.records()
    verdict = await judged(name, view, *ops)
    assert sorted([*verdict.accepted, *verdict.rejected, *verdict.deferred]) == sorted(op.op_id for op in ops)
    assert all(verdict.rejected.values())
    assert all(verdict.deferred.values())
    assert TAG.op_id in verdict.accepted
    assert Verdict.model_validate_json(verdict.model_dump_json()) == verdict
    assert Verdict.model_validate(json.loads(json.dumps(verdict.model_dump(mode="json")))) == verdict
    assert await judged(name, view, *ops) == verdict
    assert view.records() == before


async def test_a_good_op_passes_and_a_bad_one_only_where_nothing_is_asked(name: str, view: RecordView) -> None:
    assert (GOOD.op_id in (await judged(name, view, GOOD)).accepted) is (name not in HUMAN)
    assert (BAD.op_id in (await judged(name, view, BAD)).accepted) is (name in ADMITS_ALL)


async def test_k5_without_ops_nothing_is_run(name: str, view: RecordView) -> None:
    verdict = await MAKERS[name]().judge((), view, ())
    assert (verdict.accepted, verdict.rejected) == ((), {})
    assert name.startswith(verdict.gate)


async def test_k6_only_what_was_measured_becomes_active(name: str, view: RecordView) -> None:
    verdict = await judged(name, view, GOOD)
    assert (verdict.status is Status.ACTIVE) is (name in MEASURES - SCREENS)


@pytest.mark.parametrize("name", sorted(MEASURES))
@pytest.mark.parametrize("op", [GOOD, BAD], ids=["good", "bad"])
async def test_k7_the_decision_is_made_again(name: str, op: DeltaOp, view: RecordView) -> None:
    verdict = await judged(name, view, op)
    journalled = Verdict.model_validate(json.loads(verdict.model_dump_json()))
    assert redecided(journalled, REPLAYS[verdict.gate]) == verdict
