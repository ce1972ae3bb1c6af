"""One suite for every Reflector.

R1  a reflection names its trajectory, its task and its author
R2  the trajectory and the records are left as they were
R3  only injected records are tagged, with a known tag
R4  label-free, the outcome makes no difference
R5  an odd trajectory (no steps, no outcome, hostile text) gives a reflection, not an exception
R6  the same input gives the same lessons
R7  a rule that the environment told is learned
R8  output that cannot be parsed is kept whole, as `raw`, with `parsed=False` (reflectors that ask a model)
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, get_args

import pytest

from memory.records import Check, Outcome, Record, Step, Tag, Task, Trajectory
from playbooks.kinds.bullet import Bullet
from playbooks.protocols import Reflector
from playbooks.reflector import ModelReflector
from playbooks.rules import RulesReflector
from policies.protocols import Message, Profile, SamplingParams
from policies.scripted import ScriptedPolicy

TOLD = "payments.send: to must be the contact's handle"


def answer(messages: Sequence[Message], params: SamplingParams) -> str:
    """Answer as a model would: learn what was told, tag one rule that was shown and one that was not."""
    told = [TOLD] if any(TOLD in message.content for message in messages) else []
    if messages[0].content.startswith("reflect\n"):
        return json.dumps({"insights": told, "harmful": [1, 99]})
    tags = [
        {"id": "[shr-00001]", "tag": "Harmful"},
        {"bullet_id": "shr-00099", "tag": "helpful"},
        {"id": "2", "tag": "great"},
    ]
    return json.dumps(
        {"reasoning": "r", "insights": [{"section": "shr", "content": text} for text in told], "bullet_tags": tags}
    )


def model(profile: Profile, script: Any = answer) -> ModelReflector:
    return ModelReflector(ScriptedPolicy(script, profile=profile))


MAKERS: dict[str, Callable[[], Reflector]] = {
    "rules": RulesReflector,
    "model-full": lambda: model("full"),
    "model-compact": lambda: model("compact"),
}


@pytest.fixture(params=MAKERS)
def reflector(request: pytest.FixtureRequest) -> Reflector:
    return MAKERS[request.param]()


@pytest.fixture
def injected() -> list[Record[Bullet]]:
    texts = ("payments.send: to must be the contact's id", "Check twice.")
    return [
        Record(id=f"r{n}", kind="bullet", number=n, slug="shr", payload=Bullet(content=text))
        for n, text in enumerate(texts, 1)
    ]


def trajectory(outcome: Outcome | None, *steps: Step) -> Trajectory:
    return Trajectory(id="trajectory", task=Task(id="task", instruction="pay Rodor"), steps=steps, outcome=outcome)


def told() -> Trajectory:
    checks = (Check(name="payments", passed=False, detail="missing"),)
    return trajectory(
        Outcome(success=False, reward=0.0, checks=checks),
        Step(index=0, action='apps.payments.send(to=c["id"])', observation=f"error: {TOLD}", error=TOLD),
        Step(index=1, action='apps.payments.send(to=c["handle"])', observation="ok"),
    )


async def test_r1_r2_r7_a_told_rule_is_learned_and_named(reflector: Reflector, injected: list[Record[Bullet]]) -> None:
    given, before = told(), [record.model_dump() for record in injected]
    reflection = await reflector.reflect(given, injected)
    assert (reflection.trajectory_id, reflection.task_id, reflection.author) == ("trajectory", "task", reflector.name)
    assert reflection.parsed
    assert [insight.content for insight in reflection.insights] == [TOLD]
    assert given == told().model_copy(update={"created_at": given.created_at})
    assert [record.model_dump() for record in injected] == before


async def test_r3_only_injected_records_are_tagged(reflector: Reflector, injected: list[Record[Bullet]]) -> None:
    tags = (await reflector.reflect(told(), injected)).tags
    assert tags == {"r1": "harmful"}
    assert set(tags.values()) <= set(get_args(Tag))
    assert (await reflector.reflect(told(), [])).tags == {}


async def test_r4_label_free_ignores_the_outcome(reflector: Reflector, injected: list[Record[Bullet]]) -> None:
    checks = (Check(name="p", passed=False, detail="payments.send amount: expected cents, got dollars"),)
    outcomes = [None, Outcome(success=True, reward=1.0), Outcome(success=False, reward=0.0, checks=checks)]
    steps = told().steps
    reflections = [await reflector.reflect(trajectory(o, *steps), injected, label_free=True) for o in outcomes]
    assert len({r.model_dump_json(exclude={"id", "created_at"}) for r in reflections}) == 1


@pytest.mark.parametrize(
    "odd",
    [
        trajectory(None),
        trajectory(Outcome(success=False, reward=0.0)),
        trajectory(Outcome(success=True, reward=1.0), Step(index=0, action="")),
        trajectory(
            None,
            Step(index=0, action="{{ 7 * 7 }} {% raw %}", observation="\x00\n## OTHERS\n<|im_end|>", error="{{ x }}"),
        ),
        trajectory(None, Step(index=0, action="f(" * 200, observation="x" * 100_000, error="")),
    ],
)
async def test_r5_odd_trajectories_are_survived(reflector: Reflector, odd: Trajectory) -> None:
    for label_free in (False, True):
        reflection = await reflector.reflect(odd, [], label_free=label_free)
        assert reflection.trajectory_id == "trajectory"


async def test_r6_the_same_input_gives_the_same_lessons(reflector: Reflector, injected: list[Record[Bullet]]) -> None:
    first, second = [await reflector.reflect(told(), injected) for _ in range(2)]
    assert first.insights == second.insights
    assert first.tags == second.tags


@pytest.mark.parametrize("profile", ["full", "compact"])
@pytest.mark.parametrize("said", ["I would rather not.", "", "{" * 50, "[1, 2"])
async def test_r8_unparsable_output_is_kept_whole(profile: Profile, said: str) -> None:
    reflection = await model(profile, [said, said + " again"]).reflect(told(), [])
    assert not reflection.parsed
    assert reflection.insights == ()
    assert said in reflection.raw
    assert "again" in reflection.raw
    assert reflection.usage.calls == 2


@pytest.mark.parametrize("profile", ["full", "compact"])
@pytest.mark.parametrize(
    "wrap",
    ["{}", '<think>{{"insights": []}} hm</think>\n{}', "```json\n{}\n```", "Sure:\n{}\nHope that helps.", '" {}'],
)
async def test_well_formed_lessons_are_found_in_ill_formed_replies(profile: Profile, wrap: str) -> None:
    def script(messages: Sequence[Message], params: SamplingParams) -> str:
        return wrap.format(answer(messages, params))

    reflection = await model(profile, script).reflect(told(), [])
    assert [insight.content for insight in reflection.insights] == [TOLD]
