"""Trajectories, reflections, evaluations, replies and runs come back as they were stored."""

from __future__ import annotations

from math import inf, isnan, nan

import pytest

from memory.errors import BadInput
from memory.paging import episodes, used_by_role
from memory.records import EvalRun, Event, Insight, Outcome, Reflection, Step, Task, Trajectory
from memory.runlist import runs
from memory.store import Store
from memory.trajectories import Usage
from policies.protocols import Reply

BOTH_ENGINES = True


def episode(task_id: str = "t1", run_id: str = "run-1", **fields: object) -> Trajectory:
    steps = (Step(index=0, action="print(1)", observation="1"),)
    task = Task(id=task_id, instruction="say one")
    return Trajectory.model_validate(
        {"task": task, "steps": steps, "run_id": run_id, "outcome": Outcome(success=True, reward=1.0), **fields}
    )


def test_trajectories_come_back_and_are_found(store: Store) -> None:
    first, second, control = episode(), episode("t2"), episode("t1", arm="no_memory")
    for trajectory in (first, second, control):
        store.add_trajectory(trajectory)
    assert store.trajectory(first.id) == first
    assert store.trajectory("nothing") is None
    assert store.trajectories(run_id="run-1") == (first, second, control)
    assert store.trajectories(task_id="t1", arm="main") == (first,)


def test_storing_an_episode_again_changes_nothing(store: Store) -> None:
    trajectory = episode()
    store.add_trajectory(trajectory)
    store.add_trajectory(trajectory.model_copy(update={"seconds": 9.0}))
    assert store.trajectories() == (trajectory,)
    assert len(store.events(type="trajectory")) == 1


def test_reflections_belong_to_the_run_of_their_trajectory(store: Store) -> None:
    trajectory = episode()
    store.add_trajectory(trajectory)
    parsed = Reflection(trajectory_id=trajectory.id, task_id="t1", insights=(Insight(content="page from 1"),))
    raw = Reflection(trajectory_id=trajectory.id, task_id="t1", raw="{broken", parsed=False)
    store.add_reflection(parsed)
    store.add_reflection(raw)
    assert store.reflections(run_id="run-1") == (parsed, raw)
    assert store.reflections(parsed=False) == (raw,)


def test_evaluations_come_back_with_missing_results(store: Store) -> None:
    run = EvalRun(
        snapshot_id=None, policy="p", policy_version="1", seed=3, config_hash="c", split="dev", passed={"a": None}
    )
    store.add_eval(run)
    assert store.evals() == (run,)


def test_the_first_reply_under_a_key_stays(store: Store) -> None:
    reply = {"text": "hello", "token_ids": [1, 2], "logprobs": [-0.1, -0.2], "usage": {"calls": 1}}
    assert store.put_reply("k", reply) == reply
    assert store.put_reply("k", {"text": "other"}) == reply
    assert store.get_reply("k") == reply
    assert store.get_reply("unknown") is None


def test_a_reply_of_unknown_log_probabilities_comes_back_with_them(store: Store) -> None:
    reply = Reply(text="said NaN", logprobs=(nan, -1.0, -inf), token_ids=(1, 2, 3), usage=Usage(calls=2))
    store.put_reply("k", {"reply": reply.model_dump(mode="json"), "role": "act"}, run_id="r")
    assert used_by_role(store.journal, "r") == {"act": reply.usage}
    told = Reply.model_validate((store.get_reply("k") or {})["reply"])
    assert told.logprobs is not None
    assert [isnan(each) for each in told.logprobs] == [True, False, True]
    assert (told.text, told.logprobs[1], told.token_ids) == (reply.text, -1.0, reply.token_ids)


def test_what_is_no_number_is_stored_as_none_and_every_query_reads_it(store: Store) -> None:
    store.put_run("r", {"mode": "online", "tags": [], "curve": [inf, nan, 0.5]})
    assert [run.record for run in runs(store.journal)[0]] == [
        {"mode": "online", "tags": [], "curve": [None, None, 0.5]}
    ]
    task = Task(id="t1", instruction="i", metadata={"x": -inf, "Infinity": 1.5})
    store.add_trajectory(Trajectory(id="e1", run_id="r", task=task))
    assert [each.task_id for each in episodes(store.journal, "r")] == ["t1"]
    assert store.append(Event(type="note", data={"a": [nan]})).data == {"a": [None]}


def test_a_run_shows_its_latest_state_and_keeps_the_earlier_ones_in_the_journal(store: Store) -> None:
    store.put_run("a", {"state": "running"})
    store.put_run("b", {"state": "running"})
    store.put_run("a", {"state": "done"})
    assert store.get_run("a") == {"state": "done"}
    assert [run["run_id"] for run in store.runs()] == ["a", "b"]
    assert len(store.events(type="run", subject="a")) == 2
    with pytest.raises(BadInput, match="run id"):
        store.put_run("", {})


def test_events_of_ones_own_are_journalled_in_order(store: Store) -> None:
    first = store.append(Event(type="gate.verdict", run_id="r", subject="op-1", data={"p": 0.5}))
    second = store.append(Event(type="gate.verdict", run_id="s"))
    assert second.seq > first.seq
    assert store.events(type="gate.verdict") == [first, second]
    assert store.events(after=first.seq) == [second]
    assert store.events(run_id="r", limit=1)[0].data == {"p": 0.5}


@pytest.mark.parametrize("name", ["knowledge.add", "trajectory", "snapshot", "forgotten", "knowledge.whatever", ""])
def test_the_stores_own_event_types_cannot_be_forged(store: Store, name: str) -> None:
    with pytest.raises(BadInput, match="own"):
        store.append(Event(type=name, subject="x", data={"version": 1}))


def test_the_journal_is_append_only_even_for_sql(store: Store) -> None:
    store.append(Event(type="note"))
    for statement in ("UPDATE events SET type = 'x'", "DELETE FROM events"):
        with pytest.raises(Exception, match="append-only"):
            store.db.execute(statement)


def test_text_that_cannot_be_stored_as_it_is_does_not_crash(store: Store) -> None:
    trajectory = episode(error="broken \ud800 surrogate and \x00 nul")
    store.add_trajectory(trajectory)
    found = store.trajectory(trajectory.id)
    assert found is not None
    assert found.error == "broken ? surrogate and � nul"


def test_events_are_read_from_any_place_and_as_many_as_asked(store: Store) -> None:
    written = [store.append(Event(type="note", subject=str(at), data={"at": at})) for at in range(5)]
    seqs = [event.seq for event in written]
    assert seqs == list(range(seqs[0], seqs[0] + 5))
    assert store.events(type="note") == written
    assert store.events(type="note", after=seqs[1]) == written[2:]
    assert store.events(type="note", after=seqs[1] - 1, limit=2) == written[1:3]
    assert store.events(type="note", limit=0) == []
    assert store.events(subject="3") == [written[3]]
    assert (store.count_events(type="note", namespace=""), store.count_events(type="note", namespace="x")) == (5, 0)
    assert store.event_data(type="note", namespace="", key="at", value=3) == [{"at": 3}]
    assert written[0].data == {"at": 0}
    assert store.append(Event(type="bare")).data == {}


def test_an_unnamed_run_is_refused_and_a_redacted_reply_loses_its_tokens(store: Store) -> None:
    with pytest.raises(BadInput):
        store.put_run("", {"a": 1})
    assert store.runs() == []
    kept = store.put_reply("k", {"text": "password = 'abcdefg1'", "token_ids": [1], "logprobs": [0.1], "n": 2})
    assert kept == {"text": "password = '[REDACTED:assigned-secret]'", "token_ids": None, "logprobs": None, "n": 2}
    assert "prompt_token_ids" not in kept
    said = {"reply": {"text": "password = 'abcdefg1'", "token_ids": [1], "prompt_token_ids": [2]}, "sha256": "x"}
    kept = store.put_reply("as policies keep it", said)["reply"]
    assert (kept["token_ids"], kept["prompt_token_ids"]) == (None, None)
    fine = {"reply": {"text": "fine", "token_ids": [1]}}
    assert store.put_reply("fine", fine) == fine
