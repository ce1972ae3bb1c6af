"""Training with branches by the pocket model: the tokens of branches, resumption, and `evolve train`."""

from __future__ import annotations

from itertools import takewhile
from pathlib import Path

import pytest

from contrib.branching.arpo import arpo
from evolve.environments.office.environment import Office, OfficeConfig
from evolve.episode.rollout import RolloutConfig
from evolve.training.batches import episodes_of, prepared
from evolve.training.branches import Branching
from evolve.training.ledger import HISTORY, METRICS
from evolve.training.loop import Learning, Plan, World, draw, learn
from evolve.training.rollouts import Sampling, roll
from evolve.training.state_replay import Calls
from policies.cache import CachedPolicy
from policies.local import LocalPolicy
from policies.local.local_policy import POCKET
from policies.recordings import Recordings
from policies.rl.advantages.grpo import grpo
from policies.rl.filters.everything import Everything
from policies.rl.losses.ppo import Ppo
from policies.rl.optimising import OptimiserOptions
from policies.rl.packing import packs
from policies.rl.protocols import Array, BranchDecision, Flags
from policies.rl.rows import TrainRow
from policies.rl.tracker import BetaTracker
from policies.rl.trainer import Trainer
from tests.evolve.command import invoke
from tests.evolve.training.test_cli_train import SETTINGS, told
from tests.evolve.training.test_loop import TIMED, Stopped, lines

pytestmark = pytest.mark.slow
ACTING = RolloutConfig(world="", max_steps=4, temperature=1.5, max_tokens=32)
"""At 1 the pocket model is sure of each of its turns: branches come out as their bases."""
SAMPLING = Sampling(rollouts=2, skills=False, seed=4)
PLAN = Plan(iterations=2, chains=2, length=1, sampling=SAMPLING)
WORLDS = [World(Office(OfficeConfig(deployment=600)))]
BRANCHES = 2


def whole(row: TrainRow) -> tuple[int, ...]:
    return (*row.prompt_ids, *row.completion_ids)


async def test_a_branch_begins_with_its_bases_tokens_up_to_its_turn_and_goes_on_otherwise(tmp_path: Path) -> None:
    replies = Recordings(tmp_path / "replies.jsonl")
    policy = CachedPolicy(LocalPolicy.pocket(threads=1), replies)
    settings = draw(WORLDS, PLAN.model_copy(update={"chains": 4}), 0)
    bases = await roll(settings, policy, ACTING, SAMPLING, 0)
    calls = Calls(policy, ACTING, replies.get_reply)
    grown = await Branching(arpo, BRANCHES).grown(bases, settings, calls, SAMPLING, 0)
    assert len(grown.branches) == grown.counts["branches"] > 0, "nothing is dropped in the office"
    batch = prepared(episodes_of((*bases, *grown.filled, *grown.branches), BetaTracker()), replies.get_reply)
    assert batch.episodes.groups.tolist().count(0) == 4
    rows = {row.trajectory_id: row for row in batch.rows}
    assert len(rows) == len(batch.rows) == 4 * 4
    seeds = {each.links[0].trajectory.seed: each.links[0].trajectory for each in bases}
    same = 0
    for each in grown.branches:
        trajectory = each.links[0].trajectory
        origin = seeds[trajectory.seed]
        both = zip(trajectory.steps, origin.steps, strict=False)
        place = sum(1 for _ in takewhile(lambda steps: steps[0].reply_key == steps[1].reply_key, both))
        base, branch = rows[origin.id], rows[trajectory.id]
        start, stop = branch.spans[place].start, branch.spans[place].stop
        assert place > 0
        assert branch.prompt_ids == base.prompt_ids
        assert branch.completion_ids[:start] == base.completion_ids[:start]
        assert branch.sampling_logprobs[:start] == base.sampling_logprobs[:start]
        assert branch.spans[:place] == base.spans[:place]
        same += (base.spans[place].stop, base.completion_ids[start:stop]) == (stop, branch.completion_ids[start:stop])
    assert same == grown.counts["branches_same"] < len(grown.branches)
    alone = sum(len(whole(row)) for row in rows.values())
    assert sum(pack.size for pack in packs(batch.rows, 4096)) < 0.7 * alone, "what is shared is computed once"


def learning(decide: BranchDecision) -> Learning:
    policy = LocalPolicy.pocket(threads=1)
    trainer = Trainer(POCKET, Ppo(), OptimiserOptions(learning_rate=1e-3, rank=4, seed=1))
    return Learning(policy, trainer, grpo, Everything(), ACTING, branching=Branching(decide, BRANCHES))


class Dying:
    """ARPO's decision, which ends the process before it is asked for so many-th time."""

    def __init__(self, lives: int) -> None:
        self._lives = lives

    def __call__(self, rises: Array, draws: Array) -> Flags:
        self._lives -= 1
        if self._lives < 0:
            raise Stopped
        return arpo(rises, draws)


async def test_a_training_that_was_stopped_among_branches_goes_on_as_if_it_had_not(tmp_path: Path) -> None:
    through = learning(arpo)
    await learn(WORLDS, through, PLAN, tmp_path / "through")
    told = lines(tmp_path / "through" / METRICS)
    for figures in told:
        assert figures["episodes"] == figures["kept"] == 2 * (2 + BRANCHES)
        assert figures["branches"] + figures["branches_filled"] == 2 * BRANCHES
    assert sum(figures["branches"] for figures in told) > 0
    history = lines(tmp_path / "through" / HISTORY)
    for line, figures in zip(history, told, strict=True):
        assert sum(name.startswith("br-") for name in line["episodes"]) == figures["branches"]
        assert sum(map(len, line["outcomes"].values())) == 4 + figures["branches_filled"], "a branch is no sample"
    with pytest.raises(Stopped):
        await learn(WORLDS, learning(Dying(5)), PLAN, tmp_path / "stopped")
    assert len(lines(tmp_path / "stopped" / METRICS)) == 1
    again = learning(arpo)
    await learn(WORLDS, again, PLAN, tmp_path / "stopped")
    assert again.policy.version == through.policy.version
    assert lines(tmp_path / "stopped" / HISTORY) == history
    names = set(told[0]) - {*TIMED}
    for mine, theirs in zip(lines(tmp_path / "stopped" / METRICS), told, strict=True):
        assert {name: mine[name] for name in names} == pytest.approx(
            {name: theirs[name] for name in names}, rel=1e-6
        ), "log-probabilities are rounded by what else is sampled at once"


def test_the_command_trains_with_branches_and_says_how_many(tmp_path: Path) -> None:
    (tmp_path / "evolve.toml").write_text(SETTINGS)
    assert invoke(tmp_path, "run").exit_code == 0
    every = ("train.rollouts=4", "train.branching.branches=2", "train.filter=everything", "train.echo=0.1")
    keys = [word for key in every for word in ("--set", key)]
    refused = invoke(tmp_path, "train", "sage", *keys)
    assert refused.exit_code == 2
    assert "branches are of single tasks" in refused.stderr
    assert told(tmp_path, "train", "status") == [], "nothing was begun"
    told(tmp_path, "train", "grpo", *keys)
    (row,) = told(tmp_path, "train", "status")
    figures = row["figures"]
    assert figures["episodes"] == 4
    assert figures["branches"] + figures["branches_filled"] == 2
