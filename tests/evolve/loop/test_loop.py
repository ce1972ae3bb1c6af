"""The loop learns, and what it learns does not depend on speed, order of completion, crashes or watchers.

L1  later tasks go better than earlier ones, and than the no-memory control
L2  concurrency 1 and 8 give the same knowledge, episodes and credit
L3  a second run starts at the learned level
L4  a killed run that is resumed ends where an uninterrupted one does, and repeats no journalled call
L5  a budget stops a run cleanly and no call is cut off; resumed with more, it ends the same
L6  a broken observer changes nothing
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from evolve.config.model import Config, MemorySection
from evolve.loop.assembly import open_store
from evolve.loop.runs import load_run, spent, started_with
from evolve.loop.session import Parts, RunResult, aresume, arun
from evolve.progress import Learned, Notice, Progress, RunFinished, RunStarted, TaskDone
from memory.store import Store
from policies.errors import PolicyRefused, PolicyUnavailable
from policies.scripted import ScriptedPolicy
from tests.evolve.toy_doors import COLORS, Doors, doors_config, doors_policy, password, replies

KILLS = 3


class Watcher:
    """Keeps every event."""

    def __init__(self) -> None:
        self.events: list[Progress] = []

    def notify(self, event: Progress) -> None:
        self.events.append(event)

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


async def go(config: Config, n: int = 20, **more: Any) -> RunResult:
    """Run the doors."""
    return await arun(config, parts=Parts(policy=doors_policy(), environment=Doors(n)), **more)


def outcome(store: Store, run_id: str) -> dict[str, Any]:
    """Return everything a run decided, without what only names or times it."""
    numbers = {record.id: record.number for record in store.records("default")}
    return {
        "episodes": sorted(
            (
                t.task.id,
                t.arm,
                t.success,
                t.seed,
                [(step.action, step.observation) for step in t.steps],
                [(numbers[i.record_id], i.version, i.rank, i.scores, i.core) for i in t.injected],
            )
            for t in store.trajectories(run_id=run_id)
        ),
        "knowledge": [
            (r.number, r.payload.text(), r.status, r.version, r.usage.model_dump(), r.provenance.task_ids)
            for r in store.records("default")
        ],
    }


def stored(config: Config, run_id: str) -> dict[str, Any]:
    with open_store(config, read_only=True) as store:
        return outcome(store, run_id)


async def test_later_tasks_go_better_than_earlier_ones_and_than_the_control(tmp_path: Path) -> None:
    watcher = Watcher()
    config = doors_config(tmp_path, run={"batch_size": 5}, controls={"no_memory": 0.5})
    result = await go(config, observers=[watcher])
    main = [event for event in watcher.of(TaskDone) if event.arm == "main"]
    marks = {event.task_id: event.success for event in main}
    assert [marks[f"train-{at}"] for at in range(20)] == [False] * 5 + [True] * 15
    assert result.metrics is not None
    assert result.control is not None
    assert (result.metrics.tgc, result.control.tgc) == (0.75, 0.0)
    assert main[-1].running_success == 0.75
    assert main[-1].control_success == 0.0
    with open_store(config, read_only=True) as store:
        texts = [record.payload.text() for record in store.records("default")]
        assert sorted(texts) == sorted(f"the {color} door wants the word {password(color)}" for color in COLORS)
        red = next(record for record in store.records("default") if "red" in record.payload.text())
        assert (red.usage.injected, red.usage.success, red.usage.failure) == (15, 15, 0)
        assert red.provenance.task_ids == ("train-0",)
        assert red.provenance.trust == "verified"
    assert not list((tmp_path / ".evolve" / "index").glob("*"))


async def test_progress_is_told_in_order(tmp_path: Path) -> None:
    watcher = Watcher()
    await go(doors_config(tmp_path, run={"batch_size": 5}), observers=[watcher])
    assert isinstance(watcher.events[0], RunStarted)
    assert "at most" in watcher.events[0].estimate
    assert [event.batch for event in watcher.of(Learned)] == [0, 1, 2, 3]
    assert [event.applied for event in watcher.of(Learned)] == [5, 0, 0, 0]
    assert isinstance(watcher.events[-1], RunFinished)


async def test_concurrency_does_not_change_the_result(tmp_path: Path) -> None:
    found: list[dict[str, Any]] = []
    for concurrency in (1, 8):
        config = doors_config(tmp_path / str(concurrency), run={"batch_size": 8, "concurrency": concurrency})
        delays = random.Random(concurrency)

        class Late(ScriptedPolicy):
            async def generate(self, messages: Any, params: Any) -> Any:
                await asyncio.sleep(delays.random() / 50)  # noqa: B023 - used within this turn of the loop
                return await super().generate(messages, params)

        policy = Late(replies, name="doors", profile="compact", version="late")
        result = await arun(config, parts=Parts(policy=policy, environment=Doors(24)))
        found.append(stored(config, result.run_id))

    assert found[0] == found[1]


@pytest.mark.parametrize("concurrency", [1, 3, 8])
async def test_as_many_calls_are_in_flight_as_allowed(tmp_path: Path, concurrency: int) -> None:
    wanted = {"act": concurrency, "reflect": min(concurrency, len(COLORS))}  # equal requests make one call
    peaks = {"act": 0, "reflect": 0}
    flying = {"act": 0, "reflect": 0}

    class Counting(ScriptedPolicy):
        async def generate(self, messages: Any, params: Any) -> Any:
            role = "reflect" if messages[0].content.startswith("reflect") else "act"
            flying[role] += 1
            peaks[role] = max(peaks[role], flying[role])
            async with asyncio.timeout(600):
                while peaks[role] < wanted[role]:
                    await asyncio.sleep(0.01)
            await asyncio.sleep(0.05)  # time for one too many to begin
            flying[role] -= 1
            return await super().generate(messages, params)

    run = {"batch_size": 8, "concurrency": concurrency, "tasks": 8}
    config = doors_config(tmp_path, run=run, playbook={"curator": "direct"}, controls={"no_memory": 0})
    policy = Counting(replies, name="doors", profile="compact", version="c")
    await arun(config, parts=Parts(policy=policy, environment=Doors(8)))
    assert peaks == wanted


async def test_batch_size_changes_the_result(tmp_path: Path) -> None:
    cold = [
        await go(doors_config(tmp_path / str(size), run={"batch_size": size}, controls={"no_memory": 0}))
        for size in (5, 10)
    ]
    assert [result.metrics.tgc for result in cold if result.metrics] == [0.75, 0.5]


async def test_a_second_run_starts_at_the_learned_level(tmp_path: Path) -> None:
    config = doors_config(tmp_path, run={"batch_size": 5})
    await go(config)
    again = await go(config)
    assert again.metrics is not None
    assert again.metrics.tgc == 1.0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_a_killed_run_is_resumed_and_pays_for_nothing_twice(tmp_path: Path, root: Path, seed: int) -> None:
    command = [sys.executable, "-m", "tests.evolve.toy_doors", str(tmp_path)]
    dice, what = random.Random(seed), "run"
    for _ in range(KILLS):
        child = subprocess.Popen([*command, what], cwd=root)
        wait_for_calls(tmp_path, child, dice.randint(1, 8))
        time.sleep(dice.random() / 50)
        child.send_signal(signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL
        what = "resume"
    out = subprocess.run([*command, "resume"], cwd=root, capture_output=True, text=True, check=True).stdout
    result = RunResult.model_validate_json(out)
    assert result.status == "done"
    journalled_calls_are_unique(tmp_path)
    straight = asyncio.run(
        arun(
            doors_config(tmp_path / "straight", run={"batch_size": 3, "concurrency": 2}),
            parts=Parts(policy=doors_policy(), environment=Doors()),
        )
    )
    resumed_outcome = stored(doors_config(tmp_path), result.run_id)
    assert resumed_outcome == stored(doors_config(tmp_path / "straight"), straight.run_id)


def wait_for_calls(folder: Path, child: subprocess.Popen[bytes], more: int) -> None:
    """Wait until the child has made so many model calls, so that the kill falls into the run whatever its speed."""
    calls = folder / "calls.txt"

    def made() -> int:
        return calls.read_text().count("\n") if calls.exists() else 0

    enough = made() + more
    while made() < enough:
        assert child.poll() is None
        time.sleep(0.002)


def journalled_calls_are_unique(folder: Path) -> None:
    """A call is repeated only when the kill came between its making and its journalling.

    In flight are at most three: the curator's, and two of those who act or reflect.
    """
    calls = (folder / "calls.txt").read_text().splitlines()
    assert len(calls) - len(set(calls)) <= 3 * KILLS
    with open_store(doors_config(folder), read_only=True) as store:
        assert len(set(calls)) == store.journal.query("SELECT count(*) FROM replies")[0][0]
        assert store.doctor() == []


async def test_a_budget_stops_a_run_which_resumes_with_more(tmp_path: Path) -> None:
    watcher = Watcher()
    config = doors_config(tmp_path, run={"batch_size": 5}, budget={"calls": 12})
    stopped = await go(config, observers=[watcher])
    assert stopped.status == "stopped"
    assert "calls" in stopped.reason
    assert watcher.of(RunFinished)[-1].status == "stopped"
    policy = doors_policy()
    more = doors_config(tmp_path, budget={"calls": 500})
    done = await aresume(more, parts=Parts(policy=policy, environment=Doors()))
    assert (done.status, done.run_id) == ("done", stopped.run_id)
    straight = await go(doors_config(tmp_path / "b", run={"batch_size": 5}))
    assert stored(more, done.run_id) == stored(doors_config(tmp_path / "b"), straight.run_id)
    with open_store(more, read_only=True) as store:
        assert store.get_run(done.run_id) is not None
        replies_stored = store.journal.query("SELECT count(*) FROM replies")[0][0]
    assert policy.calls == replies_stored - 12


async def test_at_the_end_of_a_budget_every_call_that_was_asked_is_answered_and_journalled(tmp_path: Path) -> None:
    asked, answered, cut = 0, 0, 0

    class Slow(ScriptedPolicy):
        async def generate(self, messages: Any, params: Any) -> Any:
            nonlocal asked, answered, cut
            asked += 1
            try:
                await asyncio.sleep(0.05 * asked)
            except asyncio.CancelledError:
                cut += 1
                raise
            answered += 1
            return await super().generate(messages, params)

    run: dict[str, object] = {"tasks": 8, "batch_size": 8, "concurrency": 8}
    config = doors_config(tmp_path, run=run, controls={"no_memory": 0}, budget={"calls": 4})
    parts = Parts(policy=Slow(replies, name="doors", profile="compact", version="slow"), environment=Doors(8))
    for go_on in (arun, aresume):
        result = await go_on(config, parts=parts)
        assert (result.status, asked, answered, cut) == ("stopped", 4, 4, 0)
        with open_store(config, read_only=True) as store:
            assert spent(store, result.run_id).calls == 4


async def test_a_run_goes_on_in_its_own_namespace(tmp_path: Path) -> None:
    own: dict[str, object] = {"namespace": "team", "recall_k": 3, "kinds": ["bullet"]}
    config = doors_config(tmp_path, memory=own, run={"batch_size": 5}, budget={"calls": 20})
    stopped = await go(config)
    assert stopped.status == "stopped"
    done = await aresume(doors_config(tmp_path), parts=Parts(policy=doors_policy(), environment=Doors()))
    with open_store(config, read_only=True) as store:
        assert (done.status, len(store.records("team")), len(store.records("default"))) == ("done", len(COLORS), 0)
        shown = [len(t.injected) for t in store.trajectories(run_id=done.run_id)]
        kept = load_run(store, done.run_id)
    assert max(shown) == 3
    today: dict[str, object] = {"workspace": "x", "database": "service=x", "embedder": "wordllama", "index": "chroma"}
    moved = started_with(kept, doors_config(tmp_path, memory=today)).memory
    assert moved == MemorySection.model_validate({**own, **today})


async def test_a_dead_server_stops_the_run_and_nothing_is_lost(tmp_path: Path) -> None:
    calls = 0

    def dying(messages: Any, params: Any) -> Any:
        nonlocal calls
        calls += 1
        return PolicyUnavailable("no answer; start the server") if calls > 20 else replies(messages, params)

    config = doors_config(tmp_path, run={"batch_size": 5})
    policy = ScriptedPolicy(dying, name="doors", profile="compact", version="v")
    with pytest.raises(PolicyUnavailable, match="start the server"):
        await arun(config, parts=Parts(policy=policy, environment=Doors()))
    healed = ScriptedPolicy(replies, name="doors", profile="compact", version="v")
    done = await aresume(config, parts=Parts(policy=healed, environment=Doors()))
    assert done.status == "done"
    assert done.metrics is not None
    assert done.metrics.tgc == 0.75


async def test_a_refused_first_request_stops_the_run(tmp_path: Path) -> None:
    policy = ScriptedPolicy(lambda m, p: PolicyRefused("bad key; set OPENAI_API_KEY"), profile="compact", version="v")
    with pytest.raises(PolicyRefused, match="bad key"):
        await arun(doors_config(tmp_path), parts=Parts(policy=policy, environment=Doors()))


async def test_a_broken_observer_is_dropped_and_the_run_goes_on(tmp_path: Path) -> None:
    class Broken:
        calls = 0

        def notify(self, event: Progress) -> None:
            self.calls += 1
            raise ValueError("display is gone")

    broken, watcher = Broken(), Watcher()
    result = await go(doors_config(tmp_path, run={"batch_size": 5}), observers=[broken, watcher])
    assert broken.calls == 1
    assert result.status == "done"
    assert len(watcher.of(TaskDone)) >= 20


async def test_review_keeps_changes_waiting_and_the_run_goes_on(tmp_path: Path) -> None:
    from evolve.gates import review_queue

    config = doors_config(
        tmp_path, run={"batch_size": 5}, gate={"names": ["static", "review"]}, controls={"no_memory": 0}
    )
    result = await go(config)
    assert result.metrics is not None
    assert result.metrics.tgc == 0.0
    with open_store(config) as store:
        assert store.view("default").records() == ()
        waiting = review_queue.proposals(store)
        assert len(waiting) >= 5
        commit = review_queue.accept(store, str(waiting[0].seq), actor="ann")
        assert commit.applied
        review_queue.reject(store, waiting[1].op.op_id, actor="ann", reason="no")
        assert len(review_queue.proposals(store)) == len(waiting) - 2
        (record,) = store.view("default").records()
        assert record.provenance.trust == "operator"


async def test_priced_policies_have_no_control_and_it_is_said(tmp_path: Path) -> None:
    watcher = Watcher()
    price = {"prompt": 1.0, "completion": 2.0}
    config = doors_config(tmp_path, run={"tasks": 2}, policy={"name": "langchain", "price": price})
    await go(config, observers=[watcher])
    assert {event.arm for event in watcher.of(TaskDone)} == {"main"}
    assert any("can cost money" in event.text for event in watcher.of(Notice))
    assert "$" in watcher.of(RunStarted)[0].estimate


async def test_checkpoints_are_forgotten_when_a_run_is_done(tmp_path: Path) -> None:
    import sqlite3

    config = doors_config(tmp_path, run={"batch_size": 5})
    await go(config)
    with sqlite3.connect(config.workspace / "checkpoints.db") as db:
        assert db.execute("SELECT count(*) FROM checkpoints").fetchone() == (0,)
    db.close()


async def test_state_holds_ids_only(tmp_path: Path) -> None:
    import sqlite3

    config = doors_config(tmp_path, run={"batch_size": 5}, budget={"calls": 40})
    stopped = await go(config)
    assert stopped.status == "stopped"
    db = sqlite3.connect(config.workspace / "checkpoints.db")
    blobs = b"".join(row[0] for row in db.execute("SELECT checkpoint FROM checkpoints"))
    blobs += b"".join(row[0] for row in db.execute("SELECT value FROM writes"))
    db.close()
    assert b"tr-" in blobs
    assert not any(text in blobs for text in (b"Open the", b"door wants"))


def test_results_are_json(tmp_path: Path) -> None:
    result = asyncio.run(go(doors_config(tmp_path, run={"tasks": 2})))
    assert RunResult.model_validate(json.loads(result.model_dump_json())) == result
