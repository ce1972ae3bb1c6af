"""DPO and SimPO: their margins, and that a step with their weights has the gradient of -log sigmoid(margin).

P1  margins are the papers'
P2  the weights of both sides are the gradient, whatever the lengths
P3  a margin that is far ahead pulls no more, and one far behind with beta
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn.functional import logsigmoid

from policies.rl.preference import PREFERENCES, Preference, Said, losses, sigmoid

RIGHT = Said(np.array([-4.0, -9.0]), np.array([-5.0, -7.0]), np.array([2.0, 3.0]))
WRONG = Said(np.array([-6.0, -2.0]), np.array([-4.0, -2.5]), np.array([4.0, 1.0]))


def test_p1_margins_are_those_of_the_papers() -> None:
    assert PREFERENCES["dpo"](None, 9.0).margins(RIGHT, WRONG) == pytest.approx([0.1 * (1 + 2), 0.1 * (-2 - 0.5)])
    assert PREFERENCES["simpo"](None, 1.0).margins(RIGHT, WRONG) == pytest.approx(
        [2 * (-2 + 1.5) - 1, 2 * (-3 + 2) - 1]
    )
    assert PREFERENCES["dpo"](0.5, 0.0).beta == PREFERENCES["simpo"](0.5, 0.0).beta == 0.5


@pytest.mark.parametrize("preference", [PREFERENCES["dpo"](0.7, 0.0), PREFERENCES["simpo"](None, 0.3)])
def test_p2_a_step_with_the_weights_has_the_gradient_of_the_loss(preference: Preference) -> None:
    logp = torch.tensor(np.array([RIGHT.logp, WRONG.logp]), requires_grad=True)
    length = torch.tensor(np.array([RIGHT.tokens, WRONG.tokens]))
    reference = torch.tensor(np.array([RIGHT.reference, WRONG.reference]))
    score = logp / length if preference.by_length else logp - reference
    margin = preference.beta * (score[0] - score[1]) - preference.gamma
    loss = -logsigmoid(margin)
    loss.sum().backward()
    margins = preference.margins(RIGHT, WRONG)
    assert margins == pytest.approx(margin.detach().numpy())
    assert losses(margins) == pytest.approx(loss.detach().numpy())
    assert logp.grad is not None
    expected = [-preference.weights(margins, RIGHT), preference.weights(margins, WRONG)]
    assert logp.grad.numpy() == pytest.approx(np.array(expected))


def test_p3_what_is_far_ahead_pulls_no_more_and_nothing_overflows() -> None:
    far = np.array([1e4, 0.0, -1e4])
    assert Preference(0.2).weights(far, RIGHT) == pytest.approx([0.0, 0.1, 0.2])
    assert sigmoid(far) == pytest.approx([1.0, 0.5, 0.0])
    assert losses(far) == pytest.approx([0.0, np.log(2), 1e4])
