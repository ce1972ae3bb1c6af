"""Learning without labels, self-judgement, compaction and the hard budget, through the real loop."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from evolve.loop.assembly import open_store
from evolve.loop.session import Parts, RunResult, arun
from memory.records import DeltaOp, Insight, Op, Reflection, Trajectory
from policies.scripted import ScriptedPolicy
from tests.evolve.toy_doors import COLORS, Doors, doors_config, doors_policy, password, replies


async def go(root: Path, policy: ScriptedPolicy | None = None, n: int = 20, **sections: Any) -> RunResult:
    sections = {"controls": {"no_memory": 0}, **sections}
    return await arun(
        doors_config(root, **sections), parts=Parts(policy=policy or doors_policy(), environment=Doors(n))
    )


async def test_label_free_learning_never_reads_an_outcome(tmp_path: Path) -> None:
    seen: list[str] = []

    def noted(messages: Any, params: Any) -> str:
        seen.append(messages[0].content)
        return replies(messages, params)

    policy = ScriptedPolicy(noted, name="doors", profile="compact", version="n")
    result = await go(tmp_path, policy, run={"batch_size": 5, "label_free": True})
    assert result.metrics is not None
    assert result.metrics.tgc == 0.75
    reflections = [text for text in seen if text.startswith("reflect")]
    assert reflections
    assert not any("politely" in text or "\nok\n" in text for text in reflections)
    with open_store(doors_config(tmp_path), read_only=True) as store:
        records = store.view("default").records()
        assert {record.provenance.trust for record in records} == {"self_judged"}
        assert {(record.usage.success, record.usage.failure) for record in records} == {(0, 0)}
        assert all(record.usage.injected for record in records)


async def test_with_labels_the_outcome_is_read(tmp_path: Path) -> None:
    seen: list[str] = []

    def noted(messages: Any, params: Any) -> str:
        seen.append(messages[0].content)
        return replies(messages, params)

    await go(tmp_path, ScriptedPolicy(noted, profile="compact", version="n"), n=3)
    assert any("politely" in text for text in seen if text.startswith("reflect"))


async def test_the_policy_may_judge_itself(tmp_path: Path) -> None:
    def judging(messages: Any, params: Any) -> str:
        if messages[0].content.startswith("Decide whether"):
            return json.dumps({"reason": "it opened", "success": "Answer:\nok" in messages[-1].content})
        return replies(messages, params)

    policy = ScriptedPolicy(judging, name="doors", profile="compact", version="j")
    await go(tmp_path, policy, run={"batch_size": 5, "label_free": True, "judge": "policy"})
    with open_store(doors_config(tmp_path), read_only=True) as store:
        judgements = store.events(type="judgement")
        assert len(judgements) == 20
        assert all(event.data["success"] for event in judgements)
        assert {(r.usage.success, r.usage.failure) for r in store.view("default").records()} == {(15, 0)}


async def test_reflection_on_failures_only(tmp_path: Path) -> None:
    await go(tmp_path, run={"batch_size": 5}, playbook={"reflect_on": "failures"})
    with open_store(doors_config(tmp_path), read_only=True) as store:
        assert len(store.reflections()) == 5


async def test_without_a_playbook_nothing_is_shown_or_learned(tmp_path: Path) -> None:
    result = await go(tmp_path, run={"batch_size": 5}, playbook={"enabled": False})
    assert result.metrics is not None
    assert (result.metrics.tgc, result.metrics.injected) == (0.0, 0.0)
    with open_store(doors_config(tmp_path), read_only=True) as store:
        assert store.view("default").records() == ()
        assert store.reflections() == ()


async def test_the_hard_budget_retires_the_least_useful(tmp_path: Path) -> None:
    await go(tmp_path, run={"batch_size": 5}, playbook={"max_tokens": 30})
    with open_store(doors_config(tmp_path), read_only=True) as store:
        records = store.records("default")
        kept = [record for record in records if record.status == "provisional"]
        assert 0 < len(kept) < len(COLORS)
        assert {record.status for record in records} == {"provisional", "retired"}


async def test_the_hard_budget_holds_after_a_rollback_too(tmp_path: Path) -> None:
    config = doors_config(tmp_path)
    ops = [DeltaOp(op=Op.ADD, payload={"content": f"the {c} door wants the word {password(c)}"}) for c in COLORS]

    def kept() -> int:
        with open_store(config, read_only=True) as store:
            return len(store.view("default").records())

    with open_store(config) as store:
        store.commit("default", ops, actor="test")
        before = store.snapshot("default")
    sections: dict[str, Any] = {"run": {"batch_size": 1}, "playbook": {"max_tokens": 30}}
    await go(tmp_path, n=1, **sections)
    fitting = kept()
    assert fitting < len(COLORS)
    with open_store(config) as store:
        store.rollback("default", before.id, actor="operator")
    assert kept() == len(COLORS)
    await go(tmp_path, n=1, **sections)
    assert kept() == fitting


async def test_the_core_is_stable_between_compaction_points(tmp_path: Path) -> None:
    """A rule pinned during the run enters the core at the next compaction point and stands first from then on."""
    config = doors_config(tmp_path)
    done = 0

    class Pinning:
        name = "pinning"

        async def reflect(self, trajectory: Trajectory, injected: Any, *, label_free: bool = False) -> Reflection:
            nonlocal done
            done += 1
            said = (Insight(content=f"lesson {done}"),) if done == 1 else ()
            return Reflection(trajectory_id=trajectory.id, task_id=trajectory.task.id, insights=said)

        async def curate(self, reflections: Any, view: Any) -> tuple[DeltaOp, ...]:
            return (DeltaOp(op=Op.ADD, payload={"content": "Knock before you open any door."}, pinned=True),)

    pinning = Pinning()
    parts = Parts(policy=doors_policy(), environment=Doors(12), reflector=pinning, curator=pinning)
    sections: dict[str, Any] = {"run": {"batch_size": 2}, "playbook": {"compact_every": 6}}
    result = await arun(doors_config(tmp_path, controls={"no_memory": 0}, **sections), parts=parts)
    with open_store(config, read_only=True) as store:
        shown = {t.task.id: [i.core for i in t.injected] for t in store.trajectories(run_id=result.run_id)}
    assert [shown[f"train-{at}"] for at in range(12)] == [[]] * 2 + [[False]] * 4 + [[True]] * 6


async def test_duplicates_are_merged_at_compaction_points(tmp_path: Path) -> None:
    with open_store(doors_config(tmp_path)) as store:
        ops = [DeltaOp(op=Op.ADD, payload={"content": f"the red door wants the word {password('red')}"})] * 1
        again = DeltaOp(op=Op.ADD, payload={"content": f"The red door wants the word {password('red')}!"})
        store.commit("default", [*ops, again], actor="test")
        assert len(store.view("default").records()) == 2
    await go(tmp_path, n=6, run={"batch_size": 3}, playbook={"compact_every": 6})
    with open_store(doors_config(tmp_path), read_only=True) as store:
        red = [record for record in store.view("default").records() if "red" in record.payload.text()]
        assert len(red) == 1
        assert len(red[0].supersedes) == 2
