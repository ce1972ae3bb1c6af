"""A reflection the policy refuses to write costs that reflection, not the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from evolve.loop.assembly import open_store
from evolve.loop.session import Parts, arun
from policies.errors import PolicyError, PolicyRefused
from policies.scripted import ScriptedPolicy
from tests.evolve.toy_doors import Doors, doors_config, replies


async def test_a_refused_reflection_is_kept_as_raw_and_the_run_goes_on(tmp_path: Path) -> None:
    def script(messages: Any, params: Any) -> str | PolicyError:
        if messages[0].content.startswith("reflect"):
            return PolicyRefused("2,141 tokens are more than the 2,048 this model reads")
        return replies(messages, params)

    config = doors_config(tmp_path, run={"tasks": 4}, controls={"no_memory": 0})
    policy = ScriptedPolicy(script, name="doors", profile="compact", version="1")
    result = await arun(config, parts=Parts(policy=policy, environment=Doors(4)))
    assert result.status == "done"
    with open_store(config, read_only=True) as store:
        kept = store.reflections(run_id=result.run_id) or store.reflections()
    assert kept
    assert all(not reflection.parsed and "2,141 tokens" in reflection.raw for reflection in kept)
