"""Whole trainings with each sampler and allocator: killed between and within iterations, the weights end the same."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from evolve.training.curriculum import Curriculum
from evolve.training.estimates import begin
from evolve.training.ledger import HISTORY, lines
from evolve.training.loop import Learning, Plan, learn
from evolve.training.rollouts import Sampling
from policies.rl import slots
from policies.rl.filters.zero_variance import ZeroVariance
from policies.rl.protocols import Array, Episodes
from tests.evolve.training.test_loop import WORLDS, Stopped, learning, stop

pytestmark = pytest.mark.slow
PLAN = Plan(iterations=2, chains=2, length=1, sampling=Sampling(rollouts=3, skills=False, seed=4))
TASKS = [task.id for task in WORLDS[0].environment.tasks("train")]
KNOWN = {name: (at % 9, 8) for at, name in enumerate(TASKS)}


def parts(sampler: str, allocator: str, advantages: str, seen: list[Episodes]) -> Learning:
    """Return what trains; `seen` gets each batch."""
    made = slots.make("advantages", advantages)

    def watched(episodes: Episodes) -> Array:
        seen.append(episodes)
        return made(episodes) + 0.1

    curriculum = Curriculum(slots.make("samplers", sampler), slots.make("allocators", allocator))
    return replace(learning(watched), curriculum=curriculum)


def killed(learning: Learning) -> Learning:
    """Return the same, whose process ends in the update of its first batch, after the rollouts."""

    def ending(episodes: Episodes) -> Array:
        raise Stopped

    return replace(learning, advantages=ending)


@pytest.mark.parametrize(
    ("sampler", "allocator", "advantages"),
    [("uniform", "fixed", "sage"), ("spo", "knapsack", "grpo"), ("difficulty", "knapsack", "spo")],
)
async def test_a_killed_training_ends_in_the_same_weights(
    sampler: str, allocator: str, advantages: str, tmp_path: Path
) -> None:
    batches: list[Episodes] = []
    through = parts(sampler, allocator, advantages, batches)
    for name in ("through", "killed"):
        (tmp_path / name).mkdir()
        begin(tmp_path / name, lambda: KNOWN)
    await learn(WORLDS, through, PLAN, tmp_path / "through")
    with pytest.raises(Stopped):
        await learn(WORLDS, parts(sampler, allocator, advantages, []), PLAN, tmp_path / "killed", stop)
    with pytest.raises(Stopped):
        await learn(WORLDS, killed(parts(sampler, allocator, advantages, [])), PLAN, tmp_path / "killed")
    again = parts(sampler, allocator, advantages, [])
    await learn(WORLDS, again, PLAN, tmp_path / "killed")
    one, other = dict(through.trainer.merged()), dict(again.trainer.merged())
    assert all(one[name].equal(other[name]) for name in one)
    told = lines(tmp_path / "killed" / HISTORY)
    assert told == lines(tmp_path / "through" / HISTORY)
    assert [sum(n for _, n in line["outcomes"].values()) for line in told] == [6, 6]
    sizes = [sorted(Counter(batch.groups.tolist()).values()) for batch in batches]
    assert all(sum(each) == 6 for each in sizes)
    if allocator == "fixed":
        assert sizes == [[3, 3]] * 2
    else:
        assert any(each != [3, 3] for each in sizes), "all groups were of one size, so this shows nothing"
    kept = [ZeroVariance().keep(batch) for batch in batches]
    assert all(len(flags) == 6 for flags in kept)


async def test_the_baseline_of_spo_is_what_was_expected_before_the_batch(tmp_path: Path) -> None:
    batches: list[Episodes] = []
    begin(tmp_path, lambda: KNOWN)
    plan = PLAN.model_copy(update={"iterations": 1})
    await learn(WORLDS, parts("uniform", "fixed", "spo", batches), plan, tmp_path)
    expected = {(successes + 0.5) / (attempts + 1) for successes, attempts in KNOWN.values()}
    assert batches[0].baselines is not None
    assert np.isin(batches[0].baselines.round(9), np.array(sorted(expected)).round(9)).all()
    (line,) = (json.loads(text) for text in (tmp_path / HISTORY).read_text().splitlines())
    assert set(line["outcomes"]) <= set(TASKS)
