"""Gate `held_out` is asked again about what it saw before: what earlier looks left of its error and of its patience."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random

from evolve.episode.rollout import RolloutConfig
from evolve.gates.context import Bench
from evolve.gates.decisions import redecided, rounds_of
from evolve.gates.evaluator import Evaluator
from evolve.gates.gate_events import PROPOSAL, VERDICT
from evolve.gates.held_out import PLACEBO, HeldOut
from evolve.gates.held_out_rules import replay
from evolve.loop.assembly import make_gates, open_store
from memory.records import DeltaOp, Event, Op, Provenance, Task, Verdict
from memory.store import Store
from playbooks.view import RecordView
from policies.protocols import Message, SamplingParams
from policies.scripted import ScriptedPolicy
from tests.evolve.toy_doors import ManyDoors, doors_config, password


def tossed(messages: Sequence[Message], params: SamplingParams) -> str:
    """Open every other door, another half where the prompt is another."""
    said = "".join(message.content for message in messages)
    color = said.rpartition("Open the ")[2].split()[0]
    return f"open {color} {password(color) if Random(f'{said} {params.seed}').random() < 0.5 else ''}"


def journal(store: Store, kind: str, data: Mapping[str, object]) -> None:
    store.append(Event(type=kind, namespace="default", run_id="run", data=dict(data)))


async def test_the_same_text_under_a_new_id_has_the_error_that_is_left(tmp_path: Path) -> None:
    """Each batch proposes it from another task, so that each look draws its own runs."""
    config = doors_config(tmp_path, gate={"names": ["held_out"], "held_out": {"tasks": 24}})
    acting = RolloutConfig(world="", max_steps=1, temperature=1.0, max_tokens=8)
    left: list[float] = []
    with open_store(config) as store:
        policy = ScriptedPolicy(tossed, name="doors", profile="compact", version="1")
        (gate,) = make_gates(config, Bench(Evaluator(config, store, ManyDoors(), policy, acting, "run"), ()))
        for at in range(8):
            text = "Say hello." if at % 2 else "Say  hello"
            origin = Provenance(task_ids=(f"train-{at}",))
            op = DeltaOp(op=Op.ADD, op_id=f"op-{at}", payload={"content": text}, provenance=origin)
            journal(store, PROPOSAL, {"ops": [op.model_dump(mode="json")]})
            verdict = await gate.judge([op], store.view("default"), ())
            journal(store, VERDICT, verdict.model_dump(mode="json"))
            left.append(rounds_of(verdict)[0]["trial"]["left"])
            assert redecided(verdict, replay) == verdict
        other = DeltaOp(op=Op.ADD, op_id="other", payload={"content": "Say goodbye."})
        fresh = await gate.judge([other], store.view("default"), ())
    assert left == sorted(left, reverse=True)
    assert left[-1] < left[1] < left[0] == rounds_of(fresh)[0]["trial"]["left"]


async def test_a_look_that_ended_plainly_counts_for_patience() -> None:
    """Seven of twelve tasks are gained and two lost, which is no noise: more tasks would say the same."""

    async def run(ops: Sequence[DeltaOp] | None, tasks: Sequence[Task], seed: int) -> Mapping[str, bool | None]:
        changed = bool(ops) and PLACEBO not in (ops or ())
        return {task.id: 2 <= at < 9 if changed else at < 2 for at, task in enumerate(tasks)}

    tasks = [Task(id=f"t{at}", instruction="", split="dev") for at in range(60)]
    op = DeltaOp(op=Op.ADD, op_id="add", payload={"content": "x"})
    past: list[Verdict] = []
    gate = HeldOut(run, tasks, seed=1, past=lambda: past)
    for _ in range(3):
        past.append(await gate.judge([op], RecordView(()), []))
        assert len(rounds_of(past[-1])[0]["trial"]["cohort"]) == 12
    assert ["deferred" if each.deferred else "rejected" for each in past] == ["deferred", "deferred", "rejected"]
    assert past[-1].rejected["add"].startswith("gained 7 and lost 2 of 12 held-out tasks")
