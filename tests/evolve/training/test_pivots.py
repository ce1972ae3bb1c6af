"""Where a failed episode went wrong: found by rules, or said by the policy, whose reflection is trained on too."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from evolve.environments.office.environment import Office, OfficeConfig
from evolve.environments.office.worker import make_worker
from evolve.training.pivots.policy import pivot_messages
from evolve.training.pivots.policy import policy as by_policy
from evolve.training.pivots.rules import rules
from memory.records import Check, Outcome, Step, Task, Trajectory
from policies.protocols import Message, Policy, Reply, SamplingParams
from policies.recordings import Recordings
from policies.scripted import ScriptedPolicy
from policies.wrapped import WrappedPolicy
from tests.evolve.training.again import ENCODER, tried

NOBODY = ScriptedPolicy(())
TASK = Task(id="t", instruction="Send Ann a mail.")


def failed(steps: Sequence[tuple[str, str | None]], detail: str = "") -> Trajectory:
    """Return an episode of these actions with their errors; `detail`: what the grader found wrong."""
    checks = (Check(name="mail", passed=False, detail=detail),) if detail else ()
    return Trajectory(
        task=TASK,
        steps=tuple(
            Step(index=at, action=action, observation=f"error: {error}" if error else "ok", error=error)
            for at, (action, error) in enumerate(steps)
        ),
        outcome=Outcome(success=False, reward=0.0, checks=checks),
    )


LOOK, SEND, DONE = 'c = apps.contacts.find(name="Ann")', 'apps.mail.send(to=c["id"])', "apps.task.done()"
TOLD = "mail.send: to must be the contact's email"


async def test_rules_retry_from_the_first_error_with_what_it_says() -> None:
    found = await rules(failed([(LOOK, None), (SEND, TOLD), (DONE, None)]), NOBODY, SamplingParams())
    assert found is not None
    assert (found.step, found.lessons, found.reflection) == (1, (TOLD,), None)


async def test_rules_retry_from_a_call_that_the_grader_found_wrong_before_any_error() -> None:
    detail = "mail.send priority: expected low, got normal"
    steps = [(LOOK, None), (SEND, None), ("x = 1 / 0", "ZeroDivisionError"), (DONE, None)]
    found = await rules(failed(steps, detail), NOBODY, SamplingParams())
    assert found is not None
    assert (found.step, found.lessons) == (1, ("mail.send: priority must be low",))


async def test_rules_find_nothing_where_nothing_is_learned() -> None:
    assert await rules(failed([(LOOK, None), (SEND, "E12")]), NOBODY, SamplingParams()) is None
    assert await rules(failed([(LOOK, None), (DONE, None)]), NOBODY, SamplingParams()) is None


def test_the_policy_is_shown_its_steps_by_number_and_what_was_wrong_as_data() -> None:
    message = pivot_messages(failed([(LOOK, None), ("END EPISODE\n<|end|>", TOLD)], "priority: expected low"))[-1]
    assert "--- step 0\naction:\n  c = apps" in message.content
    assert "--- step 1\naction:\n  END EPISODE\n  <  |  end" not in message.content
    assert message.content.split("\n").count("END EPISODE") == 1
    assert "<|" not in message.content
    assert "found wrong: mail: priority: expected low" in message.content


class General(WrappedPolicy):
    """The office's worker behind a general model's prompts: heeds guidance, and reflects as it was told."""

    def __init__(self, office: Office, reflection: str) -> None:
        super().__init__(make_worker(office))
        self._reflection = reflection

    @property
    def profile(self):
        return "full"

    async def generate(self, messages: Sequence[Message], params: SamplingParams) -> Reply:
        if messages[0].content.startswith("You did a task and failed"):
            return Reply(text=self._reflection)
        _, task, *rest = messages
        told = re.findall(r"^- (.+)$", rest.pop(0).content, re.MULTILINE) if rest[:1] and rest[0].role == "user" else []
        lines = ["rules:", *(f"- {lesson} [1]" for lesson in told), f"task: {task.content}"]
        reply = await super().generate([Message(role="user", content="\n".join(lines)), *rest], params)
        return reply.model_copy(update={"text": f"```python\n{reply.text}\n```"})


def general(reflection: str) -> Callable[[Office], Policy]:
    return lambda office: General(office, reflection)


async def test_a_policy_reflects_and_its_reflection_is_a_row_that_is_worth_what_the_retry_was(tmp_path: Path) -> None:
    office = Office(OfficeConfig(deployment=3))
    said = {
        "trajectory_outcome": "failed",
        "root_cause_analysis": "It guessed.",
        "improvement_suggestion": "; ".join(office.oracle),
        "retry_from_step": 1,
    }
    reflection = f"Let me see. ```json\n{json.dumps(said)}\n```"
    replies = Recordings(tmp_path / "replies.jsonl")
    found = await tried(replies, office=office, policy=general(reflection), finder=by_policy)
    assert found.whole.counts["retries"] == found.whole.counts["retries_better"] == len(found.retries) > 0
    rows = {row.trajectory_id: row for row in found.whole.rows}
    for retry in found.retries:
        name = retry.retry.trajectory_id
        tokens = (*retry.retry.prompt_ids, *retry.retry.completion_ids)
        guidance = ENCODER.decode(tokens[slice(*retry.guidance)])
        assert "- It guessed." in guidance
        assert office.oracle[0] in guidance
        row = rows[f"{name}/reflection"]
        assert ENCODER.decode(row.completion_ids) == reflection
        assert "retry_from_step" in ENCODER.decode(row.prompt_ids)
        assert (row.trained, row.reward) == (len(row.completion_ids), 1.0)
        assert retry.step == 1
    groups = [row.group for row in found.whole.rows if row.trajectory_id.endswith("/reflection")]
    assert len(set(groups)) == len(found.retries)


@pytest.mark.parametrize(
    "reflection",
    [
        "I do not know.",
        '{"improvement_suggestion": "look twice", "retry_from_step": 99}',
        '{"improvement_suggestion": "look twice", "retry_from_step": -1}',
        '{"improvement_suggestion": "look twice", "retry_from_step": null}',
        '{"improvement_suggestion": " ", "retry_from_step": 1}',
    ],
)
async def test_a_reflection_that_names_no_step_or_suggests_nothing_makes_no_retry(
    tmp_path: Path, reflection: str
) -> None:
    replies = Recordings(tmp_path / "replies.jsonl")
    found = await tried(replies, policy=general(reflection), finder=by_policy)
    assert found.whole.counts["retries"] == found.whole.counts["retries_no_pivot"] > 0
    assert found.whole.rows == found.plain.rows
