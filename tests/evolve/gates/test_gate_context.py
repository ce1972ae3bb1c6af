"""What a gate may ask for where it is made, and which gates stand for `default`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from evolve.config.model import Config
from evolve.episode.rollout import RolloutConfig
from evolve.errors import ConfigError
from evolve.gates.context import Bench, GateContext
from evolve.gates.evaluator import Evaluator
from evolve.gates.stack import expanded
from evolve.loop.assembly import open_store
from memory.errors import BadInput
from memory.records import Task
from policies.scripted import ScriptedPolicy
from tests.evolve.toy_doors import Doors, doors_config, replies


class Named(Doors):
    """A world whose tasks say in which split they are; it has no split `nowhere`."""

    def tasks(self, split: str) -> Sequence[Task]:
        if split == "nowhere":
            raise BadInput("no split 'nowhere'")
        return [Task(id=split, instruction=f"A task of {split}.", split=split)]


RUN: dict[str, Any] = {"split": "train", "dev_split": "select", "eval_splits": ["test_normal", "nowhere", "train"]}


def test_held_out_tasks_are_those_of_all_splits_but_the_streams(tmp_path: Path) -> None:
    config = doors_config(tmp_path, run=RUN)
    policy = ScriptedPolicy(replies, name="doors", profile="compact")
    with open_store(config) as store:
        made = Evaluator(config, store, Named(), policy, RolloutConfig(world=""), "run")
        context = GateContext(config, Bench(made, (Task(id="w", instruction="Write."),)))
        assert sorted(context.held_out()) == [f"A task of {name}." for name in ("select", "test_normal")]
        assert list(context.instructions()) == ["Write."]
        assert context.bench_of("held_out") is context.bench
        free = GateContext(doors_config(tmp_path, run={"label_free": True}), context.bench)
        with pytest.raises(ConfigError, match="label_free"):
            free.bench_of("held_out")


def test_what_all_held_out_tasks_are_told_alike_shows_none_of_them(tmp_path: Path) -> None:
    class Alike(Doors):
        def tasks(self, split: str) -> Sequence[Task]:
            told = ("Win.", "Win.", f"A task of {split}.")
            return [Task(id=f"{split}-{at}", instruction=each, split=split) for at, each in enumerate(told)]

    config = doors_config(tmp_path, run={"eval_splits": ["test_normal"]})
    with open_store(config) as store:
        policy = ScriptedPolicy(replies, name="doors", profile="compact")
        made = Evaluator(config, store, Alike(), policy, RolloutConfig(world=""), "run")
        assert sorted(GateContext(config, Bench(made, ())).held_out()) == ["A task of dev.", "A task of test_normal."]


def test_where_nothing_can_run_tasks_only_what_was_told_is_known(tmp_path: Path) -> None:
    context = GateContext(
        Config.model_validate({"root": tmp_path, "gate": {"static": {"allow": ["corp.org"]}}}), told=lambda: ["Pay."]
    )
    assert (list(context.held_out()), list(context.instructions())) == ([], ["Pay."])
    assert "corp.org" in context.described(["corp.org"])
    with pytest.raises(ConfigError, match="nothing can run them"):
        context.bench_of("held_out")
    context.refuse_label_free("held_out")
    assert list(GateContext(context.config).instructions()) == []


@pytest.mark.parametrize(
    ("names", "given", "stack"),
    [
        (["default"], {}, ["static", "batch_screen", "held_out", "canary"]),
        (["default"], {"exemplars": True}, ["static", "exemplars", "batch_screen", "held_out", "canary"]),
        (["default"], {"canaries": False}, ["static", "batch_screen", "held_out"]),
        (["default"], {"live": True}, ["static", "online_ab"]),
        (["default"], {"graded": False}, ["static"]),
        (["default"], {"graded": False, "live": True}, ["static"]),
        (["none"], {}, ["none"]),
        (["canary", "default", "review"], {}, ["canary", "static", "batch_screen", "held_out", "review"]),
        (["canary"], {"canaries": False}, ["canary"]),
        ([], {}, []),
    ],
)
def test_default_stands_for_the_gates_that_the_world_allows(
    names: list[str], given: dict[str, bool], stack: list[str]
) -> None:
    assert list(expanded(names, **given)) == stack
