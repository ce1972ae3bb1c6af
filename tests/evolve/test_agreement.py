"""Where nobody grades, what most attempts came to is taken for right, and no grade is read for it.

G1  agreement is an end that at least half came to, and no other as often; numbers are compared by their value
G2  a run without grades makes all attempts, keeps as exemplars what agrees, self-judged, and nothing else
G3  a frozen run with several attempts answers with the end of most
G4  with fewer than three attempts the setting is refused
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
from evolve.environments.formula import Formula, FormulaConfig
from evolve.episode.agreement import agreed, end_of
from evolve.episode.arms import ATTEMPT, MAIN
from evolve.loop.assembly import open_store
from evolve.loop.report import make_report
from evolve.loop.session import Parts, arun
from memory.records import Step, StopReason, Task, Trajectory, Trust
from policies.protocols import Message, SamplingParams
from policies.scripted import ScriptedPolicy

QUESTIONS = {
    "A shop earns $40 of $200 in sales. What is its margin in percent?": "20",
    "A shop earns $30 of $120 in sales. What is its margin in percent?": "25",
}


def world(folder: Path) -> Formula:
    """Return Formula with these questions, and two others held out."""

    def line(asked: str, said: str) -> str:
        context = f'Use formula Margin to answer the question. Question: "{asked}". Answer:'
        return json.dumps({"context": context, "target": said})

    train, other = folder / "train.jsonl", folder / "validation.jsonl"
    train.write_text("\n".join(line(*each) for each in QUESTIONS.items()))
    other.write_text("\n".join(line(f"Of {n} cars 5 are red. Which share?", str(5 / n)) for n in (10, 50)))
    return Formula(FormulaConfig(train=str(train), validation=str(other), dev=1))


def ended(observation: str | None, *, stop: StopReason = StopReason.DONE, error: str | None = None) -> Trajectory:
    steps = () if observation is None else (Step(index=0, action="a", observation=observation, error=error),)
    return Trajectory(task=Task(id="t", instruction="i"), steps=steps, stop=stop)


def test_g1_an_end_is_the_last_observation_of_an_episode_that_ended_well() -> None:
    assert end_of(ended(" 0.250 ")) == end_of(ended("0.25")) == "0.25"
    assert end_of(ended("1,250.0")) == "1250"
    assert end_of(ended("the  red\ndoor")) == "the red door"
    assert end_of(ended("3.1415926")) == end_of(ended("3.14159291"))
    assert end_of(ended("3.1415")) != end_of(ended("3.1416"))
    assert end_of(ended(" ")) is None
    assert end_of(ended(None)) is None
    assert end_of(ended("1", error="failed")) is None
    assert end_of(ended("1", stop=StopReason.MAX_STEPS)) is None


@pytest.mark.parametrize(
    ("ends", "winner"),
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
def test_g1_at_least_half_and_no_other_as_often(ends: str, winner: str | None) -> None:
    assert agreed([ended(None if end == "-" else end) for end in ends]) == winner


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
    assert not any(verdicts[each.id] for each in (*first, *further) if "$200" in each.task.instruction)
    assert not any(verdicts[each.id] for each in first)


@pytest.mark.parametrize(("judge", "share"), [("none", 0.0), ("agreement", 1.0)])
async def test_g3_a_frozen_run_answers_with_the_end_of_most(tmp_path: Path, judge: str, share: float) -> None:
    asked: Counter[str] = Counter()

    def guess(messages: Sequence[Message], params: SamplingParams) -> str:
        """Of five samples be wrong in the first two, each time otherwise, and right in the others."""
        question = messages[-1].content
        asked[question] += 1
        right = 5 / int(question.split()[1])
        return f"```python\nprint({right if asked[question] % 5 > 2 else asked[question]})\n```"

    run = {"mode": "frozen", "judge": judge, "attempts": 4, "label_free": False, "concurrency": 1}
    given = config(tmp_path, **run)
    result = await arun(given, parts=Parts(policy=ScriptedPolicy(guess, name="guess"), environment=world(tmp_path)))
    with open_store(given, read_only=True) as store:
        (report,) = make_report(store, result.run_id).attempts
    assert report.passes.rows[0].without == 0.5
    assert report.best_without == share


def test_g4_two_attempts_agree_on_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match=r"set run\.attempts to 3 or more, got 2"):
        config(tmp_path, attempts=2)
    assert config(tmp_path, attempts=1, mode="frozen").run.attempts == 1
