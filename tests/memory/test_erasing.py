"""Cutting a text out of stored bodies: wherever it stands, and nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest

from memory.erasing import ERASED, ERASED_PAYLOAD, figures_of, spellings, without
from memory.records import Outcome, Step, Task, Trajectory
from memory.trajectories import Injection, Usage

MARK = 'the "vault" opens'
NO_TOKENS = {"logprobs": None, "prompt_token_ids": None}


def cut(value: Any, *texts: str) -> Any:
    made = without(json.dumps(value, ensure_ascii=False), texts or (MARK,))
    return None if made is None else json.loads(made)


@pytest.mark.parametrize(
    ("value", "left"),
    [
        ({"text": f"I know {MARK}."}, {"text": f"I know {ERASED}."}),
        ({"a": [1, None, [MARK]], MARK: 2}, {"a": [1, None, [ERASED]], ERASED: 2}),
        ({"nested": json.dumps({"said": MARK})}, {"nested": json.dumps({"said": ERASED})}),
        ({"text": "harmless", "token_ids": [1]}, {"text": "harmless", "token_ids": [1]}),
        (
            [{"text": MARK, "token_ids": [1], "logprobs": [0.5]}],
            [{"text": ERASED, "token_ids": None, "logprobs": None}],
        ),
        ({"op_id": "o", "payload": {"content": MARK}, "n": 1}, {"op_id": "o", "payload": ERASED_PAYLOAD, "n": 1}),
        (
            {"op_id": "o", "payload": {"content": "b"}, "r": MARK},
            {"op_id": "o", "payload": {"content": "b"}, "r": ERASED},
        ),
        ({"payload": {"content": MARK}}, {"payload": {"content": ERASED}}),
    ],
)
def test_a_text_is_cut_out_and_what_spells_it_goes_with_it(value: Any, left: Any) -> None:
    assert cut(value) == left


def test_the_longest_text_is_cut_first() -> None:
    assert cut({"a": "pelicans and pelican"}, "pelican", "pelicans") == {"a": f"{ERASED} and {ERASED}"}


def nested(text: str, depth: int) -> Any:
    """Return a body in which so many strings of JSON stand inside each other."""
    return {"a": text if depth == 1 else json.dumps(nested(text, depth - 1), ensure_ascii=False)}


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_it_is_cut_out_of_json_inside_of_json(depth: int) -> None:
    assert cut(nested(MARK, depth)) == nested(ERASED, depth)
    assert spellings(MARK)[depth - 1] in json.dumps(nested(MARK, depth), ensure_ascii=False)


def test_what_cannot_be_cut_cleanly_is_said() -> None:
    assert cut({"amount": "12.5 EUR"}, "12.5") == {"amount": f"{ERASED} EUR"}
    assert cut({"amount": 12.5}, "12.5") is None


def test_of_an_episode_the_figures_stay() -> None:
    full = Trajectory(
        task=Task(id="t1", instruction="secret", environment="office", scenario="s", split="dev", metadata={"a": MARK}),
        opening=MARK,
        steps=(Step(index=0, action=MARK, observation=MARK, omitted=3, usage=Usage(calls=1), seconds=2.0, reply=MARK),),
        injected=(Injection(record_id="r", version=1, label="l", rank=0),),
        outcome=Outcome(success=True, reward=0.5),
        run_id="r1",
        seed=7,
        error=MARK,
    )
    left = Trajectory.model_validate_json(figures_of(full.model_dump_json()))
    assert MARK not in left.model_dump_json()
    assert "vault" not in left.model_dump_json()
    assert (left.task.id, left.task.scenario, left.task.split, left.task.environment) == ("t1", "s", "dev", "office")
    assert left.steps == (Step(index=0, action="", omitted=3, usage=Usage(calls=1), seconds=2.0),)
    assert (left.outcome, left.injected, left.run_id, left.seed) == (full.outcome, full.injected, "r1", 7)
    assert (left.error, left.erased, left.created_at) == (ERASED, True, full.created_at)
    assert Trajectory.model_validate_json(figures_of(Trajectory(task=full.task).model_dump_json())).error is None
