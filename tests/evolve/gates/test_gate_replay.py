"""Gate `replay`: the episode a skill was made from is done again with it; it must succeed and use it."""

from __future__ import annotations

from pathlib import Path

import pytest

from evolve.environments.office.environment import Office
from evolve.environments.office.episode import OfficeEpisode
from evolve.episode.rollout import Attempt, RolloutConfig, rollout
from evolve.episode.skill_runtime.skill_proposals import skill_ops
from evolve.errors import EnvironmentFailure
from evolve.gates.account import REPLAYS
from evolve.gates.decision_ledger import entries
from evolve.gates.decisions import redecided
from evolve.gates.replay import Replay, ReplayTrial, Run, decide
from evolve.loop.assembly import open_store
from memory.records import DeltaOp, Op, Status, Task, Trajectory, Verdict
from playbooks.view import RecordView
from policies.protocols import Message
from policies.scripted import ScriptedPolicy
from tests.evolve.skilled_office import PAY, call, code, config, office, work

TASK = office().tasks("train")[0]
CALL = call([Message(role="user", content=TASK.instruction)])
TWICE = '''\
def twice(name: str, amount: float, memo: str) -> str:
    """Pay by the skill that pays."""
    return pay_to(name, amount, memo)
'''


def proposed(source: str = PAY, code: str = CALL, **fields: object) -> DeltaOp:
    payload = {"source": source, "tests": [{"code": code, "task_id": TASK.id}] if code else [], **fields}
    return DeltaOp(op=Op.ADD, op_id=source.split("(")[0], kind="skill", payload=payload)


async def judged(*ops: DeltaOp) -> Verdict:
    verdict = await Replay(office(), seed=1).judge(ops, RecordView(()), [Trajectory(task=TASK)])
    assert redecided(verdict, REPLAYS["replay"]) == verdict
    return verdict


async def test_what_works_again_passes_and_so_does_what_is_no_skill() -> None:
    text = DeltaOp(op=Op.ADD, op_id="text", payload={"content": "Pay in cents."})
    verdict = await judged(proposed(), text)
    assert verdict.rejected == {}
    assert verdict.status is Status.PROVISIONAL


async def test_a_world_that_breaks_in_a_replay_is_a_failed_replay() -> None:
    class Broken(Office):
        def start(self, task: Task, seed: int = 0) -> OfficeEpisode:
            raise EnvironmentFailure("the office burnt down")

    gate = Replay(Broken(), seed=1)
    verdict = await gate.judge([proposed()], RecordView(()), [Trajectory(task=TASK)])
    assert "EnvironmentFailure: the office burnt down" in next(iter(verdict.rejected.values()))


@pytest.mark.parametrize(
    ("op", "why"),
    [
        (proposed(code=""), "no test replays a task"),
        (proposed(code=CALL.replace("pay_to", "apps.payments.pay")), "AttributeError"),
        (proposed(code="apps.task.done()"), "the task fails"),
        (proposed(PAY.replace("memo=memo", 'memo="x"')), "the task fails"),
        (proposed(code=f"{PAY.replace('contact =', 'person = contact =')}{CALL}"), "the skill is not used"),
        (proposed(PAY.replace("name: str,", "name: str, at: str,")), "TypeError"),
        (proposed(TWICE, requires=("pay_to",)), "pay_to"),
        (proposed(PAY.replace("memo: str)", "memo: str = [][0])")), "pay_to: IndexError"),
    ],
)
async def test_what_does_not_is_refused_with_the_reason(op: DeltaOp, why: str) -> None:
    verdict = await judged(op)
    assert why in verdict.rejected[op.op_id]


@pytest.mark.parametrize(
    ("trial", "accepted", "reason"),
    [
        (ReplayTrial(), False, "no test replays a task that it was made from"),
        (ReplayTrial(refused="there is one already"), False, "there is one already"),
        (ReplayTrial(runs=(Run(task_id="t"),)), False, "replay of 't': the task fails"),
        (ReplayTrial(runs=(Run(task_id="t", used=True),)), False, "replay of 't': the task fails"),
        (ReplayTrial(runs=(Run(task_id="t", passed=True),)), False, "replay of 't': the skill is not used"),
        (ReplayTrial(runs=(Run(task_id="t", passed=True, used=True),)), True, "replayed in 1 tasks"),
        (
            ReplayTrial(
                runs=(Run(task_id="t", passed=True, used=True), Run(task_id="u", error="E", passed=True, used=True))
            ),
            False,
            "replay of 'u': E",
        ),
    ],
)
def test_every_run_must_end_pass_and_use_it(trial: ReplayTrial, accepted: bool, reason: str) -> None:
    decision = decide(trial)
    assert (decision.accepted, decision.reason) == (accepted, reason)
    assert decision.status is (Status.PROVISIONAL if accepted else Status.REJECTED)
    assert decision.evidence["statistics"] == {"replayed": len(trial.runs)}


async def test_a_skill_may_require_one_that_passed_before_it() -> None:
    twice = proposed(TWICE, CALL.replace("pay_to", "twice"), requires=("pay_to",))
    assert (await judged(proposed(), twice)).rejected == {}
    broken = proposed(PAY.replace("memo=memo", 'memo="x"'))
    assert set((await judged(broken, twice)).rejected) == {broken.op_id, twice.op_id}


async def test_an_episode_in_which_the_agent_asked_to_save_it_is_replayed() -> None:
    replies = [code(f"{PAY}{CALL.splitlines()[0]}"), "<save_skill>pay_to</save_skill>", code("apps.task.done()")]
    plan, acting = Attempt(id="e", task=TASK, seed=1), RolloutConfig(world="", skills=True)
    episode = await rollout(office(), ScriptedPolicy(replies), plan, acting)
    assert [step.error for step in episode.steps] == [None, None, None]
    ops = skill_ops(episode, (), success=True)
    verdict = await Replay(office(), seed=1).judge(ops, RecordView(()), [episode])
    assert (len(verdict.accepted), verdict.rejected) == (1, {})


def test_in_a_run_what_the_agent_wrote_is_replayed_from_its_own_episode(tmp_path: Path) -> None:
    settings = config(tmp_path, gate={"names": ["static", "replay"]})
    result = work(settings)
    with open_store(settings, read_only=True) as store:
        (record,) = store.records("default")
        assert record.status is Status.PROVISIONAL
        assert [(test.task_id, "def " in test.code) for test in record.payload.tests] == [(TASK.id, False)]
        said = [(each.gate, each.answer, each.reason) for each in entries(store, result.run_id)]
        assert said == [("static", "accepted", ""), ("replay", "accepted", "replayed in 1 tasks")]
