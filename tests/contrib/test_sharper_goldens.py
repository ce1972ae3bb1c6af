"""Experimental advantages that look at steps, likelihoods and entropies: reference figures, or by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from contrib.advantages.aepo import aepo
from contrib.advantages.salt import salt
from contrib.advantages.xrpo import xrpo
from memory.errors import BadInput
from policies.rl.advantages.dr_grpo import dr_grpo
from policies.rl.advantages.gigpo import gigpo
from policies.rl.protocols import AdvantageEstimator
from tests.policies.rl.batches import batch


def close(values: object) -> object:
    return pytest.approx(np.array(values), abs=1e-6)


def test_salt_gives_shared_edges_the_mean_and_leaves_the_others() -> None:
    """Trajectories of 1/3, -2/3, 1/3: all share (0, 5), the first two (1, 6); the last did (1, 9) instead."""
    walk = batch([1, 0, 1], steps=[3, 2, 3], anchors=[0, 1, 2, 0, 1, 0, 3, 1], actions=[5, 6, 7, 5, 6, 5, 6, 9])
    assert salt(walk, base=dr_grpo) == close([0, -1 / 6, 1 / 3, 0, -1 / 6, 0, 1 / 3, 1 / 3])


def test_salt_counts_a_trajectory_once_however_often_it_takes_an_edge() -> None:
    back = batch([1, 0], steps=[2, 1], anchors=[0, 0, 0], actions=[5, 5, 5])
    assert salt(back, base=dr_grpo) == close([0, 0, 0])
    alone = batch([1, 0], steps=[2, 1], anchors=[0, 0, 1], actions=[5, 5, 5])
    own = np.array([0.7, 0.1, -0.7])
    assert (salt(alone, base=lambda _: own) == own).all(), "what nobody shares stays as it is, step by step"


def test_salt_keeps_prompts_apart() -> None:
    assert salt(batch([1, 0], [0, 1], anchors=[0, 0], actions=[5, 5]), base=lambda _: np.array([1.0, -1.0])) == close(
        [1, -1]
    )


def test_salt_with_a_history_wants_the_edges_before_to_agree() -> None:
    joined = batch([1, 0], steps=[2, 2], anchors=[0, 2, 1, 2], actions=[1, 3, 1, 3])
    assert salt(joined, base=dr_grpo) == close([0.5, 0, -0.5, 0])
    assert salt(joined, base=dr_grpo, history=1) == close([0.5, 0.5, -0.5, -0.5])
    same = batch([1, 0], steps=[2, 2], anchors=[0, 2, 0, 2], actions=[1, 3, 1, 3])
    assert salt(same, base=dr_grpo, history=1) == close([0, 0, 0, 0])
    with pytest.raises(BadInput, match="got history=-1"):
        salt(same, history=-1)


def test_xrpo_raises_rare_successes_up_to_half() -> None:
    """eta of the two successes is [1.349859, .740818]: 2.5 (1 - .740818) = .648 is more than .5 x .5."""
    four = replace(batch([1, 1, 0, 0]), logprobs=np.array([-0.2, -0.8, -0.5, -0.5]))
    assert xrpo(four, base=dr_grpo) == close([0.5, 0.75, -0.5, -0.5])
    assert xrpo(four, base=dr_grpo, strength=0.5) == close([0.5, 0.5 + 0.5 * 0.259182, -0.5, -0.5])
    assert xrpo(four, base=dr_grpo, success=1.1) == close([0.5, 0.5, -0.5, -0.5])


def test_xrpo_compares_likelihoods_within_a_group() -> None:
    apart = replace(batch([1, 0, 1, 0], [0, 0, 1, 1]), logprobs=np.array([-9.0, -9.0, -0.1, -0.1]))
    assert xrpo(apart, base=dr_grpo) == close([0.5, -0.5, 0.5, -0.5])


def test_aepo_weighs_by_standardised_entropy() -> None:
    """H = 1 to 4: mean 2.5, deviation sqrt(5 / 3) = 1.290994, z = +-1.161895 and +-.387298."""
    episodes = replace(batch([1, 0], steps=[2, 2]), entropies=np.array([1.0, 2, 3, 4]))
    assert aepo(episodes, base=dr_grpo) == close([0.383811, 0.461270, -0.538730, -0.616190])
    assert aepo(replace(episodes, entropies=np.ones(4)), base=dr_grpo) == close([0.5, 0.5, -0.5, -0.5])


@pytest.mark.parametrize("wrapped", [salt, xrpo, aepo])
def test_what_wraps_another_estimator_takes_one_with_advantages_of_steps(wrapped: AdvantageEstimator) -> None:
    episodes = batch([1, 0, 1], steps=[3, 2, 3], anchors=[0, 1, 2, 0, 1, 0, 3, 1])
    found = wrapped(episodes, base=gigpo)  # type: ignore[call-arg]
    assert found.shape == (8,)
    assert (found != wrapped(episodes)).any()


@pytest.mark.parametrize(
    ("estimator", "missing"),
    [
        (salt, "actions"),
        (xrpo, "logprobs"),
        (aepo, "entropies"),
    ],
)
def test_what_an_estimator_needs_and_did_not_get_is_named(estimator: AdvantageEstimator, missing: str) -> None:
    with pytest.raises(BadInput, match=f"got episodes without `{missing}`"):
        estimator(replace(batch([1, 0]), **{missing: None}))
