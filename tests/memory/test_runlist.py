"""Lists of runs: what is one, which fit a filter, and what their episodes came to."""

from __future__ import annotations

from typing import Any

import pytest

from memory import runlist
from memory.records import Event, Outcome, Task, Trajectory
from memory.runlist import ArmTotals, RunFilter
from memory.store import Store
from memory.trajectories import Usage

BOTH_ENGINES = True


def episode(run: str, task: str, reward: float | None = 1.0, *, arm: str = "main", policy: str = "") -> Trajectory:
    return Trajectory(
        task=Task(id=task, instruction="i"),
        run_id=run,
        arm=arm,
        policy=policy,
        outcome=None if reward is None else Outcome(success=reward == 1, reward=reward),
        usage=Usage(prompt_tokens=10, completion_tokens=2, calls=1, cost_usd=0.5),
        seconds=2.0,
    )


def record(mode: str = "online", **more: Any) -> dict[str, Any]:
    return {"mode": mode, "status": "done", "name": "", "tags": [], **more}


@pytest.fixture
def busy(store: Store) -> Store:
    """A journal with runs of every kind, the oldest first."""
    store.put_run("r-learn", record(name="First Office", tags=["a", "b"], snapshot_id="s1@1"))
    store.put_run("r-eval", record("frozen", name="exam", tags=["b"], snapshot_id="s2@2"))
    store.append(Event(type=runlist.BEGUN, run_id="r-eval", subject="ev-1"))
    store.put_run("r-quarantine", record("quarantine"))
    store.put_run("r-agent", record(kind="agent", name="mine"))
    store.append(Event(type=runlist.OPENED, run_id="mcp-1"))
    for run in ("r-learn", "r-learn/gates", "ev-1", "ev-old", "at-old", "loose", "mcp-1", ""):
        store.add_trajectory(episode(run, "t1"))
    return store


def listed(store: Store, **wanted: Any) -> list[tuple[str, str]]:
    rows, total = runlist.runs(store.journal, RunFilter(**wanted), limit=-1)
    assert total == len(rows)
    return [(row.run_id, row.kind) for row in rows]


EVERY = [
    ("loose", "session"),
    ("at-old", "eval"),
    ("ev-old", "eval"),
    ("mcp-1", "mcp"),
    ("r-agent", "agent"),
    ("r-quarantine", "quarantine"),
    ("r-eval", "eval"),
    ("r-learn", "learn"),
]


def test_what_has_a_record_or_episodes_of_its_own_is_a_run(busy: Store) -> None:
    assert listed(busy) == EVERY
    rows, total = runlist.runs(busy.journal, offset=6, limit=1)
    assert (total, [row.run_id for row in rows]) == (8, ["r-eval"])
    assert runlist.runs(busy.journal, offset=7, limit=-1)[0][0].record == busy.get_run("r-learn")
    assert {row.run_id: row.record for row in runlist.runs(busy.journal)[0]}["loose"] is None


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({"kinds": ("eval", "mcp")}, ["at-old", "ev-old", "mcp-1", "r-eval"]),
        ({"tag": "b"}, ["r-eval", "r-learn"]),
        ({"tag": "c"}, []),
        ({"name": "OFFICE"}, ["r-learn"]),
        ({"run_ids": ("r-agent", "loose", "nothing")}, ["loose", "r-agent"]),
        ({"name": "e", "tag": "b", "kinds": ("learn",)}, ["r-learn"]),
        ({"since": "9999"}, []),
        ({"since": "2000"}, [run for run, _ in EVERY]),
        ({"until": "2000"}, []),
        ({"until": "9998"}, [run for run, _ in EVERY]),
    ],
)
def test_a_filter_leaves_what_fits_all_of_it(busy: Store, wanted: dict[str, Any], found: list[str]) -> None:
    assert [run for run, _ in listed(busy, **wanted)] == found


def test_times_bound_a_list_at_both_ends(busy: Store) -> None:
    rows = runlist.runs(busy.journal, limit=-1)[0]
    started = {row.run_id: row.started for row in rows}
    assert [run for run, _ in listed(busy, since=started["loose"])] == ["loose"]
    assert [run for run, _ in listed(busy, until=started["r-learn"])] == ["r-learn"]
    assert len(listed(busy, until=started["r-learn"][:10])) == 8, "a day ends when it is over"


def test_evaluations_belong_to_the_run_that_made_them(busy: Store) -> None:
    busy.append(Event(type="attempts", run_id="r-eval", subject="at-1"))
    busy.append(Event(type="evaluation", run_id="r-eval", subject="ev-1"))
    assert runlist.evaluations(busy.journal, ["r-eval", "r-learn"]) == [("r-eval", "ev-1"), ("r-eval", "at-1")]
    assert runlist.evaluations(busy.journal, ["r-learn"]) == []
    assert (runlist.evaluated_by(busy.journal, "at-1"), runlist.evaluated_by(busy.journal, "ev-old")) == ("r-eval", "")


def test_totals_count_what_was_graded_and_sum_what_was_used(store: Store) -> None:
    for task, reward in (("t1", 1.0), ("t2", 0.25), ("t3", None)):
        store.add_trajectory(episode("r", task, reward))
    store.add_trajectory(episode("r", "t1", 0.0, arm="no_memory"))
    assert runlist.totals(store.journal, [("r", "r")]) == {
        ("r", "main"): ArmTotals(3, 3, 2, 1, 1.25, 36, 1.5, 6.0),
        ("r", "no_memory"): ArmTotals(1, 1, 1, 0, 0.0, 12, 0.5, 2.0),
    }


def test_of_several_passes_the_last_one_counts_where_that_is_asked_for(store: Store) -> None:
    for task, reward in (("t1", 0.0), ("t2", 1.0), ("t1", 1.0)):
        store.add_trajectory(episode("r", task, reward))
    every = runlist.totals(store.journal, [("r", "r")])["r", "main"]
    last = runlist.totals(store.journal, [("r", "r")], last_pass=["r"])["r", "main"]
    assert (every.episodes, every.tasks, every.solved, every.tokens) == (3, 3, 2, 36)
    assert (last.episodes, last.tasks, last.solved, last.tokens) == (3, 2, 2, 36)


def test_an_evaluation_s_episodes_count_for_its_run(busy: Store) -> None:
    found = runlist.totals(busy.journal, [("r-eval", "r-eval"), ("r-eval", "ev-1")])
    assert {key: each.episodes for key, each in found.items()} == {("r-eval", "main"): 1}


def test_what_happened_in_runs_is_counted_and_dated(busy: Store) -> None:
    busy.append(Event(type="note", run_id="r-learn"))
    busy.append(Event(type="note", run_id="r-learn"))
    busy.append(Event(type="remark", run_id="r-eval"))
    both = runlist.changes(busy.journal, ["r-learn", "r-eval", "r-agent"], ["note", "remark"])
    assert both == {"r-learn": 2, "r-eval": 1}
    assert runlist.changes(busy.journal, ["r-learn", "r-eval"], ["remark"]) == {"r-eval": 1}
    last = busy.events(type="remark")[0]
    assert runlist.last_sign(busy.journal, "r-eval") == runlist.moment(busy.journal, last.seq)
    assert runlist.last_sign(busy.journal, "nothing") == ""


def test_policies_that_acted_are_named_once(store: Store) -> None:
    for run, policy in (("a", "one"), ("a", "two"), ("a", "one"), ("b", ""), ("c", "one")):
        store.add_trajectory(episode(run, "t", policy=policy))
    found = runlist.acting(store.journal, ["a", "b"])
    assert {run: sorted(names.split(",")) for run, names in found.items()} == {"a": ["one", "two"]}


def test_runs_that_learned_and_their_tags_are_listed(busy: Store) -> None:
    assert [(run, snapshot) for run, snapshot, _ in runlist.ended_at(busy.journal)] == [("r-learn", "s1@1")]
    assert runlist.tags(busy.journal) == ["a", "b"]
