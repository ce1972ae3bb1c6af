"""Which replica a request goes to: by its beginning, within a bound of the load."""

from __future__ import annotations

from collections import Counter
from math import ceil

from hypothesis import given
from hypothesis import strategies as st

from policies.generations.replicas import ABOVE_MEAN, BEGINNING, bound, chosen, order

URLS = tuple(f"http://10.0.0.{at}:8000/v1" for at in range(5))
prompts = st.lists(st.integers(0, 50_000), min_size=1, max_size=BEGINNING + 20)


@given(prompts, st.lists(st.integers(0, 50_000), max_size=40))
def test_what_begins_alike_goes_to_one_server_while_none_is_loaded(beginning: list[int], more: list[int]) -> None:
    whole = (beginning * BEGINNING)[:BEGINNING]
    idle = [0] * len(URLS)
    assert chosen(URLS, idle, whole, "v1") == chosen(URLS, idle, whole + more, "v1")


@given(prompts, st.lists(st.integers(0, 64), min_size=5, max_size=5))
def test_none_gets_more_than_a_quarter_above_the_mean(prompt: list[int], loads: list[int]) -> None:
    at = chosen(URLS, loads, prompt, None)
    most = bound(loads)
    assert most <= max(min(loads) + 1, ABOVE_MEAN * (sum(loads) + 1) / len(URLS))
    assert loads[at] + 1 <= most
    first = order(URLS, prompt, None)
    assert all(loads[each] >= most for each in first[: first.index(at)]), "the first one that has room"


def test_beginnings_are_spread_and_a_server_that_goes_moves_its_own_alone() -> None:
    idle = [0] * len(URLS)
    first = [chosen(URLS, idle, [at, at + 1], "v1") for at in range(2000)]
    counts = Counter(first)
    assert min(counts.values()) > 320, counts
    rest = URLS[:-1]
    after = [chosen(rest, idle[:-1], [at, at + 1], "v1") for at in range(2000)]
    assert [new for old, new in zip(first, after, strict=True) if old != 4] == [old for old in first if old != 4]


def test_one_beginning_under_load_is_shared_out() -> None:
    loads = [0] * len(URLS)
    for _ in range(200):
        loads[chosen(URLS, loads, [1, 2, 3], "v1")] += 1
    assert max(loads) <= ceil(ABOVE_MEAN * 200 / len(URLS))
    assert min(loads) > 0
    assert loads[order(URLS, [1, 2, 3], "v1")[0]] == max(loads)


def test_one_that_has_a_request_gets_no_second_while_another_has_none() -> None:
    for loads in ([1, 0], [0, 1], [1, 1, 0]):
        assert chosen(URLS[: len(loads)], loads, [1, 2, 3], None) == loads.index(0)


def test_another_version_is_another_beginning() -> None:
    idle = [0] * len(URLS)
    moved = sum(chosen(URLS, idle, [at], "v1") != chosen(URLS, idle, [at], "v2") for at in range(200))
    assert moved > 100
