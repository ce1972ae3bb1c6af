"""Where nobody grades, the answer that attempts agree on is taken for right, and no grade is read for it.

G1  agreement is an answer that at least half gave, and no other as often; what an answer is the environment says
G2  a run without grades makes all attempts, keeps as exemplars what agrees, self-judged, and nothing else; a run that
    was stopped goes on and ends the same
G3  a frozen run with several attempts answers as most of them did, and where none answered as it would anyway
G4  where attempts or answers are missing, the setting is refused
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from evolve.config.model import Config
from evolve.config.sections import BudgetSection
from evolve.environments.formula import Formula, FormulaConfig
from evolve.episode.agreement import agreed, answers, commonest
from evolve.episode.arms import ATTEMPT, MAIN
from evolve.errors import ConfigError
from evolve.integrations.agent import Agent
from evolve.loop.assembly import open_store
from evolve.loop.report import make_report
from evolve.loop.session import Parts, aresume, arun
from memory.records import Outcome, Step, StopReason, Task, Trajectory, Trust
from policies.protocols import Message, SamplingParams
from policies.scripted import ScriptedPolicy
from tests.evolve.toy_doors import Doors

QUESTIONS = {
    "A shop earns $40 of $200 in sales. What is its margin in percent?": "20",
    "A shop earns $30 of $120 in sales. What is its margin in percent?": "25",
}


def world(folder: Path, kind: type[Formula] = Formula) -> Formula:
    """Return Formula with these questions, and two others held out."""

    def line(asked: str, said: str) -> str:
        context = f'Use formula Margin to answer the question. Question: "{asked}". Answer:'
        return json.dumps({"context": context, "target": said})

    train, other = folder / "train.jsonl", folder / "validation.jsonl"
    train.write_text("\n".join(line(*each) for each in QUESTIONS.items()))
    other.write_text("\n".join(line(f"Of {n} cars 5 are red. Which share?", str(5 / n)) for n in (10, 50)))
    return kind(FormulaConfig(train=str(train), validation=str(other), dev=1))


@pytest.mark.parametrize(
    ("given", "common"),
    [
        ("aab", "a"),
        ("aabb", None),
        ("aabc", "a"),
        ("aabcd", None),
        ("aaabb", "a"),
        ("abc", None),
        ("a", None),
        ("aa", "a"),
        ("aa--", "a"),
        ("aa---", None),
        ("---", None),
        ("", None),
    ],
)
def test_g1_at_least_half_and_no_other_as_often(given: str, common: str | None) -> None:
    assert agreed([None if each == "-" else each for each in given]) == common


@pytest.mark.parametrize(
    ("given", "common"),
    [("aab", "a"), ("abb", "b"), ("abcbd", "b"), ("abab", "a"), ("-ba", "b"), ("--", None), ("", None)],
)
def test_g3_what_is_answered_was_given_most_often(given: str, common: str | None) -> None:
    assert commonest([None if each == "-" else each for each in given]) == common


def test_g1_an_answer_of_formula_is_the_number_that_is_graded(tmp_path: Path) -> None:
    def said(observation: str, stop: StopReason = StopReason.DONE) -> str | None:
        steps = (Step(index=0, action="a", observation=observation),)
        (answer,) = answers(world(tmp_path), [Trajectory(task=Task(id="t", instruction="i"), steps=steps, stop=stop)])
        return answer

    assert said("Margin: 0.251") == said("0.25") == "0.25"
    assert said("$1,250") == said("1250.0")
    assert said("1, 2") != said("12")
    assert said("no number") is None
    assert said("7", StopReason.MAX_STEPS) is None
    assert answers(world(tmp_path), [Trajectory(task=Task(id="t", instruction="i"), steps=())]) == [None]


def test_g1_an_answer_is_read_without_the_grade(tmp_path: Path) -> None:
    class Peeking(Formula):
        def answer(self, episode: Trajectory) -> str | None:
            return str(episode.outcome)

    peeking = world(tmp_path, Peeking)
    graded = Trajectory(task=Task(id="t", instruction="i"), steps=(), outcome=Outcome(success=True, reward=1.0))
    assert answers(peeking, [graded]) == ["None"]


def config(folder: Path, **run: Any) -> Config:
    return Config.model_validate(
        {
            "root": folder,
            "run": {"label_free": True, "judge": "agreement", "attempts": 4, **run},
            "memory": {"index": "exact"},
            "playbook": {"reflector": "none", "curator": "direct"},
            "exemplars": {"enabled": True},
            "gate": {"names": ["static"]},
            "controls": {"no_memory": 0.0},
        }
    )


def sampler(messages: Sequence[Message], params: SamplingParams) -> str:
    """About the shop that sold for 200 say something else each time; else one thing, but for the first attempt."""
    number = 7 if params.temperature else -1
    number = (params.seed or 0) if "$200" in messages[-1].content else number
    return f"```python\nprint({number})\n```"


async def test_g2_what_agrees_becomes_an_exemplar_whatever_its_grade(tmp_path: Path) -> None:
    given = config(tmp_path)
    policy = ScriptedPolicy(sampler, name="sampler")
    result = await arun(given, parts=Parts(policy=policy, environment=world(tmp_path)))
    with open_store(given, read_only=True) as store:
        kept = [record for record in store.records("default") if record.kind == "exemplar"]
        first, further = (store.trajectories(run_id=result.run_id, arm=arm) for arm in (MAIN, ATTEMPT))
        said = {each.id: store.events(type="judgement", subject=each.id) for each in (*first, *further)}
    assert (len(first), len(further)) == (2, 2 * 3)
    assert not any(each.success for each in (*first, *further))  # nothing of it is right, and nobody looked

    (exemplar,) = kept
    assert "$120" in exemplar.payload.task
    assert "print(7)" in exemplar.payload.text()
    assert exemplar.provenance.trust is Trust.SELF_JUDGED

    assert all(len(events) == 1 for events in said.values())
    verdicts = {each.id: said[each.id][0].data["success"] for each in (*first, *further)}
    assert [verdicts[each.id] for each in further if "$120" in each.task.instruction] == [True] * 3
    assert [verdicts[each.id] for each in first if "$120" in each.task.instruction] == [False]
    assert {verdicts[each.id] for each in (*first, *further) if "$200" in each.task.instruction} == {None}


async def test_g2_a_run_that_was_stopped_among_the_attempts_ends_as_one_that_was_not(tmp_path: Path) -> None:
    def judgements(given: Config) -> list[tuple[str, bool | None, str]]:
        with open_store(given, read_only=True) as store:
            arms = {each.id: (each.task.id, each.arm) for each in store.trajectories()}
            found = [(*arms[e.subject], e.data["success"], e.data["reason"]) for e in store.events(type="judgement")]
            assert len(found) == len(arms)
        return sorted(found, key=repr)

    whole, part = config(tmp_path / "whole"), config(tmp_path / "part")
    for each in (whole, part):
        each.root.mkdir()
    await arun(whole, parts=Parts(policy=ScriptedPolicy(sampler, name="sampler"), environment=world(whole.root)))
    parts = Parts(policy=ScriptedPolicy(sampler, name="sampler"), environment=world(part.root))
    stopped = await arun(part.model_copy(update={"budget": BudgetSection(calls=5)}), parts=parts)
    assert stopped.status == "stopped"
    await aresume(part, stopped.run_id, parts=parts)
    assert judgements(part) == judgements(whole)


@pytest.mark.parametrize(("judge", "share"), [("none", 0.0), ("agreement", 1.0)])
async def test_g3_a_frozen_run_answers_with_the_end_of_most(tmp_path: Path, judge: str, share: float) -> None:
    asked: Counter[str] = Counter()

    def guess(messages: Sequence[Message], params: SamplingParams) -> str:
        """Of five samples be wrong in the first three, each time otherwise, and right in the others."""
        question = messages[-1].content
        asked[question] += 1
        right = 5 / int(question.split()[1])
        return f"```python\nprint({right if asked[question] % 5 in (4, 0) else asked[question]})\n```"

    run = {"mode": "frozen", "judge": judge, "attempts": 5, "label_free": False, "concurrency": 1}
    given = config(tmp_path, **run)
    result = await arun(given, parts=Parts(policy=ScriptedPolicy(guess, name="guess"), environment=world(tmp_path)))
    with open_store(given, read_only=True) as store:
        (report,) = make_report(store, result.run_id).attempts
    assert report.passes.rows[0].without == pytest.approx(0.4)
    assert report.best_without == share


async def test_g3_where_nothing_agrees_the_first_that_ended_well_is_given(tmp_path: Path) -> None:
    asked: Counter[str] = Counter()

    def guess(messages: Sequence[Message], params: SamplingParams) -> str:
        """Print nothing in the first sample until its steps are used up, be right in the second, wrong in the third."""
        question = messages[-1].content
        if not question.startswith("Of "):
            return "```python\nx = 1\n```"
        asked[question] += 1
        right = 5 / int(question.split()[1])
        return f"```python\n{('print(-7)', 'x = 1', f'print({right})')[asked[question] % 3]}\n```"

    run = {"mode": "frozen", "attempts": 3, "label_free": False, "concurrency": 1}
    given = config(tmp_path, **run)
    result = await arun(given, parts=Parts(policy=ScriptedPolicy(guess, name="guess"), environment=world(tmp_path)))
    with open_store(given, read_only=True) as store:
        (report,) = make_report(store, result.run_id).attempts
    assert report.best_without == 1.0


def test_g4_two_attempts_agree_on_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match=r"set run\.attempts to 3 or more, got 2"):
        config(tmp_path, attempts=2)
    assert config(tmp_path, attempts=1, mode="frozen").run.attempts == 1


async def test_g4_a_world_without_answers_and_an_agent_are_refused(tmp_path: Path) -> None:
    given, policy = config(tmp_path), ScriptedPolicy(sampler, name="sampler")
    with pytest.raises(ConfigError, match=r"environment 'doors' does not say what an answer is"):
        await arun(given, parts=Parts(policy=policy, environment=Doors()))
    with pytest.raises(ConfigError, match="an Agent makes one"):
        Agent(None, given.model_copy(update={"exemplars": Config().exemplars}))
