"""A chain's own skills: later tasks of the chain have them, another chain and the library never do."""

from __future__ import annotations

from evolve.episode.rollout import Attempt, RolloutConfig
from evolve.episode.skill_runtime.chains import Link, chain
from memory.records import Record, Trajectory
from policies.scripted import ScriptedPolicy
from skills.library import Library
from skills.record import Skill
from skills.usage import uses
from tests.evolve.skilled_office import PAY, call, office, payer

BROKEN = Record[Skill](
    id="s1", kind="skill", slug="skill", number=1, payload=Skill(source=PAY.replace("amount=amount, ", ""))
)


async def play(base: Library, policy: ScriptedPolicy | None = None) -> tuple[Link, ...]:
    tasks = [task for task in office().tasks("train") if task.scenario == "office-3/pay-0"]
    attempts = [Attempt(id=task.id, task=task, seed=1) for task in tasks]
    policy = policy or ScriptedPolicy(payer, profile="compact")
    return await chain(office(), policy, attempts, RolloutConfig(world="", skills=True), base)


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


async def test_use_in_a_chain_is_counted_like_any_other() -> None:
    first, second, _ = await play(Library())
    (use,) = uses(second.trajectory, second.shown)
    assert (use.ok, use.strict) == (True, True)
    assert second.shown[0].provenance.trajectory_ids == (first.trajectory.id,)
