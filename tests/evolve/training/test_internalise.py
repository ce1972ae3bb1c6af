"""Rows without what was shown: no knowledge in the prompt, no reference to it, and no step that went wrong."""

from __future__ import annotations

from typing import Any

import pytest

from evolve.environments.office.environment import Office, OfficeConfig
from evolve.episode.exemplars.shown_exemplars import with_examples
from evolve.episode.injection import Shown
from evolve.episode.prompting import opening_messages, step_messages
from evolve.protocols import Demonstration
from evolve.training.internalise import Internalising
from evolve.training.turns import erred
from memory.records import Outcome, Record, Step, StopReason, Trajectory, Usage
from playbooks.citations import uncited
from playbooks.kinds.bullet import Bullet
from policies.local.loading import load_encoder
from policies.local.local_policy import POCKET
from policies.protocols import Reply
from policies.rl.rows import TrainRow, rows_of

ENCODER = load_encoder(str(POCKET))
TASK = Office(OfficeConfig(deployment=600)).tasks("train")[0]
RULE = Record[Bullet](id="r7", kind="bullet", number=7, payload=Bullet(content="mail.send: priority must be low"))
END = min(ENCODER.ends)
SAID = (
    ('# mail.send: priority must be low [7]\nm = apps.mail.search(subject="a")\nprint(m[0])', None),
    ("# mail.archive: folder must be done [?]\napps.mail.archive(id=1)", "mail.archive: folder must be old"),
    ("apps.task.done()", None),
)


def episode(said: tuple[tuple[str, str | None], ...] = SAID, **changes: Any) -> tuple[Trajectory, dict[str, Any]]:
    """An episode as it is journalled, and its replies."""
    messages, steps, replies = opening_messages(TASK, "- [7] a rule", "compact", ""), list[Step](), dict[str, Any]()
    for at, (text, error) in enumerate(said):
        ids = (*ENCODER.tokens(text), END)
        reply = Reply(text=text, prompt_token_ids=ENCODER.encode(messages), token_ids=ids, logprobs=(-1.0,) * len(ids))
        replies[str(at)] = {"reply": reply.model_dump()}
        usage = Usage(calls=1)
        steps.append(Step(index=at, action=text, observation="ok", error=error, usage=usage, reply_key=str(at)))
        messages += step_messages(steps[-1], reply)
    plain = Trajectory(
        id="one",
        task=TASK,
        steps=tuple(steps),
        outcome=Outcome(success=True, reward=1.0),
        stop=StopReason.DONE,
        policy="pocket",
        policy_version="v",
        seed=0,
    )
    return plain.model_copy(update=changes), replies


def told_again(trajectory: Trajectory, replies: dict[str, Any]):
    return Internalising(ENCODER, "compact", "", lambda _: Shown(recalled=(RULE,)))(trajectory, replies.get)


def test_the_row_is_the_episode_as_if_nothing_had_been_shown_and_nothing_had_gone_wrong() -> None:
    turns = told_again(*episode())
    assert turns is not None
    (row,) = rows_of(
        turns,
        TrainRow(trajectory_id="one", prompt_ids=(), completion_ids=(), sampling_logprobs=(), spans=()),
    )
    text = ENCODER.tokenizer.decode([*row.prompt_ids, *row.completion_ids])
    assert "a rule" not in text
    assert "[7]" not in text
    assert "priority must be low [?]" in text
    assert "print(m[0])" in text, "an index is no citation"
    assert "folder must be done" not in text
    assert [span.step for span in row.spans] == [0, 2]
    assert all(row.completion_ids[span.stop - 1] == END for span in row.spans)


def test_an_agent_that_knew_nothing_would_have_read_the_worlds_example() -> None:
    example = Demonstration(instruction="Add 1 and 2.", reply="```python\nprint(1 + 2)\n```")
    read = Internalising(ENCODER, "full", "a world", lambda _: Shown(recalled=(RULE,)), demonstration=example)
    trajectory, replies = episode()
    (first, *_) = read(trajectory, replies.get) or ()
    assert first.prompt_ids == ENCODER.encode(with_examples(opening_messages(TASK, "", "full", "a world"), (), example))


@pytest.mark.parametrize(
    "changes",
    [{"prelude": "def pay(): ..."}, {"steps": ()}],
    ids=["skills", "nothing said"],
)
def test_what_cannot_be_told_again_is_left_out(changes: dict[str, Any]) -> None:
    assert told_again(*episode(**changes)) is None


def test_what_was_cut_off_is_left_out() -> None:
    trajectory, replies = episode()
    replies["2"]["reply"]["finish_reason"] = "length"
    assert told_again(trajectory, replies) is None


def test_a_turn_erred_where_any_of_its_own_steps_did() -> None:
    trajectory, _ = episode()
    assert [erred(trajectory, at) for at in range(3)] == [False, True, False]
    several = [step.model_copy(update={"usage": Usage(), "reply_key": ""}) for step in trajectory.steps[1:]]
    assert erred(trajectory.model_copy(update={"steps": (trajectory.steps[0], *several)}), 0)


def test_only_what_was_shown_is_taken_for_a_citation() -> None:
    assert uncited("do [7] and [8], rows[7]", (RULE,)) == "do [?] and [8], rows[7]"
