"""A prompt that the policy refuses costs what was asked with it, not the run: a reflection, a curation, a judgement."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from evolve.config.model import Config
from evolve.loop.assembly import open_store
from evolve.loop.session import Parts, arun
from memory.records import Reflection
from policies.errors import PolicyError, PolicyRefused
from policies.scripted import ScriptedPolicy
from tests.evolve.toy_doors import Doors, doors_config, replies

TOO_LONG = "2,141 tokens are more than the 2,048 this model reads"


async def go(config: Config, refused: str) -> tuple[Reflection, ...]:
    """Do four doors with a policy that refuses prompts that begin so; return the reflections that are kept."""

    def script(messages: Any, params: Any) -> str | PolicyError:
        return PolicyRefused(TOO_LONG) if messages[0].content.startswith(refused) else replies(messages, params)

    policy = ScriptedPolicy(script, name="doors", profile="compact", version="1")
    result = await arun(config, parts=Parts(policy=policy, environment=Doors(4)))
    assert result.status == "done"
    with open_store(config, read_only=True) as store:
        return tuple(store.reflections())


async def test_a_refused_reflection_is_kept_as_raw_and_the_run_goes_on(tmp_path: Path) -> None:
    kept = await go(doors_config(tmp_path, run={"tasks": 4}, controls={"no_memory": 0}), "reflect")
    assert kept
    assert all(not reflection.parsed and TOO_LONG in reflection.raw for reflection in kept)


async def test_a_lesson_whose_curation_is_refused_is_set_aside_and_the_run_goes_on(tmp_path: Path) -> None:
    config = doors_config(tmp_path, run={"tasks": 4}, controls={"no_memory": 0})
    kept = await go(config, "curate")
    aside = [reflection for reflection in kept if not reflection.parsed]
    lessons = {insight.content for reflection in kept if reflection.parsed for insight in reflection.insights}
    assert len(lessons) == len(aside) == 4
    assert {reflection.insights[0].content for reflection in aside} == lessons
    assert all(TOO_LONG in reflection.raw for reflection in aside)
    with open_store(config, read_only=True) as store:
        assert store.records("default") == ()


async def test_a_refused_judgement_is_none_and_the_run_goes_on(tmp_path: Path) -> None:
    run: dict[str, object] = {"tasks": 4, "label_free": True, "judge": "policy"}
    config = doors_config(tmp_path, run=run, controls={"no_memory": 0})
    await go(config, "Decide whether")
    with open_store(config, read_only=True) as store:
        judgements = store.events(type="judgement")
    assert len(judgements) == 4
    assert all(event.data["success"] is None and TOO_LONG in event.data["reason"] for event in judgements)
