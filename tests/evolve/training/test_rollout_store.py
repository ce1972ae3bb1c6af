"""Rollouts that are kept to be read: which stay, what of them is cut, and the commands that list and show them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evolve.config.file import load_config
from evolve.loop.assembly import open_store
from evolve.training import ledger
from evolve.training.batch_rollouts import stored
from evolve.training.batches import ScoredEpisode
from evolve.training.rollout_store import FOLDER, SAMPLE, TEXT, StoredRollout, drop, iterations, read, sampled, write
from evolve.workspace import forgetting
from memory.records import Outcome, Step, Task, Trajectory, Usage
from policies.protocols import Message
from policies.rl.rows import Span, TrainRow
from tests.evolve.command import complaint, evolve, evolve_json, settings

SECRET = "sk-ant-api03-" + "a1B2" * 20


def trajectory(name: str, success: bool = True, **more: Any) -> Trajectory:
    """Return an episode of two replies, the first of which asked for two steps."""
    steps = (
        Step(index=0, action="a", reply="I do a and b", observation="one", reply_key="k0", usage=Usage(calls=1)),
        Step(index=1, action="b", observation="two"),
        Step(index=2, action="c", error="broke", reply_key="k1", usage=Usage(calls=1, completion_tokens=3)),
    )
    outcome = Outcome(success=success, reward=float(success))
    return Trajectory(
        **({"id": name, "task": Task(id="t-1", instruction="x"), "steps": steps, "outcome": outcome} | more)
    )


def rollout(iteration: int, group: str, member: int, reward: float, **more: Any) -> StoredRollout:
    own = {"id": f"ro-{iteration}-{group}-{member}", "iteration": iteration, "task": f"t-{group}", "group": group}
    own |= {"position": 0, "rollout": member, "rewards": {"outcome": reward}, "success": reward > 0, "graded": True}
    return StoredRollout.model_validate(own | {"stop": "done"} | more)


def test_an_episode_is_kept_turn_by_turn_with_its_prompt_and_what_was_learned_from_it() -> None:
    asked = {
        "k0": (Message(role="system", content="be brief"), Message(role="user", content="x")),
        "k1": (
            Message(role="system", content="be brief"),
            Message(role="user", content="x, and mind this"),
            Message(role="assistant", content="I do a and b"),
        ),
    }
    row = TrainRow(
        trajectory_id="r",
        prompt_ids=(1,),
        completion_ids=(2, 3),
        sampling_logprobs=(0, 0),
        spans=(Span(start=0, stop=2, step=2, policy_version="v7", truncated=True),),
    )
    scored = ScoredEpisode(trajectory=trajectory("r"), rewards={"outcome": 1.0, "skill": 0.5}, group="g", rollout=1)
    left_out = ScoredEpisode(trajectory=trajectory("s", outcome=None, error="gone"), rewards={}, group="h")
    first = scored.model_copy(update={"trajectory": trajectory("q"), "rollout": 0})
    found = stored(3, [scored, left_out, first], [row], ([row], [np.array([0.25])]), asked)
    assert [each.id for each in found] == ["q", "r", "s"], "groups stay together, members in order"
    _, kept, failed = found
    assert (kept.iteration, kept.reward, kept.success, kept.advantage) == (3, 1.5, True, 0.25)
    assert [(len(turn.steps), turn.advantage, turn.version) for turn in kept.turns] == [(2, None, ""), (1, 0.25, "v7")]
    assert kept.turns[1].truncated
    assert [message.content for message in kept.prompt] == ["be brief", "x, and mind this"], (
        "what its last turn was told"
    )
    assert (failed.graded, failed.success, failed.error, failed.advantage) == (False, False, "gone", None)


def test_secrets_are_redacted_and_long_texts_lose_their_middle() -> None:
    step = Step(index=0, action=f"key = {SECRET!r}", observation="o" * 3 * TEXT, reply_key="k", usage=Usage(calls=1))
    scored = ScoredEpisode(trajectory=trajectory("r", steps=(step,)), rewards={})
    asked = {"k": (Message(role="user", content=f"use {SECRET} " + "p" * 3 * TEXT),)}
    text = stored(0, [scored], [], ([], []), asked)[0].model_dump_json()
    assert SECRET not in text
    assert text.count("REDACTED") == 2
    assert text.count("characters left out") == 2
    assert len(text) < 3 * TEXT


def test_the_latest_iteration_is_whole_and_of_those_before_a_sample_stays(tmp_path: Path) -> None:
    for iteration in range(3):
        write(tmp_path, iteration, [rollout(iteration, f"g{at // 8}", at % 8, 0.0) for at in range(64)])
    assert iterations(tmp_path) == [0, 1, 2]
    assert [len(read(tmp_path, at)) for at in (0, 1, 2, 3)] == [SAMPLE, SAMPLE, 64, 0]
    write(tmp_path, 2, [rollout(2, "g", 0, 1.0)])
    assert [each.id for each in read(tmp_path, 2)] == ["ro-2-g-0"], "done again, it is not there twice"
    drop(tmp_path, 1)
    assert iterations(tmp_path) == [0]


def test_a_sample_holds_whole_groups_those_that_differ_first() -> None:
    alike = [rollout(0, "alike", at, 1.0) for at in range(3)]
    mixed = [rollout(0, "mixed", at, float(at > 1)) for at in range(3)]
    big = [rollout(0, "big", at, float(at > 1)) for at in range(5)]
    assert sampled([*alike, *mixed], 3) == mixed
    assert sampled([*alike, *mixed], 6) == [*alike, *mixed]
    assert sampled([*alike, *mixed], 5) == mixed, "half a group cannot be compared"
    assert sampled([*alike, *big], 4) == big[:4], "but some are better than none"
    assert sampled([], 4) == []


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A workspace with a training of two iterations, and an older one without rollouts."""
    settings(tmp_path)
    place = load_config(tmp_path / "evolve.toml").workspace / "policies" / "training"
    (place / "sft-0").mkdir(parents=True)
    ledger.append(place / "sft-0" / ledger.METRICS, {"epoch": 0, "update": 1, "loss": 1.0})
    (place / "grpo-1").mkdir()
    write(place / "grpo-1", 0, [rollout(0, "a", 0, 1.0), rollout(0, "a", 1, 0.0)])
    more: dict[str, Any] = {
        "prompt": [{"role": "system", "content": "be \x1b[31mbrief"}, {"role": "user", "content": "count"}],
        "turns": [
            {
                "steps": [{"index": 0, "action": "1", "observation": "go on"}],
                "tokens": 2,
                "version": "v",
                "advantage": 0.5,
            },
            {
                "steps": [{"index": 1, "action": "2", "observation": "done"}],
                "tokens": 6,
                "version": "v",
                "truncated": True,
            },
        ],
    }
    more["turns"][0]["advantage"] = 0.5
    write(place / "grpo-1", 1, [rollout(1, "b", 0, 1.0, **more), rollout(1, "b", 1, 0.0, error="the server is gone")])
    return tmp_path


def test_rollouts_are_listed_and_chosen(folder: Path) -> None:
    def ids(*options: str) -> list[str]:
        return [row["id"] for row in evolve_json(folder, "train", "rollouts", "list", *options)]

    assert ids() == ["ro-0-a-0", "ro-0-a-1", "ro-1-b-0", "ro-1-b-1"]
    assert ids("grpo-1", "--iteration", "1") == ids("--group", "b") == ["ro-1-b-0", "ro-1-b-1"]
    assert ids("--failed") == ["ro-0-a-1", "ro-1-b-1"]
    assert ids("--succeeded", "--limit", "1") == ["ro-1-b-0"]
    assert ids("--iteration", "7") == []
    row = evolve_json(folder, "train", "rollouts", "list", "--group", "b")[0]
    assert (row["tokens"], row["turns"], row["advantage"], row["versions"]) == (8, 2, 0.5, ["v"])
    said = evolve(folder, "train", "rollouts", "list", "-n", "1")
    assert "ro-1-b-1" in said
    assert "3 earlier rollouts: -n 4" in said


def test_one_is_shown_with_prompt_turns_and_advantages(folder: Path) -> None:
    said = evolve(folder, "train", "rollouts", "show", "ro-1-b-0").splitlines()
    assert said[:3] == [
        "task t-b, iteration 1, group b, rollout 0",
        "reward 1; solved; ended: done",
        "advantage +0.5; 8 tokens in 2 turns",
    ]
    assert said[4:6] == ["--- system", "be \\x1b[31mbrief"]
    assert said[10:13] == ["--- turn 0: 2 tokens, advantage +0.5", "1", "<<< go on"]
    assert "--- turn 1: 6 tokens, cut off, advantage none (not trained on)" in said
    assert "ended: done (the server is gone)" in evolve(folder, "train", "rollouts", "show", "ro-1-b-1")
    data = evolve_json(folder, "train", "rollouts", "show", "ro-1-b-0", "--training", "grpo-1")
    assert (data["advantage"], data["turns"][0]["steps"][0]["observation"]) == (0.5, "go on")


def test_what_is_not_there_is_named_with_what_is(folder: Path) -> None:
    asked = ("train", "rollouts")
    assert "'sft-0' keeps no rollouts; those that do: grpo-1" in complaint(folder, *asked, "list", "sft-0", code=1)
    assert "'grpo-1' keeps no rollout 'ro-9'" in complaint(folder, *asked, "show", "ro-9", code=1)
    assert "which no rollout is both" in complaint(folder, *asked, "list", "--failed", "--succeeded", code=2)


def test_nothing_kept_is_said(tmp_path: Path) -> None:
    settings(tmp_path)
    assert "no training keeps rollouts; those that do: none" in complaint(tmp_path, "train", "rollouts", "list", code=1)


def test_a_purge_removes_what_may_quote_the_forgotten(folder: Path) -> None:
    evolve(folder, "run", "--limit", "1")
    config = load_config(folder / "evolve.toml")
    unfinished = config.workspace / "policies" / "training" / "grpo-1" / "replies-2.jsonl"
    unfinished.write_text('{"key": "k", "reply": {"text": "a name"}}\n')
    with open_store(config, owner=False) as store:
        (episode, *_) = store.trajectories()
        forgetting.forget(store, config, task=episode.task.id)
        assert iterations(unfinished.parent) == [0, 1]
        assert unfinished.exists()
        forgetting.forget(store, config, task=episode.task.id, purge=True)
    assert not list(config.workspace.glob(f"policies/training/*/{FOLDER}/*"))
    assert not unfinished.exists()


def test_they_are_read_without_a_model(folder: Path) -> None:
    asked = "import sys; from evolve.cli.main import app; app(standalone_mode=False); print('torch' in sys.modules)"
    words = [sys.executable, "-c", asked, "train", "rollouts", "list", "--json"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True)
    assert done.stdout.rstrip().endswith("False")
