"""What is refused by reading alone: at how many words, tasks and characters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from evolve.gates.static import ExemplarGate, StaticGate, ngrams, plain
from memory.records import DeltaOp, Op, Task, Trajectory, Verdict
from playbooks.view import RecordView
from skills.skill_gate import SkillGate

WORDS = [f"word{at}" for at in range(20)]
SKILL = 'def f(x: int) -> int:\n    """{doc}"""\n    return x\n'


def add(text: str, op_id: str = "a", **fields: Any) -> DeltaOp:
    return DeltaOp.model_validate({"op": Op.ADD, "op_id": op_id, "payload": {"content": text}} | fields)


def tasks(*texts: str) -> list[Trajectory]:
    return [Trajectory(task=Task(id=f"t{at}", instruction=text)) for at, text in enumerate(texts)]


async def judged(gate: Any, ops: Sequence[DeltaOp], seen: Sequence[Trajectory] = ()) -> Verdict:
    return await gate.judge(ops, RecordView(()), seen)


@pytest.mark.parametrize(("shared", "given", "refused"), [(7, {}, False), (8, {}, True), (3, {"leak_ngram": 3}, True)])
async def test_a_run_of_eight_words_of_a_task_is_a_leak(shared: int, given: dict[str, Any], refused: bool) -> None:
    text = " ".join(("Say", *WORDS[:shared], "now."))
    seen = tasks("Open the mail.", " ".join(WORDS))
    verdict = await judged(StaticGate(**given), [add(text)], seen)
    assert bool(verdict.rejected) is refused
    if refused:
        quote = " ".join(WORDS[: given.get("leak_ngram", 8)])
        assert verdict.rejected["a"] == f"repeats task 't1' word for word ({quote!r}); say what holds for other tasks"
    assert verdict.evidence["leak_ngram"] == given.get("leak_ngram", 8)


@pytest.mark.parametrize(("seen", "told", "template"), [(5, 0, True), (4, 0, False), (2, 3, True), (1, 3, False)])
async def test_words_of_five_tasks_belong_to_no_one_task(seen: int, told: int, template: bool) -> None:
    shared = " ".join(WORDS[:8])
    texts = [f"Ticket {at}: {shared}" for at in range(seen + told)]
    gate = StaticGate(tasks=lambda: texts[seen:])
    verdict = await judged(gate, [add(f"Always {shared}.")], tasks(*texts[:seen], texts[0]))
    assert (verdict.accepted == ("a",)) is template


async def test_a_skill_is_read_in_its_own_words_line_by_line() -> None:
    doc = f"Say {' '.join(WORDS[:4])}\n    {' '.join(WORDS[4:8])}."
    op = add("", kind="skill", payload={"source": SKILL.format(doc=doc)})
    verdict = await judged(StaticGate(kinds={"skill": SkillGate()}), [op], tasks(" ".join(WORDS)))
    assert "word for word" in verdict.rejected["a"]


@pytest.mark.parametrize("size", [49_986, 49_987])
async def test_more_than_fifty_thousand_characters_are_not_read(size: int) -> None:
    verdict = await judged(StaticGate(), [add("a" * size), DeltaOp(op=Op.REMOVE, op_id="b", target_id="r1")])
    unread = "has 50,001 characters; at most 50,000 are read"
    assert (verdict.rejected["a"] == unread) is (size == 49_987)


async def test_what_its_own_gate_refuses_is_refused_and_what_is_too_long_it_is_not_asked_about() -> None:
    class Asked:
        name = "asked"
        ops: tuple[str, ...] = ()

        async def judge(self, ops: Sequence[DeltaOp], view: Any, seen: Sequence[Trajectory]) -> Verdict:
            self.ops = tuple(op.op_id for op in ops)
            return Verdict(gate=self.name, accepted=(), rejected={"b": "no"})

    own = Asked()
    gate = StaticGate(kinds={"own": own})
    verdict = await judged(gate, [add("a" * 60_000), add("Pay in cents.", "b"), add("Sign the mail.", "c")])
    assert own.ops == ("b", "c")
    assert (verdict.accepted, verdict.rejected["b"]) == (("c",), "no")


HELD_OUT = "Pay the lamp that Mirak bought for the office in May"


def exemplar(task: str, *said: str, op_id: str = "e") -> DeltaOp:
    turns = [{"said": each, "observed": "ok"} for each in said or ("done()",)]
    return DeltaOp(op=Op.ADD, op_id=op_id, kind="exemplar", payload={"task": task, "turns": turns})


SHOWN = "shows a held-out task"
QUOTED = "quotes a held-out task ('pay the lamp that mirak bought for the'), which figures are taken from"


@pytest.mark.parametrize(
    ("op", "said"),
    [
        (exemplar("Sign the mail."), ""),
        (exemplar(HELD_OUT), SHOWN),
        (exemplar(HELD_OUT.upper() + "!"), SHOWN),
        (exemplar("Pay it."), SHOWN),
        (exemplar("Sign the mail.", "Pay it."), ""),
        (exemplar("Sign the mail.", f"First: {HELD_OUT}, then go."), SHOWN),
        (exemplar("Sign the mail.", "pay the lamp that Mirak bought for the shop"), QUOTED),
        (exemplar("Sign the mail.", "pay the lamp that Mirak bought for a shop"), ""),
        (exemplar("Go and pay the lamp that Mirak bought for the shop", "done()"), ""),
        (
            DeltaOp(op=Op.ADD, op_id="e", kind="exemplar", payload={"task": "x"}),
            "payload is no exemplar: Field required",
        ),
    ],
)
async def test_an_exemplar_shows_no_held_out_task(op: DeltaOp, said: str) -> None:
    asked: list[int] = []

    def held_out() -> list[str]:
        asked.append(1)
        return ["", "?", HELD_OUT, "Pay it."]

    gate = ExemplarGate(held_out)
    others = [add(HELD_OUT, "text"), DeltaOp(op=Op.REMOVE, op_id="gone", kind="exemplar", target_id="r1")]
    for _ in range(2):
        verdict = await judged(gate, [op, *others])
        assert verdict.rejected.get("e", "").startswith(said)
        assert bool(verdict.rejected) is bool(said)
        assert set(verdict.accepted) >= {"text", "gone"}
        assert (verdict.gate, verdict.evidence) == ("exemplar", {"view": 0})
    assert len(asked) <= 1
    assert (await judged(ExemplarGate(), [exemplar(HELD_OUT)])).accepted == ("e",)


async def test_a_long_held_out_task_is_named_by_its_first_words() -> None:
    text = " ".join(WORDS)
    verdict = await judged(ExemplarGate(lambda: [text]), [exemplar(text)])
    assert verdict.rejected["e"] == f"shows a held-out task ({text[:60]!r}), which figures are taken from"


@pytest.mark.parametrize(
    ("text", "n", "runs"),
    [("A b, C!", 2, [("a", "b"), ("b", "c")]), ("a b", 2, [("a", "b")]), ("a", 2, []), ("a b", 1, [("a",), ("b",)])],
)
def test_runs_of_words(text: str, n: int, runs: list[tuple[str, ...]]) -> None:
    assert ngrams(text, n) == runs
    assert plain(f"  {text}\n") == plain(text)
