"""Lives of the claims about real models, by a server that stands for one: every arm and control is there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.claims import real_2_sql, real_3_textworld, real_5_roles
from benchmarks.real.arms import Arms, lived
from benchmarks.real.figures import above, difference, gain, mean, rate
from benchmarks.real.lives import Life
from benchmarks.real.recorded import Recorded
from evolve.episode.arms import AA, MAIN, NO_MEMORY
from tests.policies.model_server import MODEL, ModelServer, serving

FIXTURES = Path(__file__).parents[2] / "fixtures"
FORMULA: dict[str, Any] = {
    "name": "formula",
    "train": str(FIXTURES / "formula_train.jsonl"),
    "validation": str(FIXTURES / "formula_validation.jsonl"),
    "dev": 1,
}
SECTIONS: dict[str, dict[str, Any]] = {
    "run": {"attempts": 2},
    "exemplars": {"enabled": True},
    "playbook": {"reflector": "none", "curator": "direct"},
    "gate": {"names": ["static"]},
    "controls": {"no_memory": 0.0},
}


def answers() -> dict[str, str]:
    """Return question -> the target's program, of the train file; a model that knows these and copies what it sees."""
    lines = [json.loads(line) for line in Path(FORMULA["train"]).read_text(encoding="utf-8").splitlines() if line]
    return {line["context"]: f"```python\nprint({line['target']})\n```" for line in lines}


def knowing(body: dict[str, Any]) -> str:
    """Answer a train question rightly; any other only after a conversation that shows one."""
    asked = body["messages"][-1]["content"]
    known = (text for context, text in answers().items() if context.split("Question: ")[1][:40].strip('"') in asked)
    return next(known, "```python\nprint(-1)\n```")


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with serving(ModelServer(answer=knowing)) as running:
        yield running


def test_a_life_has_every_arm_and_is_not_lived_twice(server: ModelServer, tmp_path: Path) -> None:
    recorded = Recorded(tmp_path, tmp_path / "nothing.gz")
    life = Life(tmp_path, server.url, MODEL, FORMULA, SECTIONS, recorded=recorded)
    arms = lived(life, 2, 2)
    assert set(arms.passed) == set(arms.scores) == {MAIN, NO_MEMORY, AA}
    tasks = set(arms.on)
    assert len(tasks) == 2
    assert all(set(arm) == tasks for arm in (*arms.passed.values(), *arms.scores.values(), arms.untrained, arms.bare))
    assert arms.learned > 0
    assert {task: float(bool(ok)) for task, ok in arms.on.items()} == arms.scores[MAIN]
    before = len(server.requests)
    assert lived(life, 2, 2) == arms
    assert len(server.requests) == before


def made(on: dict[str, bool | None], off: dict[str, bool | None]) -> Arms:
    passed = {MAIN: on, NO_MEMORY: off, AA: on}
    scores = {arm: {task: float(bool(ok)) for task, ok in tasks.items()} for arm, tasks in passed.items()}
    return Arms(passed=passed, scores=scores, untrained=off, bare=off, learned=3, halves=(10.0, 20.0))


def test_claims_decide_by_the_difference_and_its_interval() -> None:
    tasks = [f"t{n}" for n in range(61)]
    off: dict[str, bool | None] = dict.fromkeys(tasks, False)
    on: dict[str, bool | None] = {task: n < 20 for n, task in enumerate(tasks)}
    for child, met in (({MAIN: off, NO_MEMORY: on}, True), ({MAIN: on, NO_MEMORY: off}, False)):
        verdicts = {row.claim: row.ok for row in real_2_sql.rows(made(on, off), child) if row.target}
        assert verdicts == {
            "weights alone minus without memory, points": met,
            "weights alone: lower end of the interval": met,
        }
    by_lot = dict.fromkeys(tasks, 0.1)
    for drawn, met in ((by_lot, True), ({task: float(bool(ok)) for task, ok in on.items()}, False)):
        assert [row.ok for row in real_3_textworld.rows(made(on, off), drawn) if row.target] == [met]
    same = made(off, off), dict.fromkeys(real_5_roles.PARTS, off)
    better = made(on, off), dict.fromkeys(real_5_roles.PARTS, on)
    for shown, always, met in ((better, off, True), (better, on, False), (same, off, False)):
        lives = {real_5_roles.OWN: same, real_5_roles.REFLECTED: same, real_5_roles.TAUGHT: shown}
        found = real_5_roles.rows(lives, always)
        assert [row.ok for row in found if row.target] == [met]
        assert found[0].measured == pytest.approx(2000 / 61 if shown is better else 0)


def test_figures() -> None:
    base: dict[str, bool | None] = {"a": False, "b": None, "c": True}
    candidate: dict[str, bool | None] = {"a": True, "b": True, "c": True}
    assert rate(base) == pytest.approx(100 / 3)
    assert difference("d", base, candidate).measured == pytest.approx(100 / 3)  # what was not graded gains nothing
    assert above("d", base, candidate, 0).ok is False
    scores = {"a": 0.25, "b": 0.5}
    assert mean(scores) == 37.5
    same = gain("g", scores, scores)
    assert (same.measured, same.ci) == (0.0, (0.0, 0.0))
    better = gain("g", scores, {"a": 1.0, "b": 1.0})
    assert better.measured == 62.5
    assert better.ci == (50.0, 75.0)
    with pytest.raises(KeyError):
        gain("g", scores, {"a": 1.0})
