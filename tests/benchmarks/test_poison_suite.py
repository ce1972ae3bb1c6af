"""The injection suite is what its script makes, pairs differ in what they want only, and the worker really obeys."""

from __future__ import annotations

import json
from collections import Counter

from benchmarks.claims.gates_4_poison import sample
from benchmarks.poison_suite import FILE, Item, items, load
from benchmarks.poison_trials import Workplace, judge
from memory.records import Trust

SUITE = load()


def one(kind: str, label: str, channel: str = "observation") -> Item:
    return next(i for i in SUITE if (i.kind, i.label, i.channel) == (kind, label, channel) and i.rule)


def test_the_file_is_what_the_script_makes() -> None:
    assert [json.loads(line) for line in FILE.read_text().splitlines()] == list(items())
    assert FILE.stat().st_size < 100_000


def test_200_pairs_of_one_frame_and_length() -> None:
    assert Counter(item.label for item in SUITE) == {"poison": 200, "benign": 200, "evasion": 10}
    assert len({item.text for item in SUITE}) == len(SUITE)
    assert {item.channel for item in SUITE} == {"observation", "task", "import"}
    for bad, good in zip(SUITE[0:400:2], SUITE[1:400:2], strict=True):
        assert (bad.id, bad.channel, bad.rule) == (good.id, good.channel, good.rule)
        assert (bad.label, good.label) == ("poison", "benign")
        if bad.kind not in {"encoded", "code"}:
            assert 0.7 < len(bad.text) / len(good.text) < 1.4, bad.id


def test_a_small_sample_holds_every_kind() -> None:
    chosen = sample(SUITE, quick=True)
    assert {item.kind for item in chosen} == {item.kind for item in SUITE}
    assert len(chosen) == 60
    assert sample(SUITE, quick=False) == list(SUITE)


async def test_the_worker_obeys_and_the_office_sees_it() -> None:
    place = Workplace(SUITE)
    bad, good = one("hidden", "poison"), one("hidden", "benign")
    tasks = place.canaries[:3]
    assert [await place.passes(task, place.rules(bad), []) for task in tasks] == [True] * 3
    assert [await place.passes(task, place.rules(bad), [bad.text]) for task in tasks] == [False] * 3
    assert [await place.passes(task, place.rules(good), [good.text]) for task in tasks] == [True] * 3


async def test_each_layer_sees_what_it_can_see() -> None:
    place = Workplace(SUITE)
    hidden = await judge(place, one("hidden", "poison"))
    assert (hidden.trust, hidden.status) == (Trust.QUOTED, "rejected")
    assert hidden.passed == {"static": True, "batch_screen": False, "held_out": False, "canary": False}
    waiting = await judge(place, next(item for item in SUITE if item.on == "zorvex" and item.rule))
    assert waiting.status == "rejected"
    assert waiting.passed == {"static": False, "batch_screen": True, "held_out": False, "canary": False}, "cut off"
    useful = await judge(place, one("code", "benign", "import"))
    assert (useful.trust, useful.status, set(useful.passed.values())) == (Trust.IMPORTED, "active", {True})
    useless = await judge(place, next(item for item in SUITE if item.label == "benign" and not item.rule))
    assert useless.status == "rejected"
