"""One training by two processes (gloo): the update is that of one, each holds its share, and a kill ends it clearly."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.ranked import (
    BOUND_S,
    CASES,
    CONTROL,
    SCORED,
    Case,
    Seen,
    all_trained,
    farthest,
    launched,
    led,
    seen,
    tiny,
    trained,
    unscored,
)
from policies.errors import PolicyRefused
from policies.local.loading import load_model
from policies.rl.backends import make_trainer
from policies.rl.losses.ppo import Ppo
from policies.rl.optimising import OptimiserOptions
from policies.rl.packing import packs
from policies.rl.sharding import dealt
from tests.policies.rl.test_trainer import row

pytestmark = pytest.mark.slow
NEAR = {"rel": 1e-4, "abs": 1e-4}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two processes have done every case in it."""
    path = tmp_path_factory.mktemp("two")
    assert launched(all_trained, tiny(path), (*CASES, CONTROL), path).codes == [0, 0]
    return path


def figures(of: Seen) -> list[dict[str, float]]:
    timed = ("seconds", "update_tokens_per_s")
    return [{name: value for name, value in each.items() if name not in timed} for each in of.figures]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_two_processes_train_what_one_trains_and_each_holds_half(folder: Path, case: Case) -> None:
    alone, (first, second) = trained(folder / "model", case), (seen(folder, case, number) for number in range(2))
    assert figures(first) == figures(second)
    assert len(first.figures) == len(alone.figures) == 3
    for told, expected in zip(figures(first), figures(alone), strict=True):
        assert told == pytest.approx(expected, **NEAR)
    assert farthest(first.weights, alone.weights) < 1e-4
    assert sorted(first.packs + second.packs) == sorted(alone.packs)
    assert second.packs
    assert len(first.packs) > len(second.packs), "an odd number of packs: one is computed twice, and counts once"
    assert first.held + second.held == alone.held
    assert max(first.held, second.held) < 0.55 * alone.held


def test_a_mean_of_the_gradients_would_be_seen(folder: Path) -> None:
    alone, both = trained(folder / "model", CONTROL), seen(folder, CONTROL, 0)
    assert farthest(both.weights, alone.weights) > 1e-4
    for told, expected in zip(both.figures, alone.figures, strict=True):
        assert told["gradient_norm"] != pytest.approx(expected["gradient_norm"], rel=0.3)


@pytest.mark.parametrize("case", CASES[:2], ids=lambda case: case.name)
def test_what_two_wrote_one_loads_and_goes_on_from(folder: Path, tmp_path: Path, case: Case) -> None:
    shutil.copy(folder / case.name / "checkpoint.pt", tmp_path)
    weights = seen(folder, case, 0).weights
    resumed = trained(folder / "model", case, tmp_path)
    assert len(resumed.figures) == 1
    assert farthest(resumed.weights, weights) < 1e-4
    for result in (folder / case.name / "result", tmp_path / "result"):
        lora = case.name != "full"
        loaded = load_model(str(folder / "model" if lora else result), str(result) if lora else None).state_dict()
        assert farthest(loaded, weights) < 1e-4


@pytest.mark.parametrize("victim", [1, 0])
def test_a_killed_process_ends_the_training_and_the_same_command_goes_on(
    folder: Path, tmp_path: Path, victim: int
) -> None:
    ended = launched(led, folder / "model", tmp_path, 2, victim, log=tmp_path / "said")
    assert ended.codes[victim] == -9
    assert ended.codes[1 - victim] == 1
    assert ended.seconds < BOUND_S
    said = (tmp_path / f"said-{1 - victim}").read_text().splitlines()[-1]
    assert "ProcessLost: another process of this training ended" in said
    assert said.endswith("the same command goes on from the last checkpoint")
    alone = make_trainer("torch", folder / "model", Ppo(), CASES[0].options()).scored(unscored())
    for row_of, told in zip(alone, json.loads((tmp_path / SCORED).read_text()), strict=True):
        assert told == pytest.approx(row_of.sampling_logprobs, **NEAR)
        assert min(told) < -1
    if victim == 0:
        return  # the second half takes as long again
    assert launched(led, folder / "model", tmp_path, None, victim).codes == [0, 0]
    weights = torch.load(tmp_path / "weights.pt", weights_only=True)
    assert farthest(weights, trained(folder / "model", CASES[0]).weights) < 1e-4


@pytest.mark.parametrize("processes", [1, 2, 3, 4])
def test_each_pack_counts_once_and_every_process_gets_as_many(monkeypatch: pytest.MonkeyPatch, processes: int) -> None:
    rows = [row([at, 12], prompt=tuple(range(at, at + 20 + 4 * at))) for at in range(3, 10)]
    every, counted, given = packs(rows, 64), list[tuple[int, ...]](), set[int]()
    monkeypatch.setenv("WORLD_SIZE", str(processes))
    for number in range(processes):
        monkeypatch.setenv("RANK", str(number))
        own = dealt(every)
        given.add(len(own))
        counted += [pack.rows for pack, counts in own if counts]
    assert sorted(counted) == sorted(pack.rows for pack in every)
    assert len(given) == 1


@pytest.mark.parametrize("backend", ["trl_sync", "trl_async"])
def test_trl_is_refused_by_name_before_a_model_is_loaded(monkeypatch: pytest.MonkeyPatch, backend: Any) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(PolicyRefused, match=f"'{backend}' trains in one process, got 2"):
        make_trainer(backend, "nowhere", Ppo(), OptimiserOptions())
