"""One episode: what ends it, what is recorded, and which failure is data, a stop, or a bug."""

from __future__ import annotations

from typing import Any

import pytest

from evolve.episode.prompting import AGAIN, NO_CODE, answered
from evolve.episode.rollout import Attempt, RolloutConfig, rollout
from evolve.episode.taint import outside_texts
from evolve.errors import EnvironmentFailure
from evolve.protocols import Action, ActionFormat, StepResult
from memory.records import Outcome, Step, StopReason, Task, ToolCall, Usage
from policies.errors import BudgetExceeded, PolicyRefused, PolicyUnavailable
from policies.protocols import Reply, ToolSpec
from policies.scripted import ScriptedPolicy
from tests.evolve.toy_doors import Doors, doors_policy, password

TASK = Task(id="train-0", instruction="Open the red door.")
OPEN = f"open red {password('red')}"


async def attempt(policy: Any, environment: Any = None, **acting: Any) -> Any:
    return await rollout(
        environment or Doors(), policy, Attempt(id="tr-1", task=TASK, seed=7), RolloutConfig(world="W", **acting)
    )


async def test_an_episode_is_recorded_step_by_step() -> None:
    trajectory = await attempt(doors_policy())
    assert [(s.index, s.action, s.error is None) for s in trajectory.steps] == [(0, "open red", False), (1, OPEN, True)]
    assert trajectory.stop is StopReason.DONE
    assert trajectory.outcome is not None
    assert not trajectory.success
    assert trajectory.usage.calls == 2
    assert (trajectory.policy, trajectory.seed, trajectory.id) == ("doors", 7, "tr-1")


async def test_the_step_limit_ends_it_and_it_is_still_graded() -> None:
    trajectory = await attempt(ScriptedPolicy(["a", "b", "c"], profile="compact"), max_steps=2)
    assert (len(trajectory.steps), trajectory.stop) == (2, StopReason.MAX_STEPS)
    assert trajectory.outcome is not None


async def test_step_seeds_differ_and_repeat() -> None:
    seen: list[list[int | None]] = [[], []]
    for seeds in seen:
        policy = ScriptedPolicy(lambda m, p, s=seeds: s.append(p.seed) or "x", profile="compact")
        await attempt(policy, max_steps=3)
    assert seen[0] == seen[1]
    assert len(set(seen[0])) == 3


async def test_a_reply_ends_where_the_world_says() -> None:
    class Lines(Doors):
        stop = ("\n",)

    seen: list[tuple[str, ...]] = []
    for world in (Lines(), Doors()):
        policy = ScriptedPolicy(lambda m, p: seen.append(p.stop) or "x", profile="compact")
        await attempt(policy, world, max_steps=1)
    assert seen == [("\n",), ()]


@pytest.mark.parametrize(("profile", "told"), [("full", [False, True, False, True]), ("compact", [False] * 4)])
async def test_who_repeats_what_failed_is_told_so_in_the_full_profile(profile: Any, told: list[bool]) -> None:
    said = ["open red", "open red", "open blue", "open red"]
    replies = [f"```python\n{text}\n```" if profile == "full" else text for text in said]
    trajectory = await attempt(ScriptedPolicy(replies, profile=profile), max_steps=4)
    assert [AGAIN in step.observation for step in trajectory.steps] == told
    assert not any(AGAIN in (step.error or "") for step in trajectory.steps)
    assert not any("failed in the same way" in text for text in outside_texts(Doors(), trajectory))


def test_that_it_failed_before_is_told_under_the_error_and_not_under_what_follows() -> None:
    step = Step(index=0, action="open", error="It is locked.")
    for said, told in (
        ("It is locked.\n\nCommands: wait", f"It is locked.\n{AGAIN}\n\nCommands: wait"),
        ("Nothing happens.", f"Nothing happens.\n{AGAIN}"),
    ):
        result = StepResult(observation=said, error="It is locked.")
        assert answered("open", result, [step], "full") == told


async def test_code_is_taken_from_the_fence_in_the_full_profile() -> None:
    policy = ScriptedPolicy(["No idea.", f"I know.\n```python\n{OPEN}\n```"])
    trajectory = await attempt(policy)
    first, second = trajectory.steps
    assert (first.action, first.error, first.reply) == ("", NO_CODE, "No idea.")
    assert (second.action, second.error) == (OPEN, None)
    assert second.reply.startswith("I know.")
    assert policy.seen[1][-2:][0].content == "No idea."
    assert policy.seen[1][-1].content == NO_CODE


@pytest.mark.parametrize("error", [PolicyUnavailable("dead"), BudgetExceeded("spent"), PolicyRefused("bad key")])
async def test_what_would_fail_every_episode_stops_the_run(error: Any) -> None:
    with pytest.raises(type(error)):
        await attempt(ScriptedPolicy([error], profile="compact"))


async def test_a_refusal_in_the_middle_is_data() -> None:
    error = PolicyRefused("request too long")
    trajectory = await attempt(ScriptedPolicy(["open red", error], profile="compact"))
    assert trajectory.stop is StopReason.ERROR
    assert trajectory.outcome is None
    assert len(trajectory.steps) == 1
    assert trajectory.error == f"{type(error).__name__}: {error}"


async def test_a_broken_world_is_data_and_a_bug_flies() -> None:
    trajectory = await attempt(ScriptedPolicy(["crash"], profile="compact"))
    assert trajectory.error == "EnvironmentFailure: the door fell off"
    with pytest.raises(ZeroDivisionError):
        await attempt(ScriptedPolicy(lambda m, p: str(1 // 0), profile="compact"))


class Toolbox:
    """Counts calls by native tool call; words end the episode."""

    name = "toolbox"
    action_format: ActionFormat = "tools"
    tools = (ToolSpec(name="add"),)

    def __init__(self) -> None:
        self.seen: list[Action] = []
        self.closed = 0

    def describe(self, profile: str) -> str:
        return "a box"

    def tasks(self, split: str) -> list[Task]:
        return [TASK]

    def start(self, task: Task, seed: int = 0) -> Toolbox:
        return self

    async def step(self, action: Action) -> StepResult:
        self.seen.append(action)
        return StepResult(observation=f"seen {len(self.seen)}", done=not action.tool_calls)

    async def grade(self) -> Outcome:
        return Outcome(success=True, reward=1.0)

    async def close(self) -> None:
        self.closed += 1


async def test_native_calls_are_performed_one_per_step() -> None:
    calls = (ToolCall(id="c1", name="add", arguments={"n": 1}), ToolCall(id="c2", name="add", arguments={"n": 2}))
    usage = Usage(prompt_tokens=5, completion_tokens=2, calls=1)
    policy = ScriptedPolicy([Reply(text="", tool_calls=calls, usage=usage), "All added."])
    box = Toolbox()
    trajectory = await attempt(policy, box)
    assert [step.action for step in trajectory.steps] == ["add(n=1)", "add(n=2)", "All added."]
    assert [action.tool_calls for action in box.seen] == [(calls[0],), (calls[1],), ()]
    assert trajectory.steps[0].usage == usage
    assert trajectory.steps[1].usage == Usage()
    tools = [(m.role, m.content, m.tool_call_id) for m in policy.seen[1] if m.role == "tool"]
    assert tools == [("tool", "seen 1", "c1"), ("tool", "seen 2", "c2")]
    assert trajectory.success
    assert box.closed == 1


class Unclosable(Toolbox):
    """Cannot be closed."""

    async def close(self) -> None:
        self.closed += 1
        raise EnvironmentFailure("the server is gone")


async def test_an_episode_that_cannot_be_closed_is_ungraded_and_hides_nothing_else() -> None:
    box = Unclosable()
    trajectory = await attempt(ScriptedPolicy(["All added."]), box)
    assert (trajectory.outcome, trajectory.error) == (None, "EnvironmentFailure: the server is gone")
    with pytest.raises(BudgetExceeded):
        await attempt(ScriptedPolicy([BudgetExceeded("no call is left")]), box)
    assert box.closed == 2


async def test_the_episode_is_closed_when_a_bug_flies() -> None:
    box = Toolbox()
    with pytest.raises(ZeroDivisionError):
        await attempt(ScriptedPolicy(lambda m, p: str(1 // 0)), box)
    assert box.closed == 1
