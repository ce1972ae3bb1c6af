"""The methods that decide over a batch: lanes of supervision, releases, regimes, parallel evolution."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from memory.embedders.hashing import HashingEmbedder
from memory.records import Check, Insight, Op, Outcome, Reflection, Step, Task, Trajectory
from playbooks.methods.agentdevel import ReleaseCurator, SymptomReflector, diagnose, symptom_messages
from playbooks.methods.atlas import AtlasCurator, Session, lane_of, learning_key, teacher_messages
from playbooks.methods.regimes import RegimesCurator, histogram, regime_of
from playbooks.methods.yunjue import BatchCurator, Growth
from playbooks.silent import SilentReflector
from playbooks.view import RecordView
from policies.errors import PolicyRefused
from policies.protocols import Message
from policies.scripted import ScriptedPolicy
from tests.playbooks.test_golden_prompts import FOLDER, transcript

Make = Callable[..., Any]


def episode(n: int, complaint: str = "", *, family: str = "pay", reward: float | None = None) -> Trajectory:
    """An episode of two steps that failed the check `money` with `complaint`, or succeeded without one."""
    checks = (Check(name="money", passed=False, detail=complaint),) if complaint else ()
    score = float(not complaint) if reward is None else reward
    return Trajectory(
        id=f"t{n}",
        task=Task(id=f"task-{n}", instruction=f"pay Ann {n}", metadata={"family": family}),
        steps=(Step(index=0, action="plan()", observation="ok"), Step(index=1, action="pay()", observation="ok")),
        outcome=Outcome(success=not complaint, reward=score, checks=checks),
    )


def lesson(n: int, *texts: str, cause: str = "") -> Reflection:
    insights = tuple(Insight(content=text) for text in texts)
    return Reflection(trajectory_id=f"t{n}", task_id=f"task-{n}", insights=insights, root_cause=cause, author="test")


CENTS = "payments.send amount: expected cents, got dollars"
LOGIN = "mail.send before: expected login, got nothing"


# --- ATLAS


@pytest.mark.parametrize(
    ("scores", "lane"),
    [
        ([], "paired"),
        ([1.0], "auto"),
        ([0.0], "coach"),
        ([0.8], "auto"),
        ([0.79], "paired"),
        ([0.4], "coach"),
        ([0.41], "paired"),
        ([0.0] * 10 + [1.0] * 10, "auto"),
        ([1.0] * 10 + [0.0] * 10, "coach"),
    ],
)
def test_the_last_ten_scores_choose_the_lane(scores: list[float], lane: str) -> None:
    assert lane_of(scores) == lane


class Atlas:
    """A curator with its history in hand."""

    def __init__(self, answers: Sequence[str | PolicyRefused], *past: Session, label_free: bool = False) -> None:
        self.episodes: dict[str, Trajectory] = {}
        self.sessions, self.kept = list(past), list[Reflection]()
        self.policy = ScriptedPolicy(answers)
        self.curator = AtlasCurator(
            self.policy,
            self.episodes.get,
            lambda key: [session for session in self.sessions if session.key == key],
            record=self.sessions.append,
            keep=self.kept.append,
            label_free=label_free,
        )

    async def curate(self, *episodes: Trajectory) -> list[str]:
        self.episodes |= {t.id: t for t in episodes}
        read = [await SilentReflector().reflect(t, ()) for t in episodes]
        ops = await self.curator.curate(read, RecordView())
        assert {op.op for op in ops} <= {Op.ADD}
        return [op.payload["content"] for op in ops if op.payload]


def guidance(*texts: str) -> str:
    return json.dumps({"guidance": texts})


async def test_supervision_costs_nothing_where_it_went_well_and_most_where_it_went_badly() -> None:
    past = [
        Session(trajectory_id=f"p{n}", key=key, lane="paired", score=float(key == "good"))
        for n, key in enumerate(("good", "bad"))
    ]
    atlas = Atlas([guidance("check a", "b"), guidance("c", "d", "e", "f")], *past)
    fresh = [episode(1, family="good"), episode(2, family="new"), episode(3, CENTS, family="bad")]
    assert await atlas.curate(*fresh) == ["check a", "c", "d", "e"]
    assert [s.lane for s in atlas.sessions[2:]] == ["auto", "paired", "coach"]
    paired, coach = (messages[-1].content for messages in atlas.policy.seen)
    assert ("plan()" in paired, "plan()" in coach) == (False, True)
    assert CENTS in coach


async def test_episodes_of_one_batch_do_not_see_each_other() -> None:
    atlas = Atlas([guidance()] * 3)
    await atlas.curate(*(episode(n) for n in (1, 2, 3)))
    assert [s.lane for s in atlas.sessions] == ["paired"] * 3
    await atlas.curate(episode(4))
    assert (atlas.sessions[-1].lane, atlas.policy.calls) == ("auto", 3)


async def test_label_free_there_is_no_score_and_every_lane_is_paired() -> None:
    atlas = Atlas([guidance()] * 2, label_free=True)
    await atlas.curate(episode(1, CENTS))
    await atlas.curate(episode(2, CENTS))
    assert [(s.lane, s.score) for s in atlas.sessions] == [("paired", None)] * 2
    assert "cents" not in atlas.policy.seen[0][-1].content


async def test_a_teacher_without_an_answer_teaches_nothing_and_what_it_said_is_kept() -> None:
    unread, refused = Atlas(["hm", "hm", guidance("check a")]), Atlas([PolicyRefused("too long")])
    assert await unread.curate(episode(1, CENTS)) == []
    assert await unread.curate(episode(2, CENTS)) == ["check a"]
    assert await refused.curate(episode(1, CENTS)) == []
    assert [(raw.trajectory_id, raw.parsed, raw.raw) for raw in unread.kept] == [("t1", False, "hm\n\nhm")]
    assert [raw.raw for raw in refused.kept] == ["refused: too long"]


def test_the_kind_of_a_task_without_a_family_is_its_scenario() -> None:
    assert learning_key(Trajectory(task=Task(id="x", instruction="y", scenario="s-1"))) == "s-1"


# --- AgentDevel


def test_the_diagnosis_counts_labels() -> None:
    assert diagnose(["Wrong unit", "no login", " wrong  unit "]) == ("wrong unit", 2)
    assert diagnose(["b", "a"]) == ("b", 1)
    assert diagnose(["", " "]) is None


async def test_the_critic_labels_failures_only_and_knows_nothing_of_the_rules() -> None:
    policy = ScriptedPolicy(['{"symptom": "wrong unit"}'])
    labelled = await SymptomReflector(policy).reflect(episode(1, CENTS), ())
    assert (labelled.root_cause, labelled.insights) == ("wrong unit", ())
    assert (await SymptomReflector(policy).reflect(episode(2), ())).root_cause == ""
    assert policy.calls == 1


async def test_one_release_against_the_most_frequent_symptom(bullet: Make) -> None:
    rule = bullet(3, "pay Ann in dollars")
    episodes = {f"t{n}": episode(n, LOGIN if n == 1 else CENTS) for n in (1, 2, 3)}
    changes = [{"content": "pay in cents", "target": "shr-00003"}, {"content": "convert first"}, {"content": ""}]
    policy = ScriptedPolicy([json.dumps({"intent": "mend the unit", "changes": changes})])
    curator = ReleaseCurator(policy, episodes.get)
    causes = {1: "no login", 2: "wrong unit", 3: "Wrong Unit"}
    ops = await curator.curate([lesson(n, cause=causes[n]) for n in causes], RecordView([rule]))
    assert [(op.op, op.reason) for op in ops] == [(Op.EDIT, "mend the unit"), (Op.ADD, "mend the unit")]
    assert {op.provenance.task_ids for op in ops} == {("task-2", "task-3")}
    said = policy.seen[0][-1].content
    assert "2 of 3 failures" in said
    assert "pay Ann 1" not in said
    assert "[shr-00003] pay Ann in dollars" in said


async def test_what_is_refused_costs_one_symptom_or_one_release() -> None:
    refused = PolicyRefused("too long")
    labelled = await SymptomReflector(ScriptedPolicy([refused])).reflect(episode(1, CENTS), ())
    assert (labelled.parsed, labelled.raw) == (False, "refused: too long")
    kept: list[Reflection] = []
    curator = ReleaseCurator(ScriptedPolicy([refused]), {"t1": episode(1, CENTS)}.get, keep=kept.append)
    assert await curator.curate([lesson(1, cause="wrong unit")], RecordView()) == ()
    assert [raw.raw for raw in kept] == ["refused: too long"]


async def test_without_a_symptom_there_is_no_release_and_an_unusable_one_is_kept() -> None:
    kept: list[Reflection] = []
    policy = ScriptedPolicy(["no", "no"])
    curator = ReleaseCurator(policy, {"t1": episode(1, CENTS)}.get, keep=kept.append)
    assert await curator.curate([lesson(1)], RecordView()) == ()
    assert policy.calls == 0
    assert await curator.curate([lesson(1, cause="wrong unit")], RecordView()) == ()
    assert [r.parsed for r in kept] == [False]


# --- regimes


@pytest.mark.parametrize(
    ("trajectory", "regime"),
    [
        (episode(1), None),
        (episode(1, CENTS), "payments.send amount"),
        (episode(1, "x").model_copy(update={"outcome": Outcome(success=False, reward=0)}), "other"),
        (episode(1).model_copy(update={"outcome": None}), "other"),
    ],
)
def test_a_script_names_the_regime(trajectory: Trajectory, regime: str | None) -> None:
    assert regime_of(trajectory) == regime


def test_label_free_the_regime_is_the_first_error() -> None:
    met = Step(index=0, action="f()", observation="error", error="mail.send: E7")
    assert regime_of(episode(1, CENTS), label_free=True) is None
    assert regime_of(episode(1).model_copy(update={"steps": (met,)}), label_free=True) == "mail.send"


async def test_only_the_most_frequent_regime_is_repaired() -> None:
    found: list[Any] = []
    episodes = {f"t{n}": episode(n, complaint) for n, complaint in enumerate((LOGIN, CENTS, CENTS, ""))}
    curator = RegimesCurator(episodes.get, record=lambda histogram, ids: found.append((histogram, ids)))
    ops = await curator.curate([lesson(n, f"rule number {n} of the house") for n in range(4)], RecordView())
    assert [op.payload["content"] for op in ops if op.payload] == [f"rule number {n} of the house" for n in (1, 2)]
    assert found == [(histogram(["mail.send before", *["payments.send amount"] * 2]), ("t0", "t1", "t2", "t3"))]
    assert await curator.curate([lesson(3, "rule of a success")], RecordView()) == ()


# --- parallel batch evolution


async def test_a_batch_is_absorbed_and_its_growth_goes_to_zero(bullet: Make) -> None:
    grown: list[Growth] = []
    curator = BatchCurator(HashingEmbedder(), record=lambda growth, _: grown.append(growth))
    rule = "payments.send: amount must be cents"
    batch = [lesson(1, rule), lesson(2, f"{rule} always"), lesson(3, "payments.send: amount must be dollars")]
    ops = await curator.curate(batch, RecordView())
    assert [op.payload["content"] for op in ops if op.payload] == [rule, "payments.send: amount must be dollars"]
    assert ops[0].provenance.task_ids == ("task-1", "task-2")
    assert (grown[0].new, grown[0].tasks, round(grown[0].egl, 3)) == (2, 3, 0.667)
    again = await curator.curate([lesson(4, rule)], RecordView([bullet(1, rule)]))
    assert ([op.op for op in again], grown[1].egl) == ([Op.TAG], 0.0)
    assert Growth(new=0, tasks=0).egl == 0.0


# --- prompts


PROMPTS: dict[str, Callable[[], Sequence[Message]]] = {
    "atlas_paired": lambda: teacher_messages(episode(1, CENTS), "paired"),
    "atlas_coach": lambda: teacher_messages(episode(1, CENTS), "coach"),
    "agentdevel_symptom": lambda: symptom_messages(episode(1, CENTS), CENTS),
}


@pytest.mark.parametrize("name", PROMPTS)
def test_prompt_is_as_recorded(name: str) -> None:
    text = transcript(PROMPTS[name]())
    path = FOLDER / f"methods-{name}.txt"
    if os.environ.get("EVOLVE_GOLDEN") == "write":
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")
