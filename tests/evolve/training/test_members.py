"""Every member that a slot lists trains: through the command, on real rollouts of the pocket model, with an update."""

from __future__ import annotations

import shutil
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pytest

from benchmarks.parity_world import PLAYED
from policies.rl import slots
from tests.evolve.command import invoke
from tests.evolve.training.test_cli_train import told

pytestmark = pytest.mark.slow
SETTINGS = f"""\
{PLAYED}
[run]
tasks = 6
batch_size = 6

[train]
rank = 2
iterations = 1
chains = 2
rollouts = 3
length = 1
skills = false
temperature = 1.5
"""
KEYS = {
    "advantages": "advantages",
    "losses": "loss",
    "filters": "filter",
    "corrections": "correction",
    "samplers": "sampler",
    "allocators": "allocator",
}
"""Slot -> its key of `[train]`; `branching` and `transforms` are of trainings that branch and retry."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("members")
    (path / "evolve.toml").write_text(SETTINGS)
    return path


def together() -> list[dict[str, str]]:
    """Return choices that name each member at least once: as many as the largest slot has, each slot begun anew.

    A filter may leave nothing with some batches, so it is tried with the members that ask least of it.
    """
    listed = {slot: slots.names(slot) for slot in KEYS if slot != "filters"}
    most = max(map(len, listed.values()))
    columns = [[(KEYS[slot], name) for name in islice(cycle(names), most)] for slot, names in listed.items()]
    return [dict(row) | {"filter": "everything"} for row in zip(*columns, strict=True)] + [
        {"filter": name} for name in slots.names("filters")
    ]


def trained(folder: Path, recipe: str, choice: dict[str, str]) -> dict[str, Any]:
    words = [word for key, value in choice.items() for word in ("--set", f"train.{key}={value}")]
    made = told(folder, "train", recipe, *words)
    assert made["updates"] >= 1
    (row,) = [row for row in told(folder, "train", "status") if row["training"] == made["name"]]
    return row["figures"]


def test_options_of_a_member_are_set_by_the_configuration(folder: Path) -> None:
    losses = {}
    for tau in (1.0, 3.0):
        keys = {"advantages": "{name = 'rloo', singleton = 'raw'}", "loss": f"{{name = 'opmd', tau = {tau}}}"}
        losses[tau] = trained(folder, "run", keys)["loss"]
    assert losses[1.0] != 0
    assert losses[3.0] == pytest.approx(losses[1.0] / 2), "-A log pi / (1 + tau)"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            "loss.epsilon=0.2",
            "losses 'ppo' has the options low, high, dual_clip, aggregation; missing []",
        ),
        ("loss.high='wide'", "losses 'ppo' got high = 'wide': Input should be a valid number"),
        ("options={losses = {high = 0.3}}", "train.options has no 'losses'; options are given for advantages, loss"),
        ("correction.cap=2.0", "[train.correction] has options, and no correction is used"),
    ],
)
def test_options_that_fit_no_member_are_refused_before_anything_is_rolled_out(
    folder: Path, tmp_path: Path, options: str, said: str
) -> None:
    own = Path(shutil.copytree(folder, tmp_path / "own"))
    before = told(own, "train", "status")
    result = invoke(own, "train", "run", "--set", f"train.{options}")
    assert result.exit_code != 0
    assert said in " ".join(result.stderr.split())
    assert told(own, "train", "status") == before


def test_the_norm_of_a_gradient_is_called_so(folder: Path) -> None:
    assert trained(folder, "run", {"max_grad_norm": "0.5", "filter": "everything"})["gradient_norm"] >= 0


def test_the_table_names_each_slot_of_members() -> None:
    assert sorted([*KEYS, "branching", "transforms"]) == sorted(slots.SLOTS)


@pytest.mark.parametrize("choice", together(), ids=lambda choice: "-".join(choice.values()))
def test_what_is_listed_trains(folder: Path, choice: dict[str, str]) -> None:
    figures = trained(folder, "run", choice)
    assert 0 < figures["kept"] <= figures["episodes"] == 6
