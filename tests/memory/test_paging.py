"""Pages of the journal: what is on each, in which order, and how many there are in all."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from memory import paging
from memory.errors import BadInput
from memory.paging import EpisodeLine, Wanted
from memory.records import DeltaOp, Injection, Op, Outcome, Status, Step, Task, Trajectory, UsageCounts
from memory.store import Store
from memory.trajectories import Usage

BOTH_ENGINES = True

Add = Callable[..., DeltaOp]
TEXTS = ("book a room early", "pay in cents", "book a table", "greet the clerk")


@pytest.fixture
def ids(store: Store, add: Add) -> list[str]:
    """Four records that were shown, helped and harmed in different numbers; the last one is quarantined."""
    ops = [add(text) for text in TEXTS[:3]] + [add(TEXTS[3], status=Status.CANDIDATE)]
    made = [str(result.record_id) for result in store.commit("default", ops, actor="t").results]
    counts = [(3, 1, 0), (5, 0, 2), (1, 4, 0), (0, 0, 0)]
    for record, (injected, helpful, harmful) in zip(made, counts, strict=True):
        usage = UsageCounts(injected=injected, helpful=helpful, harmful=harmful)
        store.commit("default", [DeltaOp(op=Op.TAG, target_id=record, usage=usage)], actor="t")
    store.commit("other", [add("book elsewhere")], actor="t")
    return made


@pytest.mark.parametrize(
    ("wanted", "places"),
    [
        (Wanted("default"), [3, 2, 1, 0]),
        (Wanted("default", order="oldest"), [0, 1, 2, 3]),
        (Wanted("default", order="shown"), [1, 0, 2, 3]),
        (Wanted("default", order="helpful"), [2, 0, 3, 1]),
        (Wanted("default", order="harmful"), [1, 3, 0, 2]),
        (Wanted("default", text="book"), [2, 0]),
        (Wanted("default", text="book ro"), [0]),
        (Wanted("default", text="boo room"), []),
        (Wanted("default", text="..."), []),
        (Wanted("default", statuses=("candidate",)), [3]),
        (Wanted("default", statuses=("provisional",), text="book a tab"), [2]),
        (Wanted("default", kinds=("fact",)), [3, 2, 1, 0]),
        (Wanted("default", kinds=("bullet",)), []),
    ],
)
def test_records_are_found_and_ordered(store: Store, ids: list[str], wanted: Wanted, places: list[int]) -> None:
    assert paging.records(store.journal, wanted) == ([ids[at] for at in places], len(places))


def test_a_page_has_its_part_and_the_number_of_all(store: Store, ids: list[str]) -> None:
    wanted = Wanted("default", order="oldest")
    assert paging.records(store.journal, wanted, offset=1, limit=2) == (ids[1:3], 4)
    assert paging.records(store.journal, wanted, offset=4) == ([], 4)
    assert paging.counts(store.journal, "default") == {"fact": {"provisional": 3, "candidate": 1}}
    store.forget(ids[0])
    assert paging.records(store.journal, wanted) == (ids[1:], 3)
    assert paging.counts(store.journal, "default")["fact"]["provisional"] == 2
    with pytest.raises(BadInput, match="got order 'best'; expected one of newest, oldest, shown, helpful, harmful"):
        paging.records(store.journal, Wanted("default", order="best"))  # type: ignore[arg-type]


def episode(task: str, *, success: bool | None = True, arm: str = "main", error: str = "") -> Trajectory:
    return Trajectory(
        task=Task(id=task, instruction=f"do {task}"),
        run_id="r1",
        arm=arm,
        steps=(Step(index=0, action="a"), Step(index=1, action="b")),
        injected=(Injection(record_id="x", version=1, label="l", rank=0),),
        outcome=None if success is None else Outcome(success=success, reward=float(success)),
        usage=Usage(prompt_tokens=30, completion_tokens=4, cached_tokens=5, calls=2, cost_usd=0.25),
        seconds=1.5,
        error=error or None,
    )


@pytest.fixture
def done(store: Store) -> list[Trajectory]:
    """Four episodes of a run."""
    made = [
        episode("t1"),
        episode("t2", success=False),
        episode("t3", success=None, error="the policy is gone"),
        episode("t1", arm="no_memory"),
    ]
    for each in made:
        store.add_trajectory(each)
    return made


def test_episodes_are_told_in_short_as_they_were_done(store: Store, done: list[Trajectory]) -> None:
    lines = paging.episodes(store.journal, "r1")
    assert lines[0] == EpisodeLine(done[0].id, "t1", "main", True, 2, 1, 34, 1.5, 0.25, "do t1", "")
    assert [line.id for line in lines] == [each.id for each in done]
    assert [(line.success, line.error) for line in lines[1:3]] == [(False, ""), (False, "the policy is gone")]
    assert paging.episodes(store.journal, ["r0", "r1"], offset=1, limit=2) == lines[1:3]
    assert paging.episodes(store.journal, "r0") == []
    assert paging.episode_count(store.journal) == 4


def test_what_a_run_used_is_summed(store: Store, done: list[Trajectory]) -> None:
    used = Usage(prompt_tokens=120, completion_tokens=16, cached_tokens=20, calls=8, cost_usd=1.0)
    assert paging.used(store.journal, "r1") == (4, used)
    assert paging.used(store.journal, "r0") == (0, Usage())
    assert paging.missing_episodes(store.journal, "r1") == 0
    store.db.execute("DELETE FROM trajectories WHERE id = ?", (done[1].id,))
    assert paging.missing_episodes(store.journal, "r1") == 1
    assert paging.missing_episodes(store.journal, "r0") == 0


def test_nothing_is_used_unless_something_is_said() -> None:
    assert Usage() == Usage(prompt_tokens=0, completion_tokens=0, cached_tokens=0, calls=0, cost_usd=0.0)


def test_calls_are_summed_by_role(store: Store) -> None:
    usage = {"prompt_tokens": 10, "completion_tokens": 2, "calls": 1}
    for key, role in (("a", "actor"), ("b", "actor"), ("c", "judge")):
        store.put_reply(key, {"role": role, "reply": {"usage": usage}}, run_id="r1")
    store.put_reply("d", {"reply": {"usage": usage}}, run_id="r1")
    store.put_reply("e", {"role": "judge", "reply": {"usage": usage}}, run_id="r2")
    found = paging.used_by_role(store.journal, "r1")
    assert {role: (each.prompt_tokens, each.calls) for role, each in found.items()} == {
        "": (10, 1),
        "actor": (20, 2),
        "judge": (10, 1),
    }


def test_snapshots_come_latest_first(store: Store, ids: list[str]) -> None:
    first = store.snapshot("default")
    store.commit("default", [DeltaOp(op=Op.REMOVE, target_id=ids[0])], actor="t")
    second = store.snapshot("default")
    found, total = paging.snapshots(store.journal, "default")
    assert total == 2
    assert [(each["name"], each["records"]) for each in found] == [
        (f"{second.id}@{second.position}", 2),
        (f"{first.id}@{first.position}", 3),
    ]
    assert paging.snapshots(store.journal, "default", offset=1, limit=1) == (found[1:], 2)
    assert paging.snapshots(store.journal, "other") == ([], 0)


def test_what_an_episode_taught_is_found_until_it_is_forgotten(store: Store, add: Add) -> None:
    made = episode("t1")
    store.add_trajectory(made)
    provenance = {"task_ids": ("t1",), "trajectory_ids": (made.id,)}
    op = add("a lesson")
    taught = op.model_copy(update={"provenance": op.provenance.model_copy(update=provenance)})
    results = store.commit("default", [taught, add("of the same task", "t1")], actor="t").results
    lesson = str(results[0].record_id)
    assert paging.learned_from(store.journal, made.id, "t1") == [lesson]
    assert paging.learned_from(store.journal, made.id, "t2") == []
    store.forget(lesson)
    assert paging.learned_from(store.journal, made.id, "t1") == []


def test_the_latest_events_of_some_types_are_found(store: Store, ids: list[str]) -> None:
    adds = [event.seq for event in store.events(type="knowledge.add", namespace="default")]
    assert paging.latest(store.journal, "default", ("knowledge.add",), limit=2) == adds[:-3:-1]
    assert len(paging.latest(store.journal, "default", (), limit=100)) > len(adds)
    assert paging.latest(store.journal, "other", ("knowledge.tag",), limit=9) == []
