"""Several attempts at each task: pass@k with and without notes, best-of-n, retry with the avoid list.

A1  both arms draw samples under the same seeds; the arm without notes is shown none
A2  pass@k is the unbiased estimate over the samples; what was not graded failed
A3  a retry is told the notes' mistakes and how the earlier attempts failed, and nobody reads a grade to try again
A4  a stopped measurement goes on where it stopped and ends the same
A5  pass@k of a run of several epochs is that of its last
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from evolve.cli.main import app
from evolve.config.model import Config
from evolve.episode.arms import ATTEMPT
from evolve.loop.assembly import open_store
from evolve.loop.attempts import ATTEMPTS, RETRY, WITH, WITHOUT, AttemptsReport, lines
from evolve.loop.report import make_report
from evolve.loop.session import Parts, aresume, arun
from memory.records import DeltaOp, Op, Status, Trajectory
from policies.protocols import Message, SamplingParams
from policies.scripted import ScriptedPolicy
from tests.evolve.listener import Listener
from tests.evolve.toy_doors import COLORS, Doors, doors_config, password, replies
from tests.playbooks.conftest import PARTS

KNOWN = ("red", "blue")


def judged(messages: Sequence[Message], params: SamplingParams) -> str:
    """Play the doors, and judge strictly: an error seen is a failure."""
    text = messages[0].content
    if text.startswith("judge\n"):
        return json.dumps({"verdict": "incorrect" if "error" in text else "correct"})
    return replies(messages, params)


def player() -> ScriptedPolicy:
    return ScriptedPolicy(judged, name="doors", profile="compact", version="1")


def with_notes(config: Config) -> Config:
    """Put a note about each of two doors into the workspace."""
    note = {**PARTS, "mistake_summary": "opened without its word"}
    ops = [
        DeltaOp(
            op=Op.ADD,
            kind="note",
            status=Status.ACTIVE,
            payload={
                **note,
                "subject": f"opening the {color} door",
                "correct_approach": f"the {color} door wants the word {password(color)}",
            },
        )
        for color in KNOWN
    ]
    with open_store(config) as store:
        assert store.commit("default", ops, actor="test").refused == ()
    return config


def configured(root: Path, **sections: dict[str, object]) -> Config:
    run = {"mode": "frozen", "attempts": 3, "judge": "policy", **sections.pop("run", {})}
    return doors_config(root, run=run, **sections)


async def measured(config: Config) -> tuple[AttemptsReport, list[Trajectory], ScriptedPolicy]:
    policy = player()
    result = await arun(config, parts=Parts(policy=policy, environment=Doors()))
    return *stored(config, result.run_id), policy


def stored(config: Config, run_id: str) -> tuple[AttemptsReport, list[Trajectory]]:
    with open_store(config, read_only=True) as store:
        (report,) = make_report(store, run_id).attempts
        return report, list(store.trajectories(run_id=report.id))


async def test_notes_are_measured_against_the_same_samples_without_them(tmp_path: Path) -> None:
    report, episodes, _ = await measured(with_notes(configured(tmp_path)))
    assert [(row.k, row.without, row.with_notes) for row in report.passes.rows] == [(k, 0.0, 0.4) for k in (1, 2, 3)]
    assert (report.best_without, report.best_with_notes) == (0.0, 0.4)
    doors = {t.task.id: t.task.instruction for t in episodes}
    solved = {doors[key] for key, passed in report.passed[WITH].items() if passed}
    assert solved == {f"Open the {color} door." for color in KNOWN}
    assert not any(report.passed[WITHOUT].values())
    by_arm = {arm: [t for t in episodes if t.arm == arm] for arm in (WITHOUT, WITH)}
    assert [len(found) for found in by_arm.values()] == [15, 15]
    seeds = [sorted((t.task.id, t.seed) for t in found) for found in by_arm.values()]
    assert seeds[0] == seeds[1]
    assert len(set(seeds[0])) == 15
    assert not any(t.injected for t in by_arm[WITHOUT])
    assert all(len(t.injected) == 2 for t in by_arm[WITH])


async def test_a_retry_is_told_what_to_avoid_and_gets_there(tmp_path: Path) -> None:
    report, episodes, policy = await measured(with_notes(configured(tmp_path)))
    assert report.retry == 1.0
    assert report.retries == (2 * 1 + 3 * 2) / 5
    again = [t for t in episodes if t.arm == RETRY]
    assert sorted(t.task.instruction for t in again) == sorted(f"Open the {c} door." for c in COLORS if c not in KNOWN)
    told = [messages[0].content for messages in policy.seen if "\navoid:\n" in messages[0].content]
    assert len(told) == len(again)
    assert all("- opening the red door: opened without its word" in text for text in told)
    assert sum(f"- the green door wants the word {password('green')}" in text for text in told) == 1


async def test_nobody_tries_again_because_of_a_grade(tmp_path: Path) -> None:
    """Without a judge only the last step speaks: every door was opened in the end, so each is tried once."""
    report, episodes, _ = await measured(with_notes(configured(tmp_path, run={"judge": "none"})))
    assert (report.retry, report.retries) == (0.4, 1.0)
    assert not [t for t in episodes if t.arm == RETRY]


async def test_both_arms_recall_the_kinds_that_are_configured(tmp_path: Path) -> None:
    config = with_notes(configured(tmp_path, memory={"index": "exact", "kinds": ["note"]}))
    with open_store(config) as store:
        op = DeltaOp(op=Op.ADD, payload={"content": f"the red door wants the word {password('red')}"})
        assert store.commit("default", [op], actor="test").applied
    report, episodes, _ = await measured(config)
    assert not any(t.injected for t in episodes if t.arm == WITHOUT)
    assert not any(report.passed[WITHOUT].values())


async def test_progress_is_told_task_by_task(tmp_path: Path) -> None:
    heard = Listener()
    parts = Parts(policy=player(), environment=Doors())
    await arun(with_notes(configured(tmp_path)), parts=parts, observers=[heard])
    assert heard.done == [(at, 5) for at in range(1, 6)]


async def test_without_a_note_the_report_says_so(tmp_path: Path) -> None:
    report, episodes, _ = await measured(configured(tmp_path))
    assert [row.gain for row in report.passes.rows] == [0.0] * 3
    assert not [t for t in episodes if t.arm == WITH]  # nothing to show: made once, for both arms
    assert report.passed[WITH] == report.passed[WITHOUT]
    assert any("no note was shown" in warning for warning in report.warnings)
    assert any("temperature" in warning for warning in report.warnings)


async def test_a_stopped_measurement_goes_on_and_ends_the_same(tmp_path: Path) -> None:
    whole, _, policy = await measured(with_notes(configured(tmp_path / "whole")))
    config = with_notes(configured(tmp_path / "cut", budget={"calls": 40}))
    first = player()
    stopped = await arun(config, parts=Parts(policy=first, environment=Doors()))
    assert stopped.status == "stopped"
    more = config.model_copy(update={"budget": Config().budget})
    second = player()
    done = await aresume(more, stopped.run_id, parts=Parts(policy=second, environment=Doors()))
    report, _ = stored(config, done.run_id)
    same = {"id", "snapshot_id"}
    assert report.model_dump(exclude=same) == whole.model_dump(exclude=same)
    assert first.calls + second.calls == policy.calls
    with open_store(config, read_only=True) as store:
        assert len(store.events(type=ATTEMPTS)) == 1


async def test_pass_at_k_of_several_epochs_is_that_of_the_last(tmp_path: Path) -> None:
    lucky = set(COLORS)

    def once(messages: Sequence[Message], params: SamplingParams) -> str:
        """Solve a door in the first further attempt at it, and never again."""
        text = messages[0].content
        color = next((color for color in COLORS if f"Open the {color} door" in text), "")
        if text.startswith("reflect"):
            return json.dumps({"insights": [], "harmful": []})
        if params.temperature and color in lucky:
            lucky.remove(color)
            return f"open {color} {password(color)}"
        return "open it"

    run: dict[str, object] = {"mode": "offline", "epochs": 2, "attempts": 2, "batch_size": 5}
    config = doors_config(tmp_path, run=run, controls={"no_memory": 0}, environment={"max_steps": 1})
    policy = ScriptedPolicy(once, name="doors", profile="compact", version="1")
    result = await arun(config, parts=Parts(policy=policy, environment=Doors(5)))
    with open_store(config, read_only=True) as store:
        found = make_report(store, result.run_id).retried
        further = [episode.success for episode in store.trajectories(run_id=result.run_id, arm=ATTEMPT)]
    assert found
    assert (lucky, sorted(further)) == (set(), [False] * 5 + [True] * 5)
    assert (found.k, found.tasks, found.first, found.solved) == (2, 5, 0, 0)


def test_the_command_prints_and_reports_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    worker = "evolve.environments.office.worker:worker"
    (tmp_path / "evolve.toml").write_text(f'[policy]\nname = "{worker}"\n[memory]\nindex = "exact"\n')
    ran = CliRunner().invoke(app, ["eval", "--attempts", "2", "--limit", "3", "--json"])
    assert ran.exit_code == 0, ran.output
    (found,) = json.loads(ran.output)["attempts"]
    assert (found["attempts"], found["passes"]["tasks"]) == (2, 3)
    text = CliRunner().invoke(app, ["report"]).output
    assert "pass@2" in text
    assert "retry with the avoid list" in text
    assert lines(AttemptsReport.model_validate(found))[0] in text
