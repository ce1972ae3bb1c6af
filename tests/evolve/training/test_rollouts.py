"""Rollouts of chains: every member of a group has a library of its own, and use is paid for where it was real."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from evolve.config.model import Config
from evolve.config.training import RECIPES, TrainSection
from evolve.environments.office.environment import Office, OfficeConfig
from evolve.environments.office.worker import make_worker
from evolve.episode.prompting import NO_CODE
from evolve.episode.rollout import RolloutConfig
from evolve.episode.skill_runtime.chains import Link
from evolve.training.chain_tasks import chains
from evolve.training.loop import rollout_figures
from evolve.training.rollouts import ChainSpec, Rollout, Sampling, rewarded, roll, used
from evolve.training.workspace_rollouts import acting_of
from memory.records import Outcome, Provenance, Record, Step, StopReason, Task, Trajectory
from policies.protocols import Message, SamplingParams
from policies.scripted import ScriptedPolicy
from skills.record import Skill

ACTING = RolloutConfig(world="", max_steps=16, skills=True)
SOURCE = '''def paid(to: str, amount: int) -> str:
    """Pay someone and say so."""
    found = apps.contacts.find(name=to)
    return apps.payments.send(to=found, amount=amount)
'''


async def rolled(sampling: Sampling, length: int = 2) -> tuple[Rollout, ...]:
    office = Office(OfficeConfig(deployment=3))
    drawn = chains(office.tasks("train"), length, seed=0)[:4]
    settings = [ChainSpec(each, office) for each in drawn]
    return await roll(settings, make_worker(office), ACTING, sampling, iteration=0)


async def test_every_chain_is_done_by_every_member_with_skills_of_its_own() -> None:
    found = await rolled(Sampling(rollouts=3))
    assert [(each.chain_id, each.member) for each in found] == [
        (chain, member) for chain in dict.fromkeys(each.chain_id for each in found) for member in range(3)
    ]
    assert all(not rollout.links[0].shown for rollout in found)
    shown = {record.payload.source for rollout in found for record in rollout.links[1].shown}
    assert shown, "no member made a skill, so this shows nothing"
    for rollout in found:
        own = {step.action for step in rollout.links[0].trajectory.steps}
        assert all(any(each.payload.name in code for code in own) for each in rollout.links[1].shown)


async def test_with_one_library_all_go_on_with_the_functions_of_the_first_who_alone_is_paid_for_them() -> None:
    found = await rolled(Sampling(rollouts=3, libraries="one"), length=3)
    for chain_id in dict.fromkeys(each.chain_id for each in found):
        group = [each for each in found if each.chain_id == chain_id]
        assert len({tuple(record.payload.source for record in each.links[1].shown) for each in group}) == 1
        written = "".join(step.action for step in group[0].links[0].trajectory.steps)
        assert all(record.payload.definition in written for record in group[0].links[1].shown)
        assert not any(each.rewards[0]["skill"] for each in group[1:])
    assert any(each.rewards[0]["skill"] for each in found if each.member == 0), "nothing was used: this shows nothing"
    assert any(each.rewards[1]["skill"] for each in found if each.member), "nobody used what another wrote"


async def test_without_skills_nothing_is_shared_and_success_alone_is_paid() -> None:
    found = await rolled(Sampling(rollouts=2, skills=False))
    assert all(not link.shown for rollout in found for link in rollout.links)
    assert all(parts["skill"] == 0.0 for rollout in found for parts in rollout.rewards)


async def test_a_reply_without_code_ends_the_episode_and_costs_1() -> None:
    """Some members only talk in their first task; the next one they do as the others."""
    office = Office(OfficeConfig(deployment=3))
    drawn = chains(office.tasks("train"), 2, seed=0)[0]

    def speak(messages: Sequence[Message], params: SamplingParams) -> str:
        talks = drawn.tasks[0].instruction in messages[1].content and (params.seed or 0) % 2
        return "I will see to it." if talks else "```python\napps.task.done()\n```"

    for required in (True, False):
        acting = replace(ACTING, require_code=required, max_steps=4)
        policy = ScriptedPolicy(speak)
        found = await roll([ChainSpec(drawn, office)], policy, acting, Sampling(rollouts=6), iteration=0)
        firsts = [each.links[0].trajectory for each in found]
        ended = [each for each, first in zip(found, firsts, strict=True) if first.stop is StopReason.FORMAT]
        assert bool(ended) is required
        for each in ended:
            assert each.links[0].trajectory.steps[-1].error == NO_CODE
            assert each.rewards[0] == {"outcome": 0.0, "skill": 0.0, "format": -1.0}
            assert len(each.links) == 2, "the chain goes on"
        assert all("format" not in parts for each in found if each not in ended for parts in each.rewards)
        assert rollout_figures(found)["malformed"] == len(ended) / 12


async def test_with_nothing_counted_skills_are_shared_and_success_alone_is_paid() -> None:
    paid, unpaid = [await rolled(Sampling(rollouts=1, counting=how)) for how in ("strict", "none")]
    assert [each.used for each in paid] == [each.used for each in unpaid]
    assert any(parts["skill"] for rollout in paid for parts in rollout.rewards), "nothing was used: this shows nothing"
    assert not any(parts["skill"] for rollout in unpaid for parts in rollout.rewards)


def link(action: str, task: str, success: bool, shown: Sequence[Record[Skill]] = ()) -> Link:
    prelude = "\n".join(record.payload.definition for record in shown)
    outcome = Outcome(success=success, reward=float(success))
    steps = (Step(index=0, action=action),)
    return Link(
        Trajectory(task=Task(id=task, instruction=task), steps=steps, outcome=outcome, prelude=prelude), tuple(shown)
    )


def saved(source: str = SOURCE, task: str = "a") -> Record[Skill]:
    return Record[Skill](id="s", kind=Skill.kind, payload=Skill(source=source), provenance=Provenance(task_ids=(task,)))


def paid(action: str, success: bool = True, record: Record[Skill] | None = None) -> list[float]:
    links = [link(SOURCE + "paid('Ann', 3)", "a", True), link(action, "b", success, [record or saved()])]
    return [sum(parts.values()) for parts in rewarded(links, used(links, "strict"))]


def test_a_skill_that_was_made_and_used_is_paid_twice_where_both_tasks_succeed() -> None:
    assert paid("paid('Bob', 4)") == [2, 2]
    assert paid("paid('Bob', 4)", success=False) == [1, 0]
    assert paid("apps.payments.send(to='Bob', amount=4)") == [1, 1]


@pytest.mark.parametrize("recipe", [*RECIPES])
def test_the_recipe_sage_alone_asks_for_code(recipe: str) -> None:
    config = Config(train=TrainSection.model_validate(RECIPES[recipe]))
    office = Office(OfficeConfig(deployment=3))
    assert acting_of(config, office, "compact").require_code is (recipe == "sage")


def test_a_format_failure_earns_its_task_minus_1_and_nobody_else_for_it() -> None:
    links = [link(SOURCE + "paid('Ann', 3)", "a", True), link("paid('Bob', 4)", "b", True, [saved()])]
    links[1] = replace(links[1], trajectory=links[1].trajectory.model_copy(update={"stop": StopReason.FORMAT}))
    assert rewarded(links, used(links, "strict")) == (
        {"outcome": 1.0, "skill": 0.0},
        {"outcome": 0.0, "skill": 0.0, "format": -1.0},
    )


def test_a_name_for_nothing_is_claimed_by_the_papers_count_and_not_by_the_strict_one() -> None:
    """The count of names can be gamed: a skill that does nothing, called beside the work."""
    empty = saved('def paid() -> int:\n    """Do nothing."""\n    return 1\n')
    links = [link("x = 1", "a", True), link("paid()\napps.payments.send(to='Bob', amount=4)", "b", True, [empty])]
    assert used(links, "paper").tolist() == [[False, True], [False, False]]
    assert not used(links, "strict").any()


def test_a_function_defined_anew_is_no_use_by_either_count() -> None:
    links = [link(SOURCE, "a", True), link(SOURCE + "paid('Bob', 4)", "b", True, [saved()])]
    assert not used(links, "paper").any()
    other = SOURCE.replace("amount=amount", "amount=0")
    links = [link(SOURCE, "a", True), link(other + "paid('Bob', 4)", "b", True, [saved()])]
    assert not used(links, "strict").any()


def test_a_skill_of_the_base_is_nobodys_in_the_chain() -> None:
    links = [link("x = 1", "a", True), link("paid('Bob', 4)", "b", True, [saved(task="elsewhere")])]
    assert not used(links, "strict").any()


@pytest.mark.parametrize("length", [2, 3])
async def test_the_same_seed_gives_the_same_rollouts(length: int) -> None:
    first, second = (
        await rolled(Sampling(rollouts=2, seed=5), length),
        await rolled(Sampling(rollouts=2, seed=5), length),
    )
    assert [each.rewards for each in first] == [each.rewards for each in second]
    assert [[step.action for step in link.trajectory.steps] for each in first for link in each.links] == [
        [step.action for step in link.trajectory.steps] for each in second for link in each.links
    ]
