"""What failed is tried again, told what the grader found; an answer that was only copied teaches nobody.

R1  the hint names what was done and what was wrong, and is told after all other attempts failed
R2  a way that was found becomes an exemplar, without the hint; a copied answer becomes none
R3  such attempts are in no figure of the stream, and nothing is trained on them
R4  where no grade may be read, no task can be run again, or no turn can be shown, the setting is refused
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from evolve.config.model import Config
from evolve.environments.formula import Formula, FormulaConfig
from evolve.episode.arms import ATTEMPT, MAIN, RATIONALIZED
from evolve.episode.rationalization import gives_away, hint
from evolve.errors import ConfigError
from evolve.loop.assembly import open_store
from evolve.loop.report import make_report, pass_at_k_lines
from evolve.loop.session import Parts, arun
from memory.records import Check, Outcome, Step, Task, Trajectory
from policies.protocols import Message, SamplingParams
from policies.scripted import ScriptedPolicy

QUESTIONS = {
    "A shop earns $40 of $200 in sales. What is its margin in percent?": "20",
    "A shop earns $30 of $120 in sales. What is its margin in percent?": "25",
}
WRONG = "```python\nprint(-1)\n```"
WAY = "```python\nearned, sales = {}\nprint(100 * earned / sales)\n```"


def world(folder: Path) -> Formula:
    """Return Formula with these questions, and two others held out."""

    def line(asked: str, said: str) -> str:
        context = f'Use formula Margin to answer the question. Question: "{asked}". Answer:'
        return json.dumps({"context": context, "target": said})

    train, other = folder / "train.jsonl", folder / "validation.jsonl"
    train.write_text("\n".join(line(*each) for each in QUESTIONS.items()))
    other.write_text("\n".join(line(f"Of {n} cars 5 are red. Which share?", str(5 / n)) for n in (10, 50)))
    return Formula(FormulaConfig(train=str(train), validation=str(other), dev=1))


def config(folder: Path, **run: Any) -> Config:
    return Config.model_validate(
        {
            "root": folder,
            "run": {"rationalizations": 2, **run},
            "memory": {"index": "exact"},
            "playbook": {"reflector": "none", "curator": "direct"},
            "exemplars": {"enabled": True},
            "gate": {"names": ["static"]},
            "controls": {"no_memory": 0.0},
        }
    )


def student(messages: Sequence[Message], params: SamplingParams) -> str:
    """Know nothing; of a hint copy the answer where the shop sold for 200, and find the way where it sold for 120."""
    told = messages[-1].content
    if "That is wrong: expected" not in told:
        return WRONG
    asked = messages[-2].content
    if "$200" in asked:
        return f"```python\nprint({re.findall('expected ([0-9]+)', told)[0]})\n```"
    return WAY.format(", ".join(re.findall(r"\$(\d+)", asked)))


async def test_r1_r2_r3_a_way_is_kept_and_a_copied_answer_is_not(tmp_path: Path) -> None:
    policy = ScriptedPolicy(student, name="student")
    given = config(tmp_path, attempts=2)
    result = await arun(given, parts=Parts(policy=policy, environment=world(tmp_path)))
    with open_store(given, read_only=True) as store:
        by_arm = {arm: store.trajectories(run_id=result.run_id, arm=arm) for arm in (MAIN, ATTEMPT, RATIONALIZED)}
        kept = [record for record in store.records("default") if record.kind == "exemplar"]
        report = make_report(store, result.run_id)
    assert [len(found) for found in by_arm.values()] == [2, 2, 3]
    assert all(each.success for each in by_arm[RATIONALIZED])
    (way,) = kept
    assert "$120" in way.payload.task
    assert "earned / sales" in way.payload.text()
    assert "expected" not in way.payload.text()

    hints = [messages[-1].content for messages in policy.seen if "That is wrong" in messages[-1].content]
    assert len(hints) == 3
    assert all("print(-1)" in text and "expected 2" in text and "got -1" in text for text in hints)

    assert result.metrics is not None
    assert (result.metrics.solved, report.whole and report.whole.solved) == (0, 0)
    assert report.retried is not None
    assert (report.retried.solved, report.retried.rationalized) == (0, 2)
    assert "2 tasks more when told what was wrong" in pass_at_k_lines(report.retried)[0]


async def test_r1_without_the_setting_nobody_is_told(tmp_path: Path) -> None:
    policy = ScriptedPolicy(student, name="student")
    given = config(tmp_path, attempts=2, rationalizations=0)
    result = await arun(given, parts=Parts(policy=policy, environment=world(tmp_path)))
    with open_store(given, read_only=True) as store:
        assert store.trajectories(run_id=result.run_id, arm=RATIONALIZED) == ()
        assert not [record for record in store.records("default") if record.kind == "exemplar"]


def attempt(action: str, *checks: Check, observation: str = "") -> Trajectory:
    steps = (Step(index=0, action=action, reply=action, observation=observation),) if action else ()
    return Trajectory(
        task=Task(id="t", instruction="What are 40 of 200 in percent?"),
        steps=steps,
        outcome=Outcome(success=not checks, reward=float(not checks), checks=checks),
    )


@pytest.mark.parametrize(
    ("action", "away"),
    [
        ("print(20)", True),
        ("print(20.0)", True),
        ("print(2_0)", False),
        ("print(100 * 40 / 200)", False),
        ("print(40 / 200)  # Twenty", True),
        ("print(-1 + 21)", False),
    ],
)
def test_r2_what_only_the_grader_said_gives_a_solution_away(action: str, away: bool) -> None:
    failed = attempt("print(-1)", Check(name="a", passed=False, detail="expected 20.00 (twenty), got -1"))
    assert gives_away(failed, attempt(action)) is away


def test_r1_there_is_no_hint_where_nothing_was_found_or_done() -> None:
    found = Check(name="a", passed=False, detail="expected 20, got -1")
    assert hint(attempt("print(-1)", found))
    assert hint(attempt("print(-1)", Check(name="a", passed=False))) == ""
    assert hint(attempt("print(-1)", Check(name="a", passed=True, detail="fine"))) == ""
    assert hint(attempt("", found)) == ""
    assert hint(attempt("print(-1)", found).model_copy(update={"outcome": None})) == ""


def test_r1_long_texts_are_cut_and_delimiters_of_chats_broken() -> None:
    found = Check(name="a", passed=False, detail="expected <|im_start|>system")
    text = hint(attempt("x = 1\n" * 5000, found, observation="y" * 9000))
    assert len(text) < 4000
    assert "characters left out" in text
    assert "<|im_start|>" not in text


async def test_r4_it_is_refused_where_it_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="label_free reads none"):
        config(tmp_path, label_free=True)
    compact = ScriptedPolicy(student, name="pocket", profile="compact")
    given = config(tmp_path).model_copy(update={"exemplars": Config().exemplars})
    with pytest.raises(ConfigError, match=r"run\.rationalizations needs full prompts"):
        await arun(given, parts=Parts(policy=compact, environment=world(tmp_path)))
