"""A chain's own skills: later tasks of the chain have them, another chain and the library never do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from evolve.episode.rollout import Attempt, RolloutConfig
from evolve.episode.skill_runtime.chains import Link, chain, take
from memory.records import Record, Trajectory
from policies.protocols import Message, SamplingParams
from policies.scripted import ScriptedPolicy
from skills.library import Library
from skills.record import Skill
from skills.usage import uses
from tests.evolve.skilled_office import PAY, call, code, office, payer

BROKEN = Record[Skill](
    id="s1", kind="skill", slug="skill", number=1, payload=Skill(source=PAY.replace("amount=amount, ", ""))
)


BARE = f"import math\n\n\n{PAY}".replace('"""Pay', "math.floor(amount)\n    " + '"""Pay').replace(" -> str", "")
"""No docstring, no type of what it returns: no gate would let it in."""
OTHER = PAY.replace("memo=memo", "memo=memo.strip()") + '\npay_to("Rodor", 1, "x")'


async def play(base: Library, policy: ScriptedPolicy | None = None, same_name: Any = "kept") -> tuple[Link, ...]:
    tasks = [task for task in office().tasks("train") if task.scenario == "office-3/pay-0"]
    attempts = [Attempt(id=task.id, task=task, seed=1) for task in tasks]
    policy = policy or ScriptedPolicy(payer, profile="compact")
    return await chain(office(), policy, attempts, RolloutConfig(world="", skills=True, same_name=same_name), base)


def trajectories(links: tuple[Link, ...]) -> list[Trajectory]:
    return [link.trajectory for link in links]


async def test_what_a_chain_wrote_its_later_tasks_call_and_no_other_chain_has_it() -> None:
    base = Library()
    for _ in range(2):
        first, *later = trajectories(await play(base))
        assert first.injected == ()
        assert first.steps[0].action.startswith("def pay_to")
        assert all(trajectory.steps[0].action.startswith("pay_to(") and trajectory.success for trajectory in later)
        assert [item.label for item in later[0].injected] == ["skill-00000"]
    assert base.names == ()


async def test_a_version_made_in_a_chain_is_used_in_it_and_the_base_keeps_its_own() -> None:
    base = Library([BROKEN])

    def mender(messages: object, params: object) -> str:
        said = call(messages)  # type: ignore[arg-type]
        return said if len(messages) < 3 else f"{PAY}\n{said}"  # type: ignore[arg-type]

    first, *later = trajectories(await play(base, ScriptedPolicy(mender, profile="compact")))
    assert [step.error is None for step in first.steps] == [False, True]
    assert [len(trajectory.steps) for trajectory in later] == [1, 1]
    assert [item.version for item in later[0].injected] == [2]
    assert base.get("pay_to") is BROKEN


def spoken(messages: Sequence[Message], params: SamplingParams) -> str:
    """Act as a model with full prompts, which never says that something is to be saved."""
    known = "- pay_to(" in messages[0].content
    return code(call(messages) if known else f"{BARE}\n{call(messages)}")


async def test_with_full_prompts_a_chain_has_what_it_wrote_without_a_word_and_in_any_style() -> None:
    first, *later = trajectories(await play(Library(), ScriptedPolicy(spoken)))
    assert "def pay_to" in first.steps[0].action
    assert all(len(each.steps) == 1 and each.prelude.startswith("import math") and each.success for each in later)
    assert not any("def pay_to" in each.steps[0].action for each in later)


@pytest.mark.parametrize(("same_name", "author"), [("kept", 0), ("replaced", 1)])
async def test_another_function_of_a_name_is_the_next_version_or_takes_its_place(same_name: Any, author: int) -> None:
    """The second task writes anew what the first one wrote; whose it is decides who is paid for its use."""

    def always_anew(messages: Sequence[Message], params: SamplingParams) -> str:
        done = call(messages)
        return PAY.replace("found by name", f"say {done.split(chr(34))[1]}") + done

    links = await play(Library(), ScriptedPolicy(always_anew, profile="compact"), same_name)
    (record,) = links[2].shown
    task = links[author].trajectory.task
    assert record.provenance.task_ids == (task.id,)
    assert record.payload.origin == task.instruction
    assert record.version == 2 - author
    assert record.payload.definition in links[1].trajectory.steps[0].action


@pytest.mark.parametrize(("same_name", "first"), [("kept", True), ("replaced", False)])
async def test_a_name_that_was_taken_and_not_shown_stays_the_first_ones_or_the_latest_ones(
    same_name: Any, first: bool
) -> None:
    done = trajectories(await play(Library()))[0]
    overlay = Library().overlay()
    other = done.model_copy(update={"steps": (done.steps[0].model_copy(update={"action": OTHER}),)})
    take(overlay, done, (), same_name)
    take(overlay, other, (), same_name)
    assert (overlay.get("pay_to").payload.definition == PAY.strip()) is first


async def test_use_in_a_chain_is_counted_like_any_other() -> None:
    first, second, _ = await play(Library())
    (use,) = uses(second.trajectory, second.shown)
    assert (use.ok, use.strict) == (True, True)
    assert second.shown[0].provenance.trajectory_ids == (first.trajectory.id,)
