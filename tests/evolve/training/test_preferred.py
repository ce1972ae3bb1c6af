"""Training on failures beside successes of one task: what is paired, what an update does, and how it goes on.

Q1  DPO begins at a margin of 0 and a loss of log 2, and puts the right one ahead; so does SimPO
Q2  stopped between two passes it goes on to the same weights
Q3  a journal without such tasks is refused in a sentence, and so are settings that do not fit
"""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file

from benchmarks.parity_world import PLAYED
from evolve.config.file import changed, load_config
from evolve.config.model import Config
from evolve.config.training import recipe_settings
from evolve.errors import ConfigError
from evolve.loop.assembly import open_store
from evolve.loop.session import run
from evolve.training import ledger
from evolve.training.preferred import REFERENCE
from evolve.training.supervised import group_examples, success_examples
from evolve.training.training_data import offer
from evolve.training.training_session import Trained, offered, resume, train_from_logs
from memory.errors import BadInput, EvolveError
from policies.rl.advantages.grpo import grpo
from policies.rl.filters.everything import Everything
from policies.rl.protocols import Episodes, Flags

pytestmark = pytest.mark.slow
SETTINGS = f"""\
{PLAYED}
[run]
tasks = 12
attempts = 4

[controls]
no_memory = 0

[train]
rank = 4
learning_rate = 2e-3
"""
PASSES = 4


@pytest.fixture(scope="module")
def worked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("preferred")
    (folder / "evolve.toml").write_text(SETTINGS)
    run(load_config(folder / "evolve.toml"))
    return folder


def test_what_groups_said_is_compared_with_the_weights_that_said_it(config: Config) -> None:
    with open_store(config, len, read_only=True) as store:
        found = offer(store.trajectories(), store.get_reply)
        examples = group_examples(found, store.get_reply, grpo, Everything())
    assert examples.rows
    assert all(row.reused for row in examples.rows)


class First:
    """A filter that keeps the first trajectory alone."""

    def keep(self, episodes: Episodes) -> Flags:
        return np.arange(len(episodes.rewards)) < 1


def test_groups_are_filtered_as_rollouts_are(config: Config) -> None:
    def rows(chosen: str) -> set[str]:
        asked = recipe_settings("groups") | {"train.filter": chosen, "train.sft.passes": 1}
        done = train_from_logs(changed(config, asked), "groups", groups=True)
        return {name for line in ledger.lines(done.folder / ledger.HISTORY) for name in line["episodes"]}

    assert len(rows("everything")) > len(rows(f"{__name__}:First")) == 1
    with pytest.raises(EvolveError, match="nosuch"):
        rows("nosuch")


def test_what_attempts_said_alike_is_learned_once(config: Config) -> None:
    with open_store(config, len, read_only=True) as store:
        found = offer(store.trajectories(), store.get_reply)
        twice = found.model_copy(
            update={
                "successes": (*found.successes, *(e.model_copy(update={"id": f"{e.id}-"}) for e in found.successes))
            }
        )
        once, again = success_examples(found, store.get_reply), success_examples(twice, store.get_reply)
    assert len({(row.prompt_ids, row.completion_ids) for row in once.rows}) == len(once.rows)
    assert again.rows == once.rows
    assert [[*each] for each in again.advantages] == [[*each] for each in once.advantages]


def test_what_was_sampled_at_another_temperature_says_nothing_of_the_policy(config: Config) -> None:
    """First attempts were sampled at 1.5, all others at 0.8."""
    unknown: dict[float, float] = {}
    for temperature in (0.8, 1.0, 1.5):
        asked = recipe_settings("groups") | {"train.temperature": temperature, "train.sft.passes": 1}
        done = train_from_logs(changed(config, asked), "groups", groups=True)
        told = ledger.lines(done.folder / ledger.METRICS)
        unknown[temperature] = sum(each.get("unscored", 0) for each in told) / sum(each["tokens"] for each in told)
    assert unknown[1.0] == 1
    assert unknown[0.8] + unknown[1.5] == pytest.approx(1)
    assert 0 < unknown[0.8] < 1


def test_a_clip_bounds_what_all_passes_move_where_nobody_knows_how_likely_a_token_was(config: Config) -> None:
    """At a temperature at which nothing was sampled."""
    asked = recipe_settings("groups") | {"train.temperature": 1.0, "train.sft.passes": PASSES}
    whole = train_from_logs(changed(config, asked), "groups", groups=True)
    told = ledger.lines(whole.folder / ledger.METRICS)
    assert all(each["unscored"] == each["tokens"] for each in told)
    assert told[0]["ratio_max"] == pytest.approx(1, abs=1e-3)
    assert told[-1]["ratio_max"] > 1.2
    assert told[-1]["clip_fraction"] > 0
    weights = load_file(whole.folder / "adapter" / "adapter_model.safetensors")
    shutil.rmtree(whole.folder.parent.parent)

    def stopping(figures: dict[str, float]) -> None:
        if figures["epoch"] == PASSES - 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_from_logs(changed(config, asked), "groups", groups=True, report=stopping)
    for name, value in load_file(resume(config).folder / "adapter" / "adapter_model.safetensors").items():
        assert value.equal(weights[name]), name


@pytest.mark.parametrize("recipe", ["sft", "groups"])
def test_as_many_updates_are_told_beforehand_as_are_made(config: Config, recipe: str) -> None:
    every = {"train.epochs": 2, "train.minibatches": 3, "train.sft.batch": 4, "train.sft.passes": 1}
    seen: list[dict[str, float]] = []
    asked = recipe_settings(recipe) | every
    done = train_from_logs(changed(config, asked), recipe, groups=recipe == "groups", report=seen.append)
    assert {each["updates"] for each in seen} == {done.updates}


def test_a_backend_that_trains_while_it_rolls_out_takes_no_journal(config: Config) -> None:
    with pytest.raises(ConfigError, match=r"evolve train groups makes no rollouts: set train\.backend"):
        train_from_logs(changed(config, {"train.backend": "trl_async"}), "groups", groups=True)


def test_a_correction_is_refused_where_nobody_knows_how_likely_a_token_was(config: Config) -> None:
    for recipe in ("sft", "dpo"):
        with pytest.raises(ConfigError, match=r"train.correction = 'tis'.*leave it out"):
            train_from_logs(changed(config, {"train.correction": "tis"}), recipe)


@pytest.fixture
def config(worked: Path, tmp_path: Path) -> Config:
    shutil.copytree(worked, tmp_path / "own")
    return load_config(tmp_path / "own" / "evolve.toml")


def trained(config: Config, recipe: str, **settings: object) -> tuple[Trained, list[dict[str, float]]]:
    settings = recipe_settings(recipe) | {"train.sft.passes": PASSES, "train.sft.batch": 4} | settings
    done = train_from_logs(changed(config, settings), recipe)
    return done, ledger.lines(done.folder / ledger.METRICS)


@pytest.mark.parametrize("recipe", ["dpo", "simpo"])
def test_q1_the_right_one_comes_out_ahead(config: Config, recipe: str) -> None:
    pairs = len(offered(config).pairs)
    assert pairs >= 4
    done, told = trained(config, recipe)
    assert done.updates == len(told) == PASSES * math.ceil(pairs / 4)
    first, last = told[0], told[-1]
    if recipe == "dpo":
        assert first["margin"] == pytest.approx(0.0, abs=1e-4)
        assert first["loss"] == pytest.approx(math.log(2), abs=1e-4)
    assert last["margin"] > first["margin"] + 0.05
    assert last["preferred"] > 0.8
    assert done.examples >= pairs


def test_q2_it_goes_on_to_the_same_weights(config: Config) -> None:
    whole, _ = trained(config, "dpo")
    weights = load_file(whole.folder / "adapter" / "adapter_model.safetensors")
    reference = json.loads((whole.folder / REFERENCE).read_text())
    shutil.rmtree(whole.folder.parent.parent)

    def stopping(figures: dict[str, float]) -> None:
        if figures["epoch"] == 2:
            raise KeyboardInterrupt

    settings = recipe_settings("dpo") | {"train.sft.passes": PASSES, "train.sft.batch": 4}
    with pytest.raises(KeyboardInterrupt):
        train_from_logs(changed(config, settings), "dpo", report=stopping)
    again = resume(config)
    assert again.name == whole.name
    assert json.loads((again.folder / REFERENCE).read_text()) == reference
    for name, value in load_file(again.folder / "adapter" / "adapter_model.safetensors").items():
        assert value.equal(weights[name]), name


def test_q3_what_does_not_fit_is_refused(config: Config, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"one update of a batch of pairs in one process, got \{'train.epochs': 2\}"):
        trained(config, "dpo", **{"train.epochs": 2})
    (tmp_path / "evolve.toml").write_text(SETTINGS.replace("attempts = 4", "attempts = 1"))
    alone = load_config(tmp_path / "evolve.toml")
    run(alone)
    with pytest.raises(BadInput, match="no train tasks that succeeded once and failed once with token ids"):
        trained(alone, "simpo")
