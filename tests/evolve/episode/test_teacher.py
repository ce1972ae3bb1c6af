"""A teacher: it answers the plan and one failed action, or makes the further attempts; off unless asked for."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from evolve.config.model import Config
from evolve.episode.arms import ATTEMPT, MAIN, TEACHER
from evolve.episode.rollout import Attempt, RolloutConfig, rollout
from evolve.episode.teacher import GO_ON, PLAN, Teacher
from evolve.errors import ConfigError
from evolve.loop.assembly import open_store
from evolve.loop.controls import WorldCost, estimate
from evolve.loop.report import make_report
from evolve.loop.session import Parts, arun
from evolve.training.experts import author_of
from memory.records import Task, Trajectory
from policies.errors import PolicyRefused
from policies.protocols import Message, SamplingParams
from policies.scripted import Answer, ScriptedPolicy
from tests.evolve.formulas import Formulas, asked, formulas_config, right, unlucky
from tests.evolve.toy_doors import Doors, doors_config, doors_policy, password

TASK = Task(id="train-0", instruction="Open the red door.")
WRONG, RIGHT = "```python\nopen red\n```", f"```python\nopen red {password('red')}\n```"


def advice(text: str) -> str:
    return json.dumps({"advice": text})


async def taught(replies: Sequence[str], *answers: Answer, **acting: Any) -> tuple[Trajectory, ScriptedPolicy]:
    policy = ScriptedPolicy(answers, name="teacher")
    settings = {"plan": False, "retry": False, **acting.pop("when", {})}
    teacher = Teacher(policy, "teacher 1", "doors that open to a word", **settings)
    attempt = Attempt(id="tr-1", task=TASK, seed=7)
    return await rollout(
        Doors(), ScriptedPolicy(replies), attempt, RolloutConfig("W", teacher=teacher, **acting)
    ), policy


async def test_a_plan_is_answered_before_the_first_action_and_takes_no_step() -> None:
    trajectory, teacher = await taught(
        ["I shall open it.", RIGHT], advice("Say the word."), when={"plan": True}, max_steps=1
    )
    plan, action = trajectory.steps
    assert (plan.action, plan.reply, plan.observation) == (PLAN, "I shall open it.", "Your teacher: Say the word.")
    assert (action.index, trajectory.success) == (1, True)
    (asked,) = teacher.seen
    assert "I shall open it." in asked[-1].content
    assert "doors that open to a word" in asked[-1].content
    assert plan.usage.calls == 2


@pytest.mark.parametrize("answer", [advice(""), advice("Lock the crane."), "no JSON", PolicyRefused("too long")])
async def test_a_teacher_that_says_nothing_lets_the_agent_go_on(answer: Answer) -> None:
    trajectory, _ = await taught(["Plan.", RIGHT], answer, "again no JSON", when={"plan": True})
    assert trajectory.steps[0].observation == GO_ON
    assert trajectory.success


async def test_one_failed_action_is_advised_upon_and_given_back() -> None:
    trajectory, teacher = await taught(
        [WRONG, WRONG, WRONG], advice("Say the word."), when={"retry": True}, max_steps=2
    )
    first, second, third = trajectory.steps
    assert first.observation.endswith("\nYour teacher: Say the word.")
    assert first.usage.calls == 2
    assert not any("Your teacher" in step.observation for step in (second, third))
    assert teacher.calls == 1
    assert "open red" in teacher.seen[0][-1].content
    assert trajectory.outcome is not None


async def test_the_agent_reads_the_advice_and_a_silent_teacher_gives_nothing_back() -> None:
    seen: list[str] = []

    def reply(messages: Sequence[Message], params: SamplingParams) -> str:
        seen.append(messages[-1].content)
        return WRONG

    teacher = Teacher(ScriptedPolicy([advice("Say the word.")]), "t", "W", plan=False, retry=True)
    await rollout(
        Doors(), ScriptedPolicy(reply), Attempt("tr", TASK, 7), RolloutConfig("W", max_steps=1, teacher=teacher)
    )
    assert [text.endswith("Your teacher: Say the word.") for text in seen] == [False, True]
    silent, _ = await taught([WRONG], advice(""), when={"retry": True}, max_steps=1)
    assert len(silent.steps) == 1


async def test_a_run_names_its_teacher_and_counts_what_it_said(tmp_path: Path) -> None:
    def act(messages: Sequence[Message], params: SamplingParams) -> str:
        return "I shall open it." if len(messages) == 2 else RIGHT

    teacher = ScriptedPolicy(lambda messages, params: advice("Mind the word."), name="master", version="1")
    parts = Parts(policy=ScriptedPolicy(act, name="pupil"), environment=Doors(), roles={"teacher": teacher})
    config = doors_config(
        tmp_path,
        run={"tasks": 1},
        policy={"teacher": {"plan_review": True}},
        playbook={"reflector": "none", "curator": "direct"},
        controls={"no_memory": 0},
    )
    result = await arun(config, parts=parts)
    with open_store(config, read_only=True) as store:
        (trajectory,) = store.trajectories(run_id=result.run_id)
        uses = {use.role: (use.policy, use.usage.calls) for use in make_report(store, result.run_id).roles}
    assert trajectory.steps[0].observation == "Your teacher: Mind the word."
    assert uses["teacher"] == ("master 1", 1)
    assert uses["acting"][1] == 2


async def test_compact_prompts_have_no_such_turn_and_that_is_said(tmp_path: Path) -> None:
    config = doors_config(tmp_path, policy={"teacher": {"retry": True}})
    with pytest.raises(ConfigError, match="full prompts, and 'doors' has compact ones"):
        await arun(config, parts=Parts(policy=doors_policy(), environment=Doors()))


def test_it_is_off_and_the_estimate_counts_it() -> None:
    plain = Config()
    assert (plain.policy.teacher.plan_review, plain.policy.teacher.retry) == (False, False)
    both = Config.model_validate({"policy": {"teacher": {"plan_review": True, "retry": True}}})
    costs = [estimate(config, 10, 0.0, WorldCost(tokens=0, max_steps=3)).calls for config in (plain, both)]
    assert costs[1] - costs[0] == 10 * 4


def knowing(messages: Sequence[Message], params: SamplingParams) -> str:
    """Know every formula but one."""
    name, a, b = asked(messages[-1].content)
    return "guess at 1, 2" if name == "drift" else right(name, a, b)


def pupil() -> ScriptedPolicy:
    return ScriptedPolicy(unlucky, name="pupil", profile="full")


def master() -> ScriptedPolicy:
    return ScriptedPolicy(knowing, name="master", profile="full", version="1")


def shows_config(root: Path, *, by_teacher: bool = True, attempts: int = 3, **more: Any) -> Config:
    run = {"attempts": attempts, **more.pop("run", {})}
    return formulas_config(root, run=run, policy={"teacher": {"attempts": by_teacher}}, **more)


async def test_a_teachers_attempts_at_what_the_agent_failed_become_its_exemplars(tmp_path: Path) -> None:
    solved: dict[bool, float] = {}
    for by_teacher in (True, False):
        config = shows_config(tmp_path / str(by_teacher), by_teacher=by_teacher)
        parts = Parts(policy=pupil(), environment=Formulas(), roles={"teacher": master()})
        result = await arun(config, parts=parts)
        assert result.metrics
        solved[by_teacher] = result.metrics.tgc
        with open_store(config, read_only=True) as store:
            report = make_report(store, result.run_id)
            first = store.trajectories(run_id=result.run_id, arm=MAIN)
            own = store.trajectories(run_id=result.run_id, arm=ATTEMPT)
            taught = store.trajectories(run_id=result.run_id, arm=TEACHER)
            shown = [record for record in store.records("default") if record.kind == "exemplar"]
        failed = {each.task.id for each in first if not each.success}
        assert {each.task.id for each in (taught if by_teacher else own)} == failed
        assert {each.policy for each in (*first, *own)} == {"pupil"}
        assert ("master" in {each.provenance.author for each in shown}) is by_teacher
        if by_teacher:
            assert own == ()
            assert {each.policy for each in taught} == {"master"}
            assert report.retried is None  # pass@k is the agent's
            assert report.taught
            missed = {each.task.id for each in first if not each.success and "drift" in each.task.instruction}
            assert report.taught.tasks - report.taught.solved == len(missed)
            assert report.taught.episodes == len(taught) == len(failed) + len(missed)
            assert {use.role: use.policy for use in report.roles}["teacher"] == "master 1"
        else:
            assert report.taught is None
    assert solved == {True: 10 / 16, False: 0.0}  # all but the first batch and what nobody knows


async def test_a_teachers_attempts_are_an_experts_to_a_training(tmp_path: Path) -> None:
    config = shows_config(tmp_path)
    full = config.policy.model_copy(update={"name": "openai", "model": "pupil"})
    config = config.model_copy(update={"policy": full})
    await arun(config, parts=Parts(policy=pupil(), environment=Formulas(), roles={"teacher": master()}))
    with open_store(config, read_only=True) as store:
        author = author_of(config, store)
        by_arm = {(each.arm, author(each)) for each in store.trajectories()}
    assert by_arm == {(MAIN, "own"), (TEACHER, "expert")}


@pytest.mark.parametrize(
    ("teacher", "attempts", "said"),
    [
        (None, 3, "the agent is its own teacher"),
        (ScriptedPolicy(knowing, name="master"), 1, "set run.attempts to 2 or more"),
        (ScriptedPolicy(knowing, name="master", profile="compact"), 3, "give both one profile"),
    ],
)
async def test_attempts_that_no_teacher_could_make_are_refused_before_the_first_task(
    tmp_path: Path, teacher: ScriptedPolicy | None, attempts: int, said: str
) -> None:
    config = shows_config(tmp_path, attempts=attempts)
    parts = Parts(policy=pupil(), environment=Formulas(), roles={"teacher": teacher} if teacher else {})
    with pytest.raises(ConfigError, match=said):
        await arun(config, parts=parts)
    frozen = shows_config(tmp_path, attempts=attempts, run={"mode": "frozen", "eval_splits": ("test_normal",)})
    if attempts > 1:
        await arun(frozen, parts=parts)  # nobody learns: the setting has no say


def test_the_estimate_charges_a_teachers_attempts_to_the_teacher() -> None:
    dear = {"name": "openai", "price": {"completion": 1000.0}}
    costs = []
    for shows in (False, True):
        policy = {"teacher": {**dear, "attempts": shows}}
        config = Config.model_validate({"run": {"attempts": 3}, "policy": policy})
        costs.append(estimate(config, 10, 0.0, WorldCost(tokens=0, max_steps=3)).cost_usd)
    assert costs[0] is None
    assert costs[1]
