"""What a training on pairs of the journal takes of its episodes: rows without a trained token are left out."""

from __future__ import annotations

import math
from typing import Any

import pytest

from evolve.training.preferred import preference_pairs
from evolve.training.supervised import NoExamples
from evolve.training.training_data import Offer
from memory.records import Outcome
from policies.rl.preference import PREFERENCES
from tests.evolve.training.test_internalise import episode

DPO = PREFERENCES["dpo"](None, 0.0)


def offered(*broken: int) -> tuple[Offer, dict[str, Any]]:
    """Return a success and a failure of one task, and their replies; `broken`: these turns of the failure are."""
    right, replies = episode()
    steps = tuple(step.model_copy(update={"reply_key": f"wrong-{step.index}"}) for step in right.steps)
    wrong = right.model_copy(update={"id": "two", "steps": steps, "outcome": Outcome(success=False, reward=0.0)})
    for at in range(len(steps)):
        reply = dict(replies[str(at)]["reply"])
        if at in broken:
            reply["logprobs"] = (math.nan,) * len(reply["token_ids"])
        if at == 2:
            reply["prompt_token_ids"] = (1, 2, 3)  # the past was rewritten: a row of its own
        replies[f"wrong-{at}"] = {"reply": reply}
    return Offer(successes=(right,), failures=(wrong,)), replies


def ids(rows: list[Any]) -> list[str]:
    return sorted(row.trajectory_id for row in rows)


def test_of_a_pair_the_rows_without_a_trained_token_are_left_out() -> None:
    offer, replies = offered()
    assert ids(preference_pairs(offer, replies.get, DPO).rows) == ["one", "two", "two"]
    offer, replies = offered(2)
    found = preference_pairs(offer, replies.get, DPO)
    assert ids(found.rows) == ["one", "two"]
    assert found.pairs == [("one", "two")]


def test_an_episode_without_a_trained_token_makes_no_pair() -> None:
    offer, replies = offered(0, 1, 2)
    with pytest.raises(NoExamples, match="succeeded once and failed once"):
        preference_pairs(offer, replies.get, DPO)
