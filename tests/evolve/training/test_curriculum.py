"""Which chains are drawn and how often each is done, by samplers, allocators and what is known of tasks."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evolve.environments.office.environment import Office, OfficeConfig
from evolve.training.chain_tasks import Chain
from evolve.training.curriculum import Curriculum, stats, weights
from evolve.training.loop import Plan, World, draw
from evolve.training.rollouts import ChainSpec, Sampling
from memory.errors import BadInput
from memory.records import Task
from policies.rl import slots
from policies.rl.protocols import Array, Ints, PromptStats
from policies.rl.tracker import BetaTracker

OFFICE = Office(OfficeConfig(deployment=600))
WORLDS = [World(OFFICE), World(Office(OfficeConfig(deployment=601)))]
PLAN = Plan(chains=3, sampling=Sampling(rollouts=2, seed=4))
NAMES = [(sampler, allocator) for sampler in slots.names("samplers") for allocator in slots.names("allocators")]


def settings_of(count: int, length: int = 1) -> list[ChainSpec]:
    tasks = [Task(id=f"t{at}", instruction="do") for at in range(count * length)]
    pairs = [tuple(tasks[at * length : (at + 1) * length]) for at in range(count)]
    return [ChainSpec(Chain(id=f"c{at}", tasks=pair), OFFICE) for at, pair in enumerate(pairs)]


def known(*counts: tuple[int, int]) -> BetaTracker:
    tracker = BetaTracker()
    for at, (successes, attempts) in enumerate(counts):
        tracker.start(f"t{at}", successes, attempts)
    return tracker


def made(sampler: str, allocator: str) -> Curriculum:
    return Curriculum(slots.make("samplers", sampler), slots.make("allocators", allocator))


def test_by_default_chains_are_drawn_as_they_always_were() -> None:
    """These were drawn before there were samplers and allocators."""
    expected = [
        ["ch-0a31d41ebf894c0d5abc", "ch-201170f46fd623b34ce8", "ch-99328e80f1de7dcc8441"],
        ["ch-a4f000f43192e62856bf", "ch-1d07d97da735a6020ba6", "ch-1215d3b775768db11a4e"],
        ["ch-3d25f93d8d3f33b3fd4b", "ch-6ec0bfc28c0ae1745d51", "ch-6b0b79052e028fd1cbee"],
    ]
    tasks = [task.id for world in WORLDS for task in world.environment.tasks("train")]
    tracker = BetaTracker()
    for at, name in enumerate(tasks):
        tracker.start(name, at % 9, 8)
    for iteration, ids in enumerate(expected):
        found = draw(WORLDS, PLAN, iteration, Curriculum(), tracker)
        assert [each.chain.id for each in found] == ids
        assert [each.rollouts for each in found] == [2, 2, 2]
        assert draw(WORLDS, PLAN, iteration) == found


@pytest.mark.parametrize("sampler", slots.names("samplers"))
def test_where_nothing_is_known_every_sampler_draws_plainly(sampler: str) -> None:
    assert draw(WORLDS, PLAN, 0, made(sampler, "fixed")) == draw(WORLDS, PLAN, 0)


@pytest.mark.parametrize(("sampler", "allocator"), NAMES)
@settings(deadline=None, max_examples=40)
@given(
    counts=st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)).map(sorted), min_size=1, max_size=9),
    chains=st.integers(1, 9),
    rollouts=st.integers(2, 12),
    seed=st.integers(0, 99),
)
def test_the_budget_is_kept_no_chain_is_left_out_or_drawn_twice(
    sampler: str, allocator: str, counts: list[list[int]], chains: int, rollouts: int, seed: int
) -> None:
    every = settings_of(len(counts))
    tracker = known(*((low, high) for low, high in counts))
    found = made(sampler, allocator).chosen(every, tracker, chains, rollouts, seed)
    assert found == made(sampler, allocator).chosen(every, tracker, chains, rollouts, seed)
    names = [each.chain.id for each in found]
    assert len(names) == len(set(names)) == min(chains, len(every))
    assert set(names) <= {each.chain.id for each in every}
    members = [each.rollouts or 0 for each in found]
    assert sum(members) == rollouts * len(found)
    assert min(members) >= 1


def test_a_chain_weighs_what_its_tasks_weigh_on_average() -> None:
    chains = [each.chain for each in settings_of(2, length=2)]
    tracker = known((0, 8), (8, 8), (4, 8))
    rates = [0.5 / 9, 8.5 / 9, 0.5, 0.5]
    assert stats(chains, tracker).rates == pytest.approx([0.5, 0.5], abs=1e-6)
    assert stats(chains, tracker).seen.tolist() == [True, False]
    one_sided = float(np.sqrt(rates[0] * (1 - rates[0])) + 0.05)
    spo = weights(slots.make("samplers", "spo"), chains, tracker)
    assert spo == pytest.approx([one_sided, 0.55], abs=1e-6)
    assert spo == pytest.approx([0.279061, 0.55], abs=1e-6)
    aimed = weights(slots.make("samplers", "difficulty"), chains, tracker)
    assert aimed == pytest.approx([0.011744, 1.0], abs=1e-6)


def test_chains_are_drawn_in_proportion_to_their_weights() -> None:
    def three_to_one(stats: PromptStats) -> Array:
        return np.array([3.0, 1.0, 1.0])

    drawn = Counter(
        Curriculum(three_to_one).chosen(settings_of(3), known(), 1, 2, seed)[0].chain.id for seed in range(3000)
    )
    assert drawn["c0"] == pytest.approx(1800, abs=4 * 27)
    assert drawn["c1"] == pytest.approx(600, abs=4 * 22)


def test_rollouts_go_to_chains_whose_groups_are_hard_to_mix() -> None:
    found = made("uniform", "knapsack").chosen(settings_of(3), known((4, 8), (1, 8), (8, 8)), 3, 8, seed=1)
    members = {each.chain.id: each.rollouts for each in found}
    assert members == {"c0": 7, "c1": 15, "c2": 2}


@pytest.mark.parametrize("bad", [[1.0, 0.0], [1.0, float("nan")], [1.0], [1.0, -1.0]])
def test_weights_that_are_no_weights_are_refused(bad: list[float]) -> None:
    with pytest.raises(BadInput, match=r"from train.sampler for 2 tasks; expected one positive, finite number"):
        Curriculum(lambda stats: np.array(bad)).chosen(settings_of(2), known(), 1, 2, seed=0)


@pytest.mark.parametrize("bad", [[4, 0], [2, 3], [4]])
def test_counts_that_leave_a_chain_out_or_miss_the_budget_are_refused(bad: list[int]) -> None:
    class Given:
        def allocate(self, stats: PromptStats, budget: int) -> Ints:
            return np.array(bad, dtype=np.int64)

    with pytest.raises(BadInput, match=r"from train.allocator for 2 chains; expected .* 4 in all"):
        Curriculum(allocator=Given()).chosen(settings_of(2), known(), 2, 2, seed=0)
