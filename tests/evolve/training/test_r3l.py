"""Training with retries by the pocket model: the retry's tokens, resumption, and `evolve train r3l`."""

from __future__ import annotations

from pathlib import Path

import pytest

from evolve.environments.office.environment import Office, OfficeConfig
from evolve.episode.rollout import RolloutConfig
from evolve.training.ledger import HISTORY, METRICS
from evolve.training.loop import Learning, Plan, World, learn
from evolve.training.pivot import Pivot
from evolve.training.pivots.rules import rules
from evolve.training.retries import Retrying
from evolve.training.rollouts import Sampling
from memory.records import Trajectory
from policies.local import LocalPolicy
from policies.local.local_policy import POCKET
from policies.protocols import Policy, SamplingParams
from policies.rl.advantages.r3l import r3l as reweighted
from policies.rl.filters.everything import Everything
from policies.rl.losses.sft import Sft
from policies.rl.optimising import OptimiserOptions
from policies.rl.trainer import Trainer
from policies.rl.transforms.r3l import r3l
from tests.evolve.command import invoke
from tests.evolve.training.again import Noted
from tests.evolve.training.test_cli_train import SETTINGS, told
from tests.evolve.training.test_loop import TIMED, Stopped, lines

pytestmark = pytest.mark.slow
ACTING = RolloutConfig(world="", max_steps=8, temperature=1.0, max_tokens=60)
PLAN = Plan(iterations=2, chains=3, length=1, sampling=Sampling(rollouts=2, skills=False, seed=4))
WORLDS = [World(Office(OfficeConfig(deployment=600)))]


def learning(finder=rules) -> Learning:
    policy = LocalPolicy.pocket(threads=1)
    trainer = Trainer(POCKET, Sft(), OptimiserOptions(learning_rate=1e-3, rank=4, seed=1))
    retrying = Retrying(finder, Noted(r3l))
    return Learning(policy, trainer, reweighted, Everything(), ACTING, retrying=retrying)


class Dying:
    """Rules that end the process before so many-th episode is retried."""

    def __init__(self, lives: int) -> None:
        self._lives = lives

    async def __call__(self, trajectory: Trajectory, policy: Policy, params: SamplingParams) -> Pivot | None:
        self._lives -= 1
        if self._lives < 0:
            raise Stopped
        return await rules(trajectory, policy, params)


async def test_a_training_that_was_stopped_among_retries_goes_on_as_if_it_had_not(tmp_path: Path) -> None:
    through = learning()
    await learn(WORLDS, through, PLAN, tmp_path / "through")
    first, second = lines(tmp_path / "through" / METRICS)
    assert first["retries"] > 0
    assert second["retries"] > 1, "nothing is left to be stopped among"
    with pytest.raises(Stopped):
        await learn(WORLDS, learning(Dying(int(first["retries"]) + 1)), PLAN, tmp_path / "stopped")
    assert len(lines(tmp_path / "stopped" / METRICS)) == 1
    again = learning()
    await learn(WORLDS, again, PLAN, tmp_path / "stopped")
    assert again.policy.version == through.policy.version
    history = lines(tmp_path / "stopped" / HISTORY)
    assert history == lines(tmp_path / "through" / HISTORY)
    assert any(name.endswith("/guided") for line in history for name in line["episodes"])
    same = [name for name in first if name not in TIMED]
    for mine, theirs in zip(lines(tmp_path / "stopped" / METRICS), (first, second), strict=True):
        assert [mine[name] for name in same] == [theirs[name] for name in same]


async def test_what_is_sampled_is_replayed_token_by_token_and_retried_with_other_numbers(tmp_path: Path) -> None:
    parts = learning()
    await learn(WORLDS, parts, PLAN.model_copy(update={"iterations": 1, "chains": 8}), tmp_path)
    assert parts.retrying is not None
    assert isinstance(parts.retrying.transform, Noted)
    given = parts.retrying.transform.given
    (figures,) = lines(tmp_path / METRICS)
    assert len(given) == figures["retries"] - sum(figures[f"retries_{why}"] for why in ("no_pivot", "forked")), (
        "nothing is dropped for another reason in the office"
    )
    assert figures["retries_better"] > 0
    assert {each.step for each in given} != {0}, "all begin anew: this shows nothing"
    for each in given:
        start, stop = each.guidance
        tokens = (*each.retry.prompt_ids, *each.retry.completion_ids)
        cut, base = (*tokens[:start], *tokens[stop:]), (*each.base.prompt_ids, *each.base.completion_ids)
        pivot = next(span for span in each.base.spans if span.step == each.step)
        common = len(each.base.prompt_ids) + pivot.start
        assert cut[:common] == base[:common]
        assert parts.policy.encoder.decode(tokens[start:stop]).startswith("- ")
    assert sum(one.base.completion_ids != one.retry.completion_ids for one in given) > len(given) / 2


def test_the_command_trains_with_half_as_many_bases_and_says_what_came_of_the_retries(tmp_path: Path) -> None:
    (tmp_path / "evolve.toml").write_text(SETTINGS)
    assert invoke(tmp_path, "run").exit_code == 0
    made = told(tmp_path, "train", "r3l", "--set", "train.chains=3", "--set", "train.rollouts=4")
    assert made["generation"] == "policy-v1"
    (row,) = told(tmp_path, "train", "status")
    assert row["training"].startswith("r3l-")
    figures = row["figures"]
    assert figures["episodes"] == 6
    assert 0 < figures["retries"] <= 6
    assert figures["kept"] > figures["episodes"], "no retry was trained on"
    result = invoke(tmp_path, "train", "r3l", "--set", "train.retries=policy")
    assert result.exit_code == 2
    assert "compact profile" in result.stderr
    assert len(told(tmp_path, "train", "status")) == 1, "nothing was begun"
