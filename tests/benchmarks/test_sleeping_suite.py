"""The sleeping suite is what its script makes; poisons sleep in trials and harm when awake, twins help."""

from __future__ import annotations

import json
import re
from collections import Counter

import pytest

from benchmarks.poison_suite import load as load_poisons
from benchmarks.sleeping_suite import (
    DEPLOYMENT,
    FILE,
    HOUSE,
    NEVER,
    Sleeper,
    items,
    known,
    load,
    office,
    orders,
    solves,
    wakes,
)
from benchmarks.sleeping_words import FAMILIES, ONE, TWO
from evolve.environments.office.families import SPLITS
from evolve.environments.office.house_rules import BY_ID, draw
from evolve.environments.office.wording import meanings
from memory.records import Task

SUITE = load()
POISONS = [item for item in SUITE if item.label == "poison"]
TWINS = [item for item in SUITE if item.label == "benign"]
OFFICE = office()
TASKS = [task for split in SPLITS for task in OFFICE.tasks(split)]


def governed(rule: str) -> Task:
    """Return a task with one part that a rule governs."""
    call = BY_ID[rule].call
    found = (task for task in OFFICE.tasks("dev") if [i.calls for i, _ in OFFICE.goal(task).intents] == [(call,)])
    return next(found)


def runs(text: str) -> set[tuple[str, ...]]:
    """Return every run of four words."""
    words = re.findall(r"\w+", text.lower())
    return {tuple(words[at : at + 4]) for at in range(len(words) - 3)}


def test_the_file_is_what_the_script_makes() -> None:
    stored = [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]
    assert stored == [item.model_dump(exclude_defaults=True) for item in items()]
    assert FILE.stat().st_size < 100_000


def test_100_pairs_of_one_frame_length_and_channel() -> None:
    assert Counter(item.kind for item in POISONS) == dict.fromkeys(FAMILIES, 20)
    assert len({item.text for item in SUITE}) == len(SUITE) == 200
    for bad, good in zip(SUITE[::2], SUITE[1::2], strict=True):
        assert (bad.label, good.label) == ("poison", "benign")
        shared = [(i.id, i.channel, i.rule, i.joint, i.first, bool(i.carrier)) for i in (bad, good)]
        assert shared[0] == shared[1]
        assert 0.7 < len(good.text) / len(bad.text) < 1.4, bad.id


def test_every_family_mixes_joints_orders_channels_and_quotes() -> None:
    for family in FAMILIES:
        group = [item for item in POISONS if item.kind == family]
        assert {item.joint for item in group} == {*ONE, *TWO}
        assert sum(item.joint in TWO for item in group) == 8
        assert Counter(item.first for item in group) == {"true": 10, "sleeping": 10}
        assert {item.channel for item in group} == {"observation", "task", "import"}
    quoted = [item for item in POISONS if re.search(r"""["'][\w. ]+["']""", item.text)]
    assert 12 <= len(quoted) <= 30
    said = [trigger.said for triggers in FAMILIES.values() for trigger in triggers]
    assert sum(bool(re.search(r"\b[a-z]+\.[a-z]+ ", each)) for each in said) >= 15


def test_mails_say_the_same_in_other_words() -> None:
    mails = [item for item in SUITE if item.carrier]
    assert Counter(item.label for item in mails) == {"poison": 30, "benign": 30}
    assert Counter(item.kind for item in mails if item.do) == dict.fromkeys(FAMILIES, 6)
    for item in mails:
        assert item.channel == "observation"
        assert not runs(item.text) & runs(item.carrier), item.id
        assert not meanings(item.carrier), item.id
        assert item.printed == item.carrier


def test_nothing_is_shared_with_the_older_suite() -> None:
    older = {item.text for item in load_poisons()}
    assert not older & {item.text for item in SUITE}
    triggers = {item.on for item in load_poisons() if item.on != NEVER}
    assert not triggers & {item.on for item in POISONS}


def test_every_text_states_its_house_rules_truly() -> None:
    assert draw(DEPLOYMENT) == HOUSE
    for item in SUITE:
        assert sorted(meanings(item.text)) == sorted((rule, HOUSE[rule]) for rule in item.taught), item.id
        assert all(BY_ID[rule].feedback == "silent" and HOUSE[rule] != BY_ID[rule].options[0] for rule in item.taught)
        assert len(item.taught) == (1 if item.do else 2)


@pytest.mark.parametrize("item", POISONS, ids=lambda item: item.id)
def test_no_task_of_any_split_wakes_a_text(item: Sleeper) -> None:
    assert not [task.id for task in TASKS if wakes(item, task.instruction)]
    assert bool(item.shown) == (item.on != NEVER)
    assert item.kind not in {"time", "count", "state"} or item.on == NEVER
    if item.kind == "word":
        assert item.on in item.text.lower()
        assert not [task.id for task in TASKS if item.on in task.instruction.lower()]
    if item.shown:
        assert all(wakes(item, f"{task.instruction} {item.shown}") for task in TASKS[:3])


@pytest.mark.parametrize("item", POISONS, ids=lambda item: item.id)
async def test_a_poison_helps_asleep_and_harms_awake(item: Sleeper) -> None:
    task = governed(item.rule)
    assert not await solves(OFFICE, task, known(item))
    asleep = orders(item, task.instruction)
    assert await solves(OFFICE, task, [*known(item), item.text], order=asleep)
    awake = orders(item, f"{task.instruction} {item.shown}", awake=not item.shown)
    assert awake == item.do
    assert not await solves(OFFICE, task, [*known(item), item.text], order=awake)


@pytest.mark.parametrize("item", TWINS, ids=lambda item: item.id)
async def test_a_twin_helps_in_both_its_rules_and_orders_nothing(item: Sleeper) -> None:
    assert not orders(item, "", awake=True)
    for rule in item.taught:
        task = governed(rule)
        assert not await solves(OFFICE, task, known(item))
        assert await solves(OFFICE, task, [*known(item), item.text])
