"""Which generation acts where: the live one, one that is named, and in a comparison the same as at home."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from benchmarks.random_adapters import random_adapter
from evolve.compare.arms import Given, resolve
from evolve.config.file import load_config
from evolve.config.model import Config
from evolve.generations.workspace_registry import inspected, model_directory, open_registry
from evolve.loop import assembly as app
from policies.generations.swap import swap
from tests.evolve.command import invoke

SETTINGS = """\
[run]
tasks = 1

[policy]
name = "pocket"
max_tokens = 8

[environment]
name = "tests.evolve.toy_doors:Doors"
max_steps = 1

[memory]
index = "exact"
"""


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """A workspace with a live generation."""
    (tmp_path / "evolve.toml").write_text(SETTINGS)
    config = load_config(tmp_path / "evolve.toml")
    adapter = random_adapter(model_directory(config.policy), tmp_path / "adapter", 1)
    with open_registry(config.policy, config.workspace) as registry:
        made = registry.publish(adapter, base=registry.base)
        asyncio.run(inspected(config.policy, registry, swap, made.version))
    return config


def weights(config: Config) -> str:
    return app.make_policy(config.policy, config.workspace).version


def test_a_run_acts_with_the_generation_that_is_named_and_says_so(config: Config) -> None:
    for words, version in (((), "policy-v1"), (("--set", "policy.adapter=policy-v0"), "policy-v0")):
        assert f"{version} answers, a generation of this workspace" in invoke(config.root, "run", *words).output


def test_a_comparison_takes_the_live_generation_along_or_the_one_that_an_arm_names(config: Config) -> None:
    given = Given(config.root / "evolve.toml")
    base = weights(config.model_copy(update={"root": config.root / "elsewhere"}))
    found: list[str] = []
    for arm in ("default", "policy.adapter=policy-v0", "policy.adapter=policy-v1"):
        data = resolve(arm, given).config | {"root": config.root / "elsewhere"}
        found.append(weights(Config.model_validate(data)))
    assert found == [weights(config), base, weights(config)]
    assert base != weights(config)
